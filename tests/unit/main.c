/*
 * Runs the unit tests. A file test_NAME.c defines `Suite *NAME_suite(void)`;
 * the Makefile lists the files in suites.def, so nothing is to be entered here.
 *
 * CK_RUN_SUITE=NAME runs one suite, CK_FORK=no all of it in one process (for a
 * debugger). The last line is "N passed, N failed, N skipped".
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define SUITE(name) Suite *name##_suite(void);
#include "suites.def"
#undef SUITE

typedef Suite *suite_function(void);

#define SUITE(name) name##_suite,
static suite_function *const suites[] = {
#include "suites.def"
};
#undef SUITE

int
main(void)
{
    SRunner *runner = srunner_create(NULL);
    int run;
    int failed;

    for (size_t i = 0; i < sizeof(suites) / sizeof(suites[0]); i++)
        srunner_add_suite(runner, suites[i]());
    srunner_run_all(runner, CK_ENV);
    run = srunner_ntests_run(runner);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    printf("%d passed, %d failed, 0 skipped\n", run - failed, failed);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
