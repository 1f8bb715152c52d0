/*
 * Calls from tickets to the features above them. core.c has the table.
 */
#ifndef HOLDFAST_CORE_MODEL_HOOKS_H
#define HOLDFAST_CORE_MODEL_HOOKS_H

#include <stdint.h>

struct core;
struct owner;
struct ticket;

struct ticket_hooks {
    /* It stands in the queue. */
    void (*waits)(struct core *core, struct ticket *ticket);

    /* The time of a wait's search has come. Returns when it comes again;
     * NEVER: not. */
    uint64_t (*search)(struct core *core, struct ticket *ticket);

    /* The client of a hold wants to hear of waiters. */
    void (*wanted)(struct core *core, struct ticket *ticket);

    /* Such a hold ends. */
    void (*unwanted)(struct core *core, struct ticket *ticket);

    /* A hold ends. The ticket is HELD, with its holds, until that returns. */
    void (*ends)(struct core *core, struct ticket *ticket);

    /* The owner has one more hold. */
    void (*held)(struct core *core, const struct owner *owner);

    /* A hold was lost. `reason` is static. */
    void (*lost)(
        struct core *core, const struct ticket *ticket, const char *reason);

    /* A release that was sent at `sent_us` has been carried out, or its client
     * relies on that, or it is given up. 0: it was never sent. */
    void (*released)(
        struct core *core, const struct ticket *ticket, uint64_t sent_us);
};

#endif
