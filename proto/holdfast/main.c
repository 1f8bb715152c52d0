/*
 * holdfast [-a ADDR] [-o FORMAT] COMMAND ...: reads the options before the
 * command, and calls the command.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/options.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `argv` begins with the command's name. */
static int
command_call(struct settings *settings, char **argv)
{
    static const struct {
        const char *name;
        command_function *function;
    } functions[] = {{"run", command_run}, {"lock", command_lock},
        {"show", command_show}, {"locks", command_locks},
        {"sessions", command_sessions}, {"slow", command_slow},
        {"status", command_status}, {"audit", command_audit},
        {"ping", command_ping}, {"raw", command_raw}, {"watch", command_watch},
        {"await", command_await}, {"break", command_break},
        {"resize", command_resize}, {"unlock", command_unlock},
        {"renew", command_renew}, {"kill", command_kill},
        {"drain", command_drain}, {"secret", command_secret},
        {"top", command_top}, {"bench", command_bench}};

    bool help = strcmp(argv[0], "help") == 0;
    const char *name = help ? argv[1] : argv[0];
    const struct usage *usage = name != NULL ? usage_find(name) : NULL;

    if (help && (name == NULL || usage != NULL)) {
        (void)fputs(name == NULL ? help_all : usage->help, stdout);
        return STATUS_FINE;
    }
    for (size_t i = 0; i < COUNT(functions) && usage != NULL; i++)
        if (strcmp(name, functions[i].name) == 0)
            return functions[i].function(settings, argv + 1);
    complain("there is no command '%s'; see holdfast -h", name);
    return STATUS_USAGE;
}

/*
 * Opens each of stdin, stdout and stderr that is closed. Otherwise a socket
 * could get its number, and output would go to the broker. The new descriptor
 * cannot be read or written, and closes on exec.
 */
static void
standard_reserve(void)
{
    int fd;

    do {
        fd = open("/", O_PATH | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}

/* NULL: the variable is empty or absent. */
static const char *
environment(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int
command_line(int argc, char **argv)
{
    const char *tls = environment("HOLDFAST_TLS");
    struct settings settings = {
        .address = environment("HOLDFAST_ADDR"),
        .user = environment("HOLDFAST_USER"),
        .secret_file = environment("HOLDFAST_SECRET_FILE"),
        .tls = tls != NULL && strcmp(tls, "0") != 0,
        .tls_ca = environment("HOLDFAST_TLS_CA"),
        .tls_cert = environment("HOLDFAST_TLS_CERT"),
        .tls_key = environment("HOLDFAST_TLS_KEY"),
        .tls_name = environment("HOLDFAST_TLS_NAME"),
        .tls_verify = environment("HOLDFAST_TLS_VERIFY"),
        .argv = argv,
        .argc = argc,
    };
    struct words words;

    if (argc > 1 &&
        (strcmp(argv[1], "-V") == 0 || strcmp(argv[1], "--version") == 0)) {
        (void)printf("holdfast %s\n", HOLDFAST_VERSION);
        return STATUS_FINE;
    }
    if (argc < 1 ||
        !options_read(&settings, NULL, 0, STOP_AT_WORD, argv + 1, &words))
        return STATUS_USAGE;
    if (words.help) {
        (void)fputs(help_all, stdout);
        return STATUS_FINE;
    }
    if (words.rest == NULL || words.rest[0] == NULL) {
        complain("a command is missing; see holdfast -h");
        return STATUS_USAGE;
    }
    return command_call(&settings, words.rest);
}

int
main(int argc, char **argv)
{
    standard_reserve();
    int status = command_line(argc, argv);
    if (status == STATUS_FINE && (fflush(stdout) != 0 || ferror(stdout))) {
        complain("cannot write");
        status = STATUS_TROUBLE;
    }
    return status;
}
