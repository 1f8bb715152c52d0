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

/* Whether there is a reason for that without a signal. */
typedef bool process_look(void *arg);

/* From now on a HUP waits for process_create(). */
void process_begin(void);

/*
 * TERM and INT stop the loop, HUP has `reload` called, and so does `look` when
 * it says so, which is asked each second; PIPE does nothing; the
 * service manager is told that we are ready, or reload, and kept from taking us
 * for dead. NULL: no memory.
 */
struct process *process_create(
    struct loop *loop, process_reload *reload, process_look *look, void *arg);

/* From now on none of them does anything. */
void process_destroy(struct process **process);

#endif
