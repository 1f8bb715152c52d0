/*
 * From an address to a lock that is held, for run and lock.
 */
#ifndef HOLDFAST_COMMAND_ACQUIRE_H
#define HOLDFAST_COMMAND_ACQUIRE_H

#include "proto/holdfast/loop.h"
#include "proto/holdfast/options.h"

#include <sys/types.h>

struct guard;

/* The options of run and lock. */
struct acquire {
    const char *address;     /* ref; or several addresses */
    const char *const *keys; /* refs */
    size_t key_count;
    uint64_t keep_ms; /* 0: the end of the connection is the end */
    struct holdfast_lock_options options;
};

/* The locks that are held, in the order of their keys. */
struct acquired {
    struct holdfast_hold hold[HOLDFAST_NAMES_MAX];
    size_t count;
};

/*
 * Reads `[options] KEY ...`, for run with `-- PROGRAM ARG...`. False: *status
 * is the exit status.
 */
bool acquire_parse(struct settings *settings, const char *command, char **argv,
    bool program, struct acquire *acquire, struct words *words, int *status);

/*
 * Takes the locks, waiting and connecting again as need be, with a guard where
 * the session is to be kept. STATUS_FINE: *h is owned by the caller and holds
 * *acquired; what the guard knows is that they are waited for. Any other status
 * is the exit status, after a complaint; 128 and more: this signal came.
 */
int acquire_lock(const struct acquire *acquire, struct loop *loop,
    struct guard *guard, struct holdfast **h, struct acquired *acquired);

/* Tells the guard that the locks are held, and by which group; see errno. */
bool acquire_guard(struct guard *guard, const struct holdfast *h,
    const struct acquired *acquired, pid_t group);

/*
 * Until when all of them can be trusted by what is known now; 0: not any more.
 */
uint64_t acquired_deadline_ms(
    const struct holdfast *h, const struct acquired *acquired);

/* Their keys or, with `fences`, those, with `between` between them. */
void acquired_text(const struct acquired *acquired, bool fences, char between,
    char *text, size_t text_bytes);

#define ACQUIRED_TEXT_BYTES (HOLDFAST_NAMES_MAX * (HOLDFAST_NAME_MAX + 1))

/* Handles a broker that comes and goes; complains. */
void acquire_complain_away(const struct holdfast_event *event);

/*
 * Gives the locks back and waits for the answer, for some seconds at most. If
 * that fails, the end of the session or the guard gives them back, so there is
 * only a warning. Nothing is left for the guard to do else.
 */
void acquire_release(
    struct holdfast *h, struct guard *guard, const struct acquired *acquired);

#endif
