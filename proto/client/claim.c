/*
 * Questions to a broker that goes on with a session. It is asked again to tell
 * of the locks that are watched. It has to confirm the holds: all of them after
 * a move, and each that a LOCK which was put again was granted, since that may
 * have been counted twice.
 *
 * Until the answer a hold is believed as before: to the deadline that the
 * earlier broker's answers gave it, and no longer than that broker may have
 * kept the session.
 */
#include "proto/client/claim.h"
#include "proto/client/drain.h"
#include "proto/client/hold.h"
#include "proto/client/submit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void
holdfast_claims_dropped(struct holdfast *h)
{
    /*
     * That broker has seen the connection stand when it answered what was sent
     * then; it may have seen its end at any time from there on.
     */
    uint64_t kept_until = h->proven_ms + h->keep_ms;

    for (struct holdfast_kept *kept = h->holds; kept != NULL;
         kept = kept->next) {
        kept->claim = CLAIM_NEEDED;
        kept->claim_due_ms = 0;
        if (kept->deadline_ms > kept_until)
            kept->deadline_ms = kept_until;
    }
}

/* The requests about a hold that is gone: nobody else will answer them. */
static void
claim_answer_requests(struct holdfast *h, const struct holdfast_kept *kept)
{
    /* Gone before its deadline, and given back: it was us. */
    bool released =
        holdfast_kept_releasing(kept) && holdfast_now_ms(h) < kept->deadline_ms;

    for (struct holdfast_pending *pending = h->pending; pending != NULL;) {
        struct holdfast_pending *next = pending->next;
        bool unlock = pending->kind == PENDING_UNLOCK;

        if ((unlock || pending->kind == PENDING_RENEW) && pending->parked &&
            holdfast_pending_names(pending, kept->name, kept->owner)) {
            bool good = unlock && released && pending->again;
            holdfast_notice_say(h, good ? HOLDFAST_OK : HOLDFAST_ERR,
                pending->request,
                good ? "- OK count=0"
                     : "- ERR LOST retry=0 :the hold was yours and has ended");
            holdfast_pending_remove(h, pending);
        }
        pending = next;
    }
}

static void
claim_tell_lost(struct holdfast *h, const struct holdfast_kept *kept)
{
    char name[3 * HOLDFAST_NAME_MAX + 1];
    char owner[3 * HOLDFAST_OWNER_MAX + 1];
    char line[sizeof(name) + sizeof(owner) + 80];

    (void)holdfast_encode(kept->name, strlen(kept->name), name, sizeof(name));
    (void)holdfast_encode(
        kept->owner, strlen(kept->owner), owner, sizeof(owner));
    (void)snprintf(line, sizeof(line),
        "* LOST %s fence=%" PRIu64 " reason=away%s%s", name, kept->fence,
        kept->owner[0] != '\0' ? " owner=" : "",
        kept->owner[0] != '\0' ? owner : "");
    holdfast_notice_say(h, HOLDFAST_LOST, kept->request, line);
}

static void
claim_lost(struct holdfast *h, struct holdfast_kept *kept)
{
    /* Events that the user has not seen yet come first, in their order. */
    holdfast_kept_tell(h, kept);
    if (!kept->given_up && !holdfast_kept_releasing(kept))
        claim_tell_lost(h, kept);
    claim_answer_requests(h, kept);
    holdfast_kept_remove(h, kept);
}

/* Whether the OK that waits for `kept` waits for another claim as well. */
static bool
claim_open_beside(const struct holdfast *h, uint64_t request)
{
    for (const struct holdfast_kept *kept = h->holds; kept != NULL;
         kept = kept->next)
        if (kept->confirming == request && kept->claim != CLAIM_NONE)
            return true;
    return false;
}

static void
claim_again(struct holdfast *h, struct holdfast_kept *kept)
{
    uint64_t pause = CLIENT_CLAIM_PAUSE_MS;

    kept->claim = CLAIM_NEEDED;
    kept->claim_due_ms =
        holdfast_now_ms(h) + pause / 2 + holdfast_random(h, pause);
}

