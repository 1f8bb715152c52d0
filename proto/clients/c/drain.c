/*
 * A draining broker: when a kept session leaves it for another address, and the
 * requests that it refuses. session.c moves at h->move_ms.
 */
#include "proto/clients/c/session.h"

#include <assert.h>

/* Whether there is another address. */
static bool
elsewhere(const struct holdfast *h)
{
    for (size_t i = 0; i < h->peer_count; i++)
        if (h->peers[i].origin != h->peer_origin)
            return true;
    return false;
}

/* The broker drains. The session moves at a random time within `part_ms`, so
 * that not all clients move at once. */
static void
drain_begin(struct holdfast *h, uint64_t part_ms)
{
    uint64_t now = holdfast_now_ms(h);

    h->draining = true;
    if (elsewhere(h) && h->move_ms > now + part_ms)
        h->move_ms = now + holdfast_random(h, part_ms + 1);
}

void
holdfast_drain_hasten(struct holdfast *h)
{
    if (h->draining)
        drain_begin(h, CLIENT_MOVE_SOON_MS);
}

void
holdfast_drain_told(struct holdfast *h, const struct holdfast_message *message)
{
    uint64_t grace = 0;

    if (!holdfast_session_known(h) || h->link != LINK_OPEN)
        return;
    (void)holdfast_message_number(message, "grace_ms", &grace);
    drain_begin(
        h, grace / 4 < CLIENT_MOVE_MAX_MS ? grace / 4 : CLIENT_MOVE_MAX_MS);
}

bool
holdfast_drain_refused(struct holdfast *h, struct holdfast_pending *pending)
{
    if (!holdfast_session_known(h))
        return false;
    assert(!pending->parked);
    drain_begin(h, CLIENT_MOVE_SOON_MS);
    if (holdfast_pending_waits(pending)) {
        pending->again = true;
        holdfast_pending_park(h, pending);
    }
    return holdfast_pending_waits(pending);
}
