/*
 * The target of log lines: stderr, as text or JSON, with a time or for the
 * journal, with a limit for each event.
 */
#ifndef HOLDFAST_SINK_H
#define HOLDFAST_SINK_H

#include "daemon/base/log.h"

struct loop;

/* Begins to log; `rate` is that of log_limit_init(). */
void sink_init(enum log_level threshold, enum log_format format, uint32_t rate);

/* Takes new values. A change reports suppressed lines first. */
void sink_configure(
    enum log_level threshold, enum log_format format, uint32_t rate);

/* Counts lines in the loop's counters, and reports suppressed lines every few
 * seconds, until sink_detach(). False: no memory. */
bool sink_attach(struct loop *loop);

/* Detaches from the loop, before its end. Reports suppressed lines. */
void sink_detach(void);

#endif
