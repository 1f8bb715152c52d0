/*
 * Ends the process when an invariant is broken.
 *
 * Called through require(). It must work in any state, so it allocates nothing
 * and uses no log sink.
 */
#include "daemon/base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void
assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "level=error event=assertion_failed at=%s:%d what=\"%s\"\n",
        file, line, expression);
    fflush(stderr);
    abort();
}
