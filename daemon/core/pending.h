/*
 * Requests without a final reply. See pending.c.
 */
#ifndef HOLDFAST_CORE_PENDING_H
#define HOLDFAST_CORE_PENDING_H

#include "daemon/core/state.h"

/* The session's request with that tag; NULL: there is none. */
struct pending *pending_of_tag(
    const struct core *core, const struct session *session, const char *tag);

/* Creates a request; the caller has checked its tag and the limits. NULL: there
 * is no room. */
struct pending *pending_create(
    struct core *core, struct session *session, const struct request *request);

/* Frees a request without an answer. The members of its multi-lock are freed
 * with it. */
void pending_free(struct core *core, struct pending *pending);

/* Creates the LOCK of one name of the multi-lock `whole`. NULL: there is no
 * room. */
struct pending *pending_create_part(
    struct core *core, const struct pending *whole);

/* Begins the turn of a member. Its wait= is what is left of the whole's. */
void pending_begin_part(
    struct core *core, struct pending *part, const struct pending *whole);

/* Creates the request of a session. NULL: a limit forbids it, and the client
 * has been told. */
struct pending *command_pending(
    struct core *core, struct session *session, const struct request *request);

/* The name of member `place`. */
struct text bundle_name(const struct bundle *bundle, uint32_t place);

/* The multi-lock that the request is, or is a member of; NULL: none. */
struct bundle *bundle_of(
    const struct core *core, const struct pending *pending);

/* The LOCK of member `place`; NULL: it is gone. */
struct pending *bundle_part(
    const struct core *core, const struct bundle *bundle, uint32_t place);

/* The hold that member `place` has; NULL: it is gone. */
struct ticket *bundle_hold(
    const struct core *core, const struct bundle *bundle, uint32_t place);

/* Keeps the members that were had, for a LOCK that may come again. */
void bundle_leave(struct core *core, struct bundle *bundle);

/* Frees the members. Requests behind them have their turn at the end of the
 * step. */
void bundle_drop_parts(struct core *core, struct bundle *bundle);

/* Sets the request of the multi-lock and the name that it waits for. False:
 * `part` is no member. */
bool bundle_waits(const struct core *core, const struct pending *part,
    const struct pending **whole, struct text *name);

/* A member waits: requests behind the other members may have to be refused,
 * at the end of the step. Members only stand behind older requests, so this
 * ends. */
void bundle_stir(struct core *core, const struct pending *asks);

#endif
