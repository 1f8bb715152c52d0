/*
 * The target of log lines: stderr, as text or JSON, with a time or for the
 * journal, and not too many of one event.
 */
#ifndef HOLDFAST_SINK_H
#define HOLDFAST_SINK_H

#include "daemon/base/log.h"

struct loop;

/* From now on; `rate` is that of log_limit_init(). */
void sink_init(enum log_level threshold, enum log_format format, uint32_t rate);

/* The same again; where anything is another, it tells first of what was held
 * back. */
void sink_configure(
    enum log_level threshold, enum log_format format, uint32_t rate);

/* Lines are counted in the loop's counters, and what was held back is told of
 * every few seconds, until sink_detach(). False: no memory. */
bool sink_attach(struct loop *loop);

/* Before the loop's end. Tells of what was held back. */
void sink_detach(void);

#endif
