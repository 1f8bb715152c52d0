/*
 * PINGs to the broker: when to send them, the deadlines that their answers
 * give, and the deadlines that pass without an answer.
 *
 * In a kept session a hold stays in the list after its deadline, as given up,
 * until it can be released: the broker may still renew it.
 *
 * The answer to PING has the least ttl of the holds that the broker renews; an
 * older broker counts all holds. If a hold has a lease, the library sends HELD
 * instead, whose answer has the ttl of each hold.
 */
#include "proto/clients/c/hold.h"
#include "proto/clients/c/link.h"
#include "proto/clients/c/session.h"
#include "proto/clients/c/submit.h"

#include <assert.h>
#include <string.h>

#define MARGIN_MIN_MS 20
#define MARGIN_MAX_MS 500
#define MISSING_MS    1000 /* to the next PING after an answer without ttl */

static uint64_t
before(const struct holdfast *h, uint64_t deadline_ms, uint64_t ttl_ms)
{
    uint64_t margin = h->margin_ms;

    if (margin == UINT64_MAX) {
        margin = ttl_ms / 10;
        margin = margin < MARGIN_MIN_MS ? MARGIN_MIN_MS : margin;
        margin = margin > MARGIN_MAX_MS ? MARGIN_MAX_MS : margin;
    }
    return deadline_ms > margin ? deadline_ms - margin : 0;
}

/* When to report the deadline. */
static uint64_t
kept_due(const struct holdfast *h, const struct holdfast_kept *kept)
{
    uint64_t due = before(h, kept->deadline_ms, kept->ttl_ms);
    uint64_t renewed = before(h, kept->renew_end_ms, kept->renew_ttl_ms);

    return renewed < due ? renewed : due;
}

/* Whether at least half of the ttl is left. */
static bool
kept_fresh(const struct holdfast_kept *kept, uint64_t now_ms, uint64_t ttl_ms)
{
    return now_ms + ttl_ms / 2 <= kept->deadline_ms;
}

void
holdfast_keepalive_surveyed(struct holdfast *h,
    struct holdfast_pending *pending, const struct holdfast_message *message)
{
    const char *name = holdfast_message_value(message, "name");
    const char *owner = holdfast_message_value(message, "owner");
    uint64_t fence, ttl;

    if (name == NULL || !holdfast_ttl_read(message, &ttl) ||
        !holdfast_message_number(message, "fence", &fence))
        return;
    struct holdfast_kept *kept =
        holdfast_kept_find(h, name, owner != NULL ? owner : "", fence);
    if (kept != NULL && kept->claim == CLAIM_NONE) {
        holdfast_kept_set(kept, pending->sent_ms, ttl);
        if (ttl < pending->ttl_ms)
            pending->ttl_ms = ttl;
    }
}

/* Reports the OKs that waited for this answer. False: one still waits. */
static bool
deferred_tell(
    struct holdfast *h, const struct holdfast_pending *pending, uint64_t now_ms)
{
    bool all = true;

    EACH (holdfast_kept, kept, h->holds) {
        if (kept->deferred == NULL || kept->claim != CLAIM_NONE)
            continue; /* the answer to its CLAIM reports it */
        if (pending->sent_ms >= kept->granted_ms ||
            kept_fresh(kept, now_ms, kept->ttl_ms))
            holdfast_kept_tell(h, kept);
        else
            all = false;
    }
    return all;
}

void
holdfast_keepalive_confirmed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message)
{
    uint64_t now = holdfast_now_ms(h);
    uint64_t ttl = pending->ttl_ms;

    assert(h->ping_outstanding);
    h->ping_outstanding = false;
    if (message == NULL ||
        (pending->kind == PENDING_SURVEY ? ttl == UINT64_MAX
                                         : !holdfast_ttl_read(message, &ttl))) {
        h->ping_next_ms =
            now + (h->holds != NULL ? MISSING_MS : CLIENT_WAITING_MS);
        return;
    }
    uint64_t pause = holdfast_kept_pause_ms(h, ttl);
    if (pause < CLIENT_PING_MIN_MS)
        pause = CLIENT_PING_MIN_MS;
    h->ping_next_ms = pending->sent_ms + pause;
    for (struct holdfast_kept *kept = h->holds;
         kept != NULL && pending->kind == PENDING_KEEPALIVE; kept = kept->next)
        if (kept->claim == CLAIM_NONE && !kept->leased)
            holdfast_kept_set(kept, pending->sent_ms, ttl);
    if (!deferred_tell(h, pending, now))
        holdfast_kept_ask_by(h, now);
}

