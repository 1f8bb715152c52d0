/*
 * Claims of holds, and watches, at a broker that resumes the session. After a
 * move the broker must confirm all holds. It must also confirm each hold that a
 * repeated LOCK was granted, since the LOCK may count twice.
 *
 * Until the answer the old deadline of a hold counts, but not beyond the time
 * that the earlier broker may have kept the session.
 */
#include "proto/clients/c/hold.h"
#include "proto/clients/c/session.h"
#include "proto/clients/c/submit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void
holdfast_claims_dropped(struct holdfast *h)
{
    /* The broker may have seen the end of the connection at any time after the
     * last answered question was sent. */
    uint64_t kept_until = h->proven_ms + h->keep_ms;

    EACH (holdfast_kept, kept, h->holds) {
        kept->claim = CLAIM_NEEDED;
        kept->claim_due_ms = 0;
        if (kept->deadline_ms > kept_until)
            kept->deadline_ms = kept_until;
    }
}

/* Answers the parked requests about a hold that has ended, since no broker
 * will. */
static void
claim_answer_requests(struct holdfast *h, const struct holdfast_kept *kept)
{
    /* The UNLOCK ended the hold, as its deadline had not passed. */
    bool released = holdfast_kept_releasing(kept) &&
                    holdfast_now_ms(h) < holdfast_kept_deadline_ms(kept);

    for (struct holdfast_pending *pending = h->pending; pending != NULL;) {
        struct holdfast_pending *next = pending->next;
        bool unlock = pending->kind == PENDING_UNLOCK;

        if ((unlock || pending->kind == PENDING_PART ||
                pending->kind == PENDING_RENEW) &&
            pending->parked && holdfast_kept_of(h, pending) == kept) {
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

/* Reports the loss of a hold. */
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
    /* The OKs that wait come first, in their order. */
    holdfast_kept_tell(h, kept);
    if (!kept->given_up && !holdfast_kept_releasing(kept))
        claim_tell_lost(h, kept);
    claim_answer_requests(h, kept);
    holdfast_kept_remove(h, kept);
}

/* Whether the OK of `request` waits for another claim. */
static bool
claim_open_beside(const struct holdfast *h, uint64_t request)
{
    EACH (holdfast_kept, kept, h->holds)
        if (kept->confirming == request && kept->claim != CLAIM_NONE)
            return true;
    return false;
}

/* Sends the CLAIM again after a pause. */
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
        /* The program unlocks the hold, or has given it up. */
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
    struct holdfast_kept *kept = holdfast_kept_of(h, pending);
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
            kept->claim_due_ms = UINT64_MAX; /* at the next broker */
            (void)holdfast_drain_refused(
                h, holdfast_pending_of(h, pending->request));
        }
    }
}

void
holdfast_claim_discarded(
    struct holdfast *h, const struct holdfast_pending *pending)
{
    struct holdfast_kept *kept = holdfast_kept_of(h, pending);

    if (kept != NULL && kept->given_up)
        holdfast_kept_remove(h, kept);
}

bool
holdfast_claims_open(const struct holdfast *h)
{
    EACH (holdfast_kept, kept, h->holds)
        if (kept->claim != CLAIM_NONE && holdfast_kept_stands(kept))
            return true;
    return false;
}

/* Sends the WATCHes that are due. */
static void
rewatch(struct holdfast *h, uint64_t now_ms)
{
    EACH (holdfast_watched, watched, h->watches) {
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
    EACH (holdfast_kept, kept, h->holds) {
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
    EACH (holdfast_kept, kept, h->holds)
        if (kept->claim == CLAIM_NEEDED && kept->claim_due_ms < due)
            due = kept->claim_due_ms;
    return due;
}
