/*
 * From an address to a lock that is held, for run and lock.
 */
#ifndef HOLDFAST_COMMAND_ACQUIRE_H
#define HOLDFAST_COMMAND_ACQUIRE_H

#include "proto/holdfast/loop.h"
#include "proto/holdfast/options.h"

/* What the options of run and lock say. */
struct acquire {
    const char *address; /* refs */
    const char *key;
    const char *owner; /* or NULL */
    const char *note;  /* or NULL */
    uint64_t wait_ms;  /* HOLDFAST_FOREVER: until granted */
    uint64_t lease_ms; /* 0: renewed */
};

/*
 * Reads `[--wait D] [--lease D] [--owner W] [--note W] KEY`, for run with
 * `-- PROGRAM ARG...`. False: *status is the exit status.
 */
bool acquire_parse(struct settings *settings, const char *command, char **argv,
    bool program, struct acquire *acquire, struct words *words, int *status);

/*
 * Takes the lock, waiting and connecting again as need be. STATUS_FINE: *h is
 * owned by the caller and holds *hold. Any other status is the exit status,
 * after a complaint; 128 and more: this signal came.
 */
int acquire_lock(const struct acquire *acquire, struct loop *loop,
    struct holdfast **h, struct holdfast_hold *hold);

/*
 * Gives the lock back and waits for the answer, for at most two seconds. Where
 * that fails the end of the connection gives it back as well, so there is only
 * a warning.
 */
void acquire_release(struct holdfast *h, const struct holdfast_hold *hold);

#endif
