/*
 * A kept session, which outlives its connections (keep_ms).
 *
 *     from       event                        to
 *     OPEN       a lost connection, a drain   AWAY
 *     AWAY       the end of the pause         CONNECTING, GREETING
 *     GREETING   the greeting                 RESUMING
 *     RESUMING   OK to HELLO resume= gen=     OPEN, with claims
 *     others     an error                     the next peer, or AWAY
 *
 * The generation is the number of the connection. Each try increases it, also a
 * try whose result is unknown. Before the broker resumes the session only AUTH
 * and HELLO are sent: after a refusal a request would belong to a new session.
 *
 * The session ends when keep_ms has passed and nothing needs it: no hold
 * stands, no LOCK waits, and no lock is watched.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/session.h"
#include "proto/clients/c/client.h"
#include "proto/clients/c/hold.h"
#include "proto/clients/c/link.h"
#include "proto/clients/c/pending.h"
#include "proto/clients/c/submit.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void
holdfast_session_greet(struct holdfast *h)
{
    h->generation++;
    h->unknown = h->user[0] != '\0';
    if (h->unknown)
        (void)holdfast_submit_auth(h);
    if (h->generation == 1 && h->keep_ms == 0 && h->heartbeat_ms == 0 &&
        h->name[0] == '\0')
        return;
    if (h->generation > 1)
        h->link = LINK_RESUMING;
    /* The output is empty, so there is room. */
    (void)holdfast_submit_hello(h);
}

void
holdfast_session_known_as(
    struct holdfast *h, const struct holdfast_message *message, bool done)
{
    char reason[sizeof(h->reason)];

    h->unknown = !done;
    if (done || h->generation > 1)
        return; /* the broker will refuse the HELLO of a resumed session too */
    /* ERR LIMIT: the broker is full, which says nothing of the user. */
    h->user_denied = strcmp(message->word, "AUTH") == 0;
    (void)snprintf(reason, sizeof(reason), "the broker refuses the user %s: %s",
        h->user, message->word);
    holdfast_link_close(h, reason);
}

/* This connection serves the session. */
static void
session_open(struct holdfast *h)
{
    assert(h->generation > 1 && !h->final); /* it is resumed */
    h->link = LINK_OPEN;
    h->reason[0] = '\0';
    h->draining = false;
    h->move_ms = UINT64_MAX;
    h->opened_ms = holdfast_now_ms(h);
}

void
holdfast_session_greeted(
    struct holdfast *h, const struct holdfast_message *message, bool done)
{
    uint64_t keep = 0;

    if (done)
        (void)holdfast_message_number(message, "keep_ms", &keep);
    if (h->link == LINK_RESUMING) {
        if (done)
            session_open(h);
        else
            h->refused = true;
    } else {
        h->keep_agreed = keep > 0;
        if (keep < h->keep_ms)
            h->keep_ms = keep;
    }
}

static void
away_tell(struct holdfast *h)
{
    char line[sizeof(h->reason) + 16];

    (void)snprintf(line, sizeof(line), "* AWAY :%s", h->reason);
    holdfast_notice_say(h, HOLDFAST_AWAY, 0, line);
}

void
holdfast_session_away(struct holdfast *h, const char *reason)
{
    uint64_t now = holdfast_now_ms(h);

    if (h->link == LINK_OPEN && now >= h->opened_ms + CLIENT_STEADY_MS)
        h->rounds = 0;
    else
        h->rounds++;
    holdfast_link_pause(h, reason);
    holdfast_pending_dropped(h);
    holdfast_claims_dropped(h);
    holdfast_watches_dropped(h);
    h->refused = false;
    h->draining = false;
    h->move_ms = UINT64_MAX;
    if (h->away)
        return;
    h->away = true;
    h->away_ms = now;
    away_tell(h);
}

bool
holdfast_session_bye(struct holdfast *h, const struct holdfast_message *message)
{
    static const char *const finals[] = {
        "killed", "quit", "resumed", "protocol", "auth"};
    const char *why = message->word;
    uint64_t keep = 1;

    (void)snprintf(h->reason, sizeof(h->reason), "the broker said BYE %s", why);
    if (h->link == LINK_GREETING && h->peer_left > 0)
        return false;
    /* An earlier broker does not say keep=. While the session is being resumed,
     * keep= is that of the connection's own session. */
    if (h->link == LINK_RESUMING ||
        !holdfast_message_number(message, "keep", &keep))
        for (size_t i = 0; i < sizeof(finals) / sizeof(finals[0]); i++)
            if (strcmp(why, finals[i]) == 0)
                keep = 0;
    if (h->link == LINK_OPEN || h->link == LINK_RESUMING)
        h->final = h->final || keep == 0;
    return !holdfast_session_known(h);
}

/* Leaves a draining broker for another address. */
static void
session_move(struct holdfast *h)
{
    size_t origin = h->peer_origin;

    assert(h->peer_count > 1); /* move_ms needs another address */
    while (h->peers[h->peer_next].origin == origin)
        h->peer_next = (h->peer_next + 1) % h->peer_count;
    holdfast_session_away(h, "the broker drains");
    holdfast_link_connect(h);
}

/* Whether a LOCK or an AWAIT still waits. */
static bool
waits(const struct holdfast *h, uint64_t now_ms)
{
    for (const struct holdfast_pending *pending = h->pending;
         pending != NULL && h->waiting > 0; pending = pending->next)
        if (holdfast_pending_waits(pending) &&
            (pending->wait_ms >= UINT64_MAX - pending->asked_ms ||
                now_ms < pending->asked_ms + pending->wait_ms))
            return true;
    return false;
}

/* Whether nothing needs the session. */
static bool
session_over(const struct holdfast *h, uint64_t now_ms)
{
    if (now_ms < h->away_ms + h->keep_ms || h->watches != NULL)
        return false;
    EACH (holdfast_kept, kept, h->holds)
        if (holdfast_kept_stands(kept))
            return false;
    return !waits(h, now_ms);
}

void
holdfast_session_tick(struct holdfast *h, uint64_t now_ms)
{
    if (h->link == LINK_CLOSED)
        return;
    if (h->link != LINK_OPEN) {
        if (h->away && session_over(h, now_ms))
            holdfast_link_close(h, "no broker serves the session");
        return;
    }
    if (now_ms >= h->move_ms) {
        session_move(h);
        return;
    }
    if (h->away && !holdfast_claims_open(h)) {
        h->away = false;
        holdfast_notice_say(h, HOLDFAST_BACK, 0, "* BACK");
    }
}

uint64_t
holdfast_session_due_ms(const struct holdfast *h)
{
    switch (h->link) {
    case LINK_AWAY:
        return h->retry_ms;
    case LINK_CONNECTING:
    case LINK_SHAKING:
    case LINK_GREETING:
    case LINK_RESUMING:
        return h->connect_deadline_ms;
    case LINK_OPEN:
        return h->move_ms;
    case LINK_CLOSED:
        return UINT64_MAX;
    }
    return UINT64_MAX;
}
