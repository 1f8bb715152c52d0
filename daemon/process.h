/*
 * The process around the loop: signals and the service manager.
 */
#ifndef HOLDFAST_PROCESS_H
#define HOLDFAST_PROCESS_H

#include <stdbool.h>

struct loop;
struct process;

/* Reads the configuration again. */
typedef void process_reload(void *arg);

/* Whether there is a reason to reload without a signal. */
typedef bool process_look(void *arg);

/* Lets a SIGHUP wait for process_create() from now on. */
void process_begin(void);

/*
 * Handles signals and the service manager. TERM and INT stop the loop. HUP
 * calls `reload`. `look` is asked each second whether to reload. PIPE does
 * nothing. The service manager is told of start, reload and stop, and gets its
 * watchdog messages. NULL: no memory.
 */
struct process *process_create(
    struct loop *loop, process_reload *reload, process_look *look, void *arg);

/* Ignores these signals from now on. */
void process_destroy(struct process **process);

#endif
