/*
 * The process around the loop: signals, the service manager, log lines, and
 * --dev.
 */
#ifndef HOLDFAST_PROCESS_H
#define HOLDFAST_PROCESS_H

#include "daemon/base/log.h"
#include "daemon/io/loop.h"

#include <stdbool.h>

struct config;
struct dev;
struct loop;
struct process;

/* process.c */

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

/* activation.c */

#define ACTIVATION_MAX 64

struct activation {
    struct loop_socket sockets[ACTIVATION_MAX];
    uint32_t count;
    char names[ACTIVATION_MAX][256]; /* by FileDescriptorName= */
};

/*
 * Takes the passed sockets. Children get neither sockets nor variables. False:
 * `error` has a line about the variables.
 */
bool activation_take(
    struct activation *activation, char *error, size_t error_bytes);

/* dev.c */

/* Listens on that port of 127.0.0.1 (0: any free one), starts a private Redis,
 * and sets `config` for it. NULL: `error` has a line that says why. */
struct dev *dev_create(
    uint16_t port, struct config *config, char *error, size_t error_bytes);

/* Gives away the socket, once, as a passed one. */
void dev_take(struct dev *dev, struct activation *activation);

/* Prints the address when locks can be granted. The loop stops when the parent
 * process or Redis has ended, or if no lock can be granted within 10 s. False:
 * no memory. */
bool dev_attach(struct dev *dev, struct loop *loop);

/* Detaches from the loop, before its end. False: it has printed no address. In
 * both `dev` may be NULL. */
bool dev_detach(struct dev *dev);

/* Ends Redis; *dev becomes NULL, and may be NULL. */
void dev_destroy(struct dev **dev);

/* sink.c */

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
