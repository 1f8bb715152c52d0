/*
 * The audit hook: a program of the operator that runs for each finding of an
 * audit. It has no shell, no open descriptors, and its own process group.
 *
 * The loop never waits for it. A few processes run at once, some more wait for
 * their turn, and further ones are dropped. A hook that takes too long is
 * killed.
 */
#ifndef HOLDFAST_IO_HOOK_H
#define HOLDFAST_IO_HOOK_H

#include "daemon/op/counters.h"

#include <stddef.h>

#define HOOK_WORDS_MAX 16

struct event_base;
struct hooks;

struct hook_settings {
    const char *argv[HOOK_WORDS_MAX + 1]; /* refs; NULL ends it */
    uint64_t timeout_us;
};

/* NULL: no memory. All of these refs outlive it. */
struct hooks *hooks_create(struct event_base *base,
    const struct hook_settings *settings, struct counters *counters);

/* Kills all processes, and waits for their ends. */
void hooks_destroy(struct hooks **hooks);

/* Runs the hook with that environment: "KEY=value", each with a NUL behind it,
 * in `len` bytes that are copied. */
void hooks_run(struct hooks *hooks, const char *environment, size_t len);

#endif
