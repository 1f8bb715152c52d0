/*
 * The process around the loop: signals, the service manager, the log's sink.
 */
#ifndef HOLDFAST_DAEMON_PROCESS_H
#define HOLDFAST_DAEMON_PROCESS_H

#include "daemon/base/log.h"

struct loop;
struct process;

/* Log lines go to stderr: with a priority for the journal, else with a time. */
void process_log_init(enum log_level threshold);

/*
 * TERM and INT stop the loop, HUP and PIPE do nothing; the service manager is
 * told that we are ready, and kept from taking us for dead. NULL: no memory.
 */
struct process *process_create(struct loop *loop);
void process_destroy(struct process **process);

#endif