static void
claim_confirmed(struct holdfast *h, struct holdfast_kept *kept,
    uint64_t sent_ms, uint64_t ttl_ms)
{
    kept->claim = CLAIM_NONE;
    if (kept->given_up) {
        /* The user gives it back, or does not know any more that it is there */
        if (kept->releases > 0)
            return;
        if (!holdfast_submit_discard(h, kept))
            claim_again(h, kept);
        return;
    }
    holdfast_kept_set(kept, sent_ms, ttl_ms);
    holdfast_kept_ask_by(h, sent_ms + holdfast_kept_pause_ms(h, ttl_ms));
    if (kept->confirming != 0 && !claim_open_beside(h, kept->confirming))
        holdfast_kept_tell(h, kept);
}

void
holdfast_claim_done(struct holdfast *h, const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done)
{
    struct holdfast_kept *kept =
        holdfast_kept_find(h, pending->names, pending->owner);
    uint64_t fence = 0;
    uint64_t ttl;

    if (kept == NULL || kept->claim != CLAIM_ASKED)
        return;
    if (done && holdfast_message_number(message, "fence", &fence) &&
        fence == kept->fence && holdfast_ttl_read(message, &ttl)) {
        claim_confirmed(h, kept, pending->sent_ms, ttl);
    } else if (strcmp(message->word, "LOST") == 0 ||
               strcmp(message->word, "NOTHELD") == 0 ||
               strcmp(message->word, "STALE") == 0) {
        claim_lost(h, kept);
    } else {
        claim_again(h, kept);
        if (strcmp(message->word, "DRAINING") == 0) {
            /* The next broker is asked. */
            kept->claim_due_ms = UINT64_MAX;
            (void)holdfast_drain_refused(
                h, holdfast_pending_of(h, pending->request));
        }
    }
}

/* A hold that the user gave up has been given back, or was gone. */
void
holdfast_claim_discarded(
    struct holdfast *h, const struct holdfast_pending *pending)
{
    struct holdfast_kept *kept =
        holdfast_kept_find(h, pending->names, pending->owner);

    if (kept != NULL && kept->given_up)
        holdfast_kept_remove(h, kept);
}

bool
holdfast_claims_open(const struct holdfast *h)
{
    for (const struct holdfast_kept *kept = h->holds; kept != NULL;
         kept = kept->next)
        if (kept->claim != CLAIM_NONE && holdfast_kept_stands(kept))
            return true;
    return false;
}

/* Asks this broker to tell of what is watched. */
static void
rewatch(struct holdfast *h, uint64_t now_ms)
{
    for (struct holdfast_watched *watched = h->watches; watched != NULL;
         watched = watched->next) {
        if (!watched->needed || now_ms < watched->due_ms)
            continue;
        watched->needed = !holdfast_submit_rewatch(h, watched);
        if (watched->needed)
            watched->due_ms = now_ms + CLIENT_CLAIM_PAUSE_MS;
    }
}

void
holdfast_claims_tick(struct holdfast *h, uint64_t now_ms)
{
    if (h->link != LINK_OPEN || h->generation == 1)
        return;
    for (struct holdfast_kept *kept = h->holds; kept != NULL;
         kept = kept->next) {
        if (kept->claim != CLAIM_NEEDED || now_ms < kept->claim_due_ms)
            continue;
        if (holdfast_submit_claim(h, kept))
            kept->claim = CLAIM_ASKED;
        else
            claim_again(h, kept);
    }
    rewatch(h, now_ms);
}

uint64_t
holdfast_claims_due_ms(const struct holdfast *h)
{
    uint64_t due = UINT64_MAX;

    if (h->link != LINK_OPEN || h->generation == 1)
        return due;
    for (const struct holdfast_kept *kept = h->holds; kept != NULL;
         kept = kept->next)
        if (kept->claim == CLAIM_NEEDED && kept->claim_due_ms < due)
            due = kept->claim_due_ms;
    return due;
}
