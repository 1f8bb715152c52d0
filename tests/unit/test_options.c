/*
 * The command line of holdfastd. The daemon's main program is in no library, so
 * its part is taken in whole.
 */
#include "daemon/options.c"

#include <check.h>
#include <string.h>

Suite *options_suite(void);

#define WORDS_MAX 8

static struct options options;

/* `line` is cut at blanks; "''" is the empty word. */
static enum options_action
parse(const char *line)
{
    static char words[256];
    static char name[] = "holdfastd";
    char *argv[WORDS_MAX + 2] = {name};
    char *rest = NULL;
    int argc = 1;

    ck_assert_uint_lt(strlen(line), sizeof(words));
    memcpy(words, line, strlen(line) + 1);
    for (char *word = strtok_r(words, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        ck_assert_int_le(argc, WORDS_MAX);
        if (strcmp(word, "''") == 0)
            word[0] = '\0';
        argv[argc++] = word;
    }
    return options_parse(&options, argc, argv);
}

START_TEST(actions)
{
    static const struct {
        const char *line;
        enum options_action action;
        const char *file;
    } cases[] = {
        {"", OPTIONS_RUN, NULL},
        {"-c f", OPTIONS_RUN, "f"},
        {"-cf", OPTIONS_RUN, "f"},
        {"--config f", OPTIONS_RUN, "f"},
        {"--config=f", OPTIONS_RUN, "f"},
        {"--config=f=g", OPTIONS_RUN, "f=g"},
        {"-c -t", OPTIONS_RUN, "-t"},
        {"-c f --", OPTIONS_RUN, "f"},
        {"-t", OPTIONS_CHECK_CONFIG, NULL},
        {"-t -t --check-config", OPTIONS_CHECK_CONFIG, NULL},
        {"-t -c f", OPTIONS_CHECK_CONFIG, "f"},
        {"-c f -t", OPTIONS_CHECK_CONFIG, "f"},
        {"-tcf", OPTIONS_CHECK_CONFIG, "f"},
        {"--print-config", OPTIONS_PRINT_CONFIG, NULL},
        {"--dev", OPTIONS_RUN, NULL},
        {"--print-config --config=f", OPTIONS_PRINT_CONFIG, "f"},
        {"-V", OPTIONS_VERSION, NULL},
        {"--version", OPTIONS_VERSION, NULL},
        {"-h", OPTIONS_HELP, NULL},
        {"--help", OPTIONS_HELP, NULL},
        {"-c f -t -h", OPTIONS_HELP, "f"},
        {"-h -x", OPTIONS_HELP, NULL},
        {"-V nonsense", OPTIONS_VERSION, NULL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(parse(cases[i].line), cases[i].action);
        ck_assert_str_eq(options.error, "");
        ck_assert_pstr_eq(options.config_file, cases[i].file);
    }
}

END_TEST

START_TEST(wrong_lines)
{
    static const struct {
        const char *line;
        const char *error;
    } cases[] = {
        {"-x", "unknown option: -x"},
        {"-tx", "unknown option: -x"},
        {"-xt", "unknown option: -x"},
        {"--check-config -xt", "unknown option: -x"},
        {"--foo", "unknown option: --foo"},
        {"--c f", "unknown option: --c"},
        {"--version=3", "option takes no value: --version=3"},
        {"--print-config=x", "option takes no value: --print-config=x"},
        {"-c", "option needs a value: -c"},
        {"--config", "option needs a value: --config"},
        {"-t -c", "option needs a value: -c"},
        {"-c ''", "empty file name: -c"},
        {"--config=", "empty file name: -c"},
        {"-c a -c b", "given twice: -c"},
        {"--dev=65536", "--dev needs a port from 0 to 65535: 65536"},
        {"--dev -t", "no other option is allowed: --dev"},
        {"-c f --dev", "no other option is allowed: --dev"},
        {"--dev 0", "unexpected argument: 0"},
        {"-t --print-config", "only one of them is allowed: -t, "
                              "--print-config"},
        {"--print-config -t", "only one of them is allowed: -t, "
                              "--print-config"},
        {"file", "unexpected argument: file"},
        {"file -t", "unexpected argument: file"},
        {"-c f -- -t", "unexpected argument: -t"},
        {"-", "unexpected argument: -"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(parse(cases[i].line), OPTIONS_WRONG);
        ck_assert_str_eq(options.error, cases[i].error);
    }
}

END_TEST

START_TEST(long_words_are_cut)
{
    char line[202];

    memset(line, 'w', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    ck_assert_int_eq(parse(line), OPTIONS_WRONG);
    ck_assert_uint_eq(
        strlen(options.error), strlen("unexpected argument: ") + 80);
}

END_TEST

START_TEST(a_given_file_is_taken_even_if_missing)
{
    struct stat ignored;

    parse("-c /nonexistent");
    ck_assert_str_eq(options_config_file(&options), "/nonexistent");
    parse("");
    if (stat(OPTIONS_CONFIG_FILE, &ignored) == 0)
        ck_assert_str_eq(options_config_file(&options), OPTIONS_CONFIG_FILE);
    else
        ck_assert_ptr_null(options_config_file(&options));
}

END_TEST

START_TEST(usage_names_every_option)
{
    char text[2048] = {0};
    FILE *file = fmemopen(text, sizeof(text), "w");

    ck_assert_ptr_nonnull(file);
    options_usage(file);
    fclose(file);
    for (const struct option *at = long_options; at->name != NULL; at++)
        ck_assert_msg(strstr(text, at->name) != NULL, "%s", at->name);
    ck_assert_ptr_nonnull(strstr(text, OPTIONS_CONFIG_FILE));
}

END_TEST

Suite *
options_suite(void)
{
    Suite *suite = suite_create("options");
    TCase *lines = tcase_create("lines");

    tcase_add_test(lines, actions);
    tcase_add_test(lines, wrong_lines);
    tcase_add_test(lines, long_words_are_cut);
    tcase_add_test(lines, a_given_file_is_taken_even_if_missing);
    tcase_add_test(lines, usage_names_every_option);
    suite_add_tcase(suite, lines);
    return suite;
}