/* Reports a deadline. False: no memory, and the connection is closed. */
static bool
deadline_tell(struct holdfast *h, struct holdfast_kept *kept)
{
    size_t len = strlen(kept->name);
    struct holdfast_notice *notice = holdfast_notice_create(kept->name, len);
    uint64_t request = kept->request;

    if (notice == NULL) {
        holdfast_link_close(h, "out of memory");
        return false;
    }
    notice->message.word = notice->line;
    notice->message.word_len = len;
    notice->message.text = "";
    notice->event.fence = kept->fence;
    notice->event.ttl_ms = kept->ttl_ms;
    notice->event.deadline_ms = holdfast_kept_deadline_ms(kept);
    if (h->keep_ms > 0) {
        holdfast_kept_tell(h, kept);
        kept->given_up = true;
    } else {
        holdfast_kept_remove(h, kept);
    }
    holdfast_notice_push(h, notice, HOLDFAST_DEADLINE, request);
    return true;
}

/* Whether a PING is needed. *survey: it must be a HELD. */
static bool
ping_wanted(const struct holdfast *h, bool *survey)
{
    bool holds = false;
    bool leased = false;

    EACH (holdfast_kept, kept, h->holds) {
        if (holdfast_kept_stands(kept) && kept->claim == CLAIM_NONE) {
            holds = true;
            leased = leased || kept->leased;
        }
    }
    *survey = leased;
    return holds || h->waiting > 0;
}

/* Whether the deadline counts. */
static bool
deadline_counts(
    const struct holdfast *h, const struct holdfast_kept *kept, uint64_t now_ms)
{
    if (!holdfast_kept_stands(kept))
        return false;
    /* A hold that waits for its confirmation has none, unless the confirmation
     * cannot come. */
    return kept->confirming == 0 ||
           (h->away && now_ms >= holdfast_kept_deadline_ms(kept));
}

/* Reports the deadlines that are due. False: as deadline_tell(). */
static bool
deadlines_tell(struct holdfast *h, uint64_t now_ms)
{
    for (struct holdfast_kept *kept = h->holds; kept != NULL;) {
        struct holdfast_kept *next = kept->next;

        if (deadline_counts(h, kept, now_ms) && now_ms >= kept_due(h, kept) &&
            !deadline_tell(h, kept))
            return false;
        kept = next;
    }
    return true;
}

/* How long the broker may take to answer a PING. */
static uint64_t
silence_ms(const struct holdfast *h)
{
    uint64_t silence = UINT64_MAX;

    if (!holdfast_session_known(h))
        return CLIENT_SILENCE_MS;
    /* The time must suffice to reach another broker. */
    EACH (holdfast_kept, kept, h->holds)
        if (holdfast_kept_stands(kept) && kept->ttl_ms / 4 < silence)
            silence = kept->ttl_ms / 4;
    if (silence < CLIENT_KEPT_SILENCE_MIN_MS)
        return CLIENT_KEPT_SILENCE_MIN_MS;
    return silence < CLIENT_KEPT_SILENCE_MS ? silence : CLIENT_KEPT_SILENCE_MS;
}

void
holdfast_keepalive_tick(struct holdfast *h, uint64_t now_ms)
{
    bool survey;

    if (h->link == LINK_CLOSED)
        return;
    if (!deadlines_tell(h, now_ms) || h->link != LINK_OPEN)
        return;
    if (h->ping_outstanding) {
        if (now_ms >= h->ping_sent_ms + silence_ms(h))
            holdfast_link_lost(h, "the broker is silent");
        return;
    }
    if (!ping_wanted(h, &survey)) {
        h->ping_next_ms = UINT64_MAX;
        return;
    }
    if (now_ms < h->ping_next_ms)
        return;
    /* The next try, if the output has no room now. */
    h->ping_next_ms = now_ms + CLIENT_PING_MIN_MS;
    if (holdfast_submit_keepalive(
            h, survey ? PENDING_SURVEY : PENDING_KEEPALIVE)) {
        h->ping_outstanding = true;
        h->ping_sent_ms = now_ms;
    }
}

static uint64_t
deadlines_due_ms(const struct holdfast *h)
{
    uint64_t due = UINT64_MAX;

    EACH (holdfast_kept, kept, h->holds) {
        uint64_t own = kept_due(h, kept);

        if (!holdfast_kept_stands(kept))
            continue;
        if (kept->confirming != 0)
            own = h->away ? holdfast_kept_deadline_ms(kept) : UINT64_MAX;
        if (own < due)
            due = own;
    }
    return due;
}

uint64_t
holdfast_keepalive_due_ms(const struct holdfast *h)
{
    uint64_t due = deadlines_due_ms(h);
    bool survey;

    if (h->link != LINK_OPEN)
        return due;
    if (h->ping_outstanding) {
        uint64_t silence = h->ping_sent_ms + silence_ms(h);
        return silence < due ? silence : due;
    }
    if (ping_wanted(h, &survey) && h->ping_next_ms < due)
        due = h->ping_next_ms;
    return due;
}
