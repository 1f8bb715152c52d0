/*
 * Taking and releasing the locks of run and lock.
 */
#ifndef HOLDFAST_COMMAND_ACQUIRE_H
#define HOLDFAST_COMMAND_ACQUIRE_H

#include "proto/holdfast/loop.h"
#include "proto/holdfast/options.h"

#include <sys/types.h>

struct guard;

/* acquire.c */

/* The options of run and lock. */
struct acquire {
    const char *address;     /* ref; one or several addresses */
    const char *const *keys; /* refs */
    size_t key_count;
    uint64_t keep_ms; /* 0: the session ends with its connection */
    bool detached;    /* lock: the hold outlives the session */
    struct holdfast_lock_options options;
};

/* The locks of one request, in the order of their keys. */
struct acquired {
    struct holdfast_hold hold[HOLDFAST_NAMES_MAX];
    size_t count;
};

/* Reads the command line of run or lock. False: words->status is the exit
 * status. */
bool acquire_parse(struct settings *settings, const char *command, char **argv,
    struct acquire *acquire, struct words *words);

/*
 * Takes the locks. It waits, and connects again, within --wait. It starts the
 * guard of a kept session. STATUS_FINE: the caller owns *h, which holds
 * *acquired; the guard still believes in a wait. Any other status is the exit
 * status, after a complaint; 128 and more: a signal came.
 */
int acquire_lock(const struct acquire *acquire, struct loop *loop,
    struct guard *guard, struct holdfast **h, struct acquired *acquired);

/* Tells the guard that the locks are held, for `group`. False: see errno. */
bool acquire_guard(struct guard *guard, const struct holdfast *h,
    const struct acquired *acquired, pid_t group);

/* The earliest deadline of the locks; 0: one of them is not trusted. */
uint64_t acquired_deadline_ms(
    const struct holdfast *h, const struct acquired *acquired);

/* The keys or the fences, with `between` between them. */
void acquired_text(const struct acquired *acquired, bool fences, char between,
    char *text, size_t text_bytes);

#define ACQUIRED_TEXT_BYTES (HOLDFAST_NAMES_MAX * (HOLDFAST_NAME_MAX + 1))

/* Warns of a broker that went away, or is back. */
void acquire_complain_away(const struct holdfast_event *event);

/* The reason if the event ends the locks; NULL: they are held still, and a
 * warning was printed if there is something to know. */
const char *acquire_loss(const struct holdfast_event *event);

/* Releases the locks, and waits some seconds for the answer. If there is none
 * it warns, and the guard releases them, or the end of the session. */
void acquire_release(
    struct holdfast *h, struct guard *guard, const struct acquired *acquired);

/* nested.c */

/* Puts the locks into the environment of the program. False: no memory. */
bool nested_tell(const struct acquire *acquire);

/* The first key that a run above this process holds, whose PID is *pid: a wait
 * for it would never end. NULL: there is none. */
const char *nested_find(const struct acquire *acquire, long *pid);

#endif
