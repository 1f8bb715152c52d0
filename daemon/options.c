/*
 * The command line by getopt_long(). Its global state is reset at each call, so
 * that tests may call it often.
 */
#include "daemon/options.h"

#include "daemon/base/text.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <sys/stat.h>

enum {
    /* beyond any character: no short form */
    PRINT_CONFIG = 256,
    DEV,
};

#define DEV_PORT 4653

static const char short_options[] = ":c:tVh";

static const struct option long_options[] = {
    {"config", required_argument, NULL, 'c'},
    {"check-config", no_argument, NULL, 't'},
    {"print-config", no_argument, NULL, PRINT_CONFIG},
    {"dev", optional_argument, NULL, DEV},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static enum options_action
wrong(struct options *options, const char *what, const char *word)
{
    snprintf(options->error, sizeof(options->error), "%s: %.80s", what, word);
    return OPTIONS_WRONG;
}

static bool
is_known(int value)
{
    for (const struct option *at = long_options; at->name != NULL; at++) {
        if (at->val == value)
            return true;
    }
    return false;
}

/* Leaves out the value, which may be a secret. */
static enum options_action
wrong_long(struct options *options, const char *word)
{
    snprintf(options->error, sizeof(options->error), "unknown option: %.*s",
        (int)strcspn(word, "="), word);
    return OPTIONS_WRONG;
}

/* `found` is getopt_long()'s result for a bad option. */
static enum options_action
wrong_option(struct options *options, int found, const char *word)
{
    char letter[] = {'-', (char)optopt, '\0'};

    if (found == ':')
        return wrong(options, "option needs a value", word);
    if (optopt == 0)
        return wrong_long(options, word);
    if (is_known(optopt))
        return wrong(options, "option takes no value", word);
    /* One of several letters in an argument, maybe not the last one. */
    return wrong(options, "unknown option", letter);
}

static enum options_action
take_file(struct options *options, const char *file)
{
    if (file[0] == '\0')
        return wrong(options, "empty file name", "-c");
    if (options->config_file != NULL)
        return wrong(options, "given twice", "-c");
    options->config_file = file;
    return OPTIONS_RUN;
}

/* `port` NULL: the usual one. */
static enum options_action
take_dev(struct options *options, const char *port)
{
    uint64_t number = DEV_PORT;

    if (port != NULL && !text_to_u64(text_from(port), UINT16_MAX, &number))
        return wrong(options, "--dev needs a port from 0 to 65535", port);
    options->dev = true;
    options->dev_port = (uint16_t)number;
    return OPTIONS_RUN;
}

enum options_action
options_parse(struct options *options, int argc, char **argv)
{
    enum options_action action = OPTIONS_RUN;
    enum options_action asked;
    int found;

    *options = (struct options){.config_file = NULL};
    optind = 0;
    opterr = 0;
    while ((found = getopt_long(
                argc, argv, short_options, long_options, NULL)) != -1) {
        switch (found) {
        case 'c':
            if (take_file(options, optarg) == OPTIONS_WRONG)
                return OPTIONS_WRONG;
            break;
        case 't':
        case PRINT_CONFIG:
            asked = found == 't' ? OPTIONS_CHECK_CONFIG : OPTIONS_PRINT_CONFIG;
            if (action != OPTIONS_RUN && action != asked)
                return wrong(options, "only one of them is allowed",
                    "-t, --print-config");
            action = asked;
            break;
        case DEV:
            if (take_dev(options, optarg) == OPTIONS_WRONG)
                return OPTIONS_WRONG;
            break;
        case 'V':
            return OPTIONS_VERSION;
        case 'h':
            return OPTIONS_HELP;
        default:
            return wrong_option(options, found, argv[optind - 1]);
        }
    }
    if (options->dev && (action != OPTIONS_RUN || options->config_file != NULL))
        return wrong(options, "no other option is allowed", "--dev");
    if (optind < argc)
        return wrong(options, "unexpected argument", argv[optind]);
    return action;
}

const char *
options_config_file(const struct options *options)
{
    struct stat ignored;

    if (options->config_file != NULL)
        return options->config_file;
    if (stat(OPTIONS_CONFIG_FILE, &ignored) != 0 &&
        (errno == ENOENT || errno == ENOTDIR))
        return NULL;
    return OPTIONS_CONFIG_FILE;
}

void
options_usage(FILE *out)
{
    fputs(
        "Usage: holdfastd [-c FILE] [-t | --print-config]\n"
        "       holdfastd --dev[=PORT]\n"
        "\n"
        "Serves locks to clients, with Redis as the store, in the foreground.\n"
        "\n"
        "  -c, --config FILE   the configuration; without it the file\n"
        "                      " OPTIONS_CONFIG_FILE ", or the\n"
        "                      defaults if it is missing\n"
        "  -t, --check-config  check the configuration and exit\n"
        "      --print-config  print it with all defaults and exit\n"
        "      --dev[=PORT]    for tests: a private Redis, and locks at once, "
        "on\n"
        "                      127.0.0.1:PORT (4653; 0: a free port), which "
        "is\n"
        "                      printed; it ends with its parent process\n"
        "  -V, --version       print the version and exit\n"
        "  -h, --help          print this and exit\n"
        "\n"
        "Exit status: 0 done; 64 usage; 71 cannot listen on an address, or "
        "the\n"
        "system refuses; 78 configuration.\n",
        out);
}
