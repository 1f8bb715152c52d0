/*
 * A log whose lines are kept, for tests of what is logged.
 */
#ifndef HOLDFAST_TESTS_LOG_KEPT_H
#define HOLDFAST_TESTS_LOG_KEPT_H

#include "daemon/base/log.h"

/* From now on lines of that level, or a worse one, are kept; none is so far. */
void log_keep(enum log_level threshold);

/* They go nowhere from now on, but for errors. Kept lines stay. */
void log_keep_no_more(void);

/* All of them, each with its line end. */
const char *log_kept(void);

/* How often that stands in them. */
unsigned log_kept_count(const char *part);

#endif
