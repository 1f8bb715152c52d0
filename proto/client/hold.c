/*
 * What the session holds, until when that can be trusted, and when to ask the
 * broker again.
 *
 * A deadline counts from the sending of the request that the answer belongs to.
 * For a LOCK that had to wait, that sending is long ago; there it counts from
 * the latest sending that the broker is known to have seen before it wrote the
 * OK (proven_ms: its answer came earlier on the same connection). Where even
 * that is too long ago, the OK is kept back until a PING that is sent now has
 * been answered, so a program never starts on a grant that lay in a socket's
 * buffer while its process was stopped.
 *
 * PING tells the least of all holds. So where there are several, one of them
 * with a lease that runs out, HELD is asked instead, which tells each its own.
 */
#include "proto/client/client.h"

#include <stdlib.h>
#include <string.h>

#define MARGIN_MIN_MS 20
#define MARGIN_MAX_MS 500
#define MISSING_MS    1000 /* until asking again where the ttl was missing */

static bool
kept_releasing(const struct holdfast_kept *kept)
{
    return kept->releases >= kept->count;
}

/* When its deadline is to be told. */
static uint64_t
kept_due(const struct holdfast *h, const struct holdfast_kept *kept)
{
    uint64_t margin = h->margin_ms;

    if (margin == UINT64_MAX) {
        margin = kept->ttl_ms / 10;
        margin = margin < MARGIN_MIN_MS ? MARGIN_MIN_MS : margin;
        margin = margin > MARGIN_MAX_MS ? MARGIN_MAX_MS : margin;
    }
    return kept->deadline_ms > margin ? kept->deadline_ms - margin : 0;
}

static bool
kept_named(const struct holdfast_kept *kept, const char *name, size_t len)
{
    return strlen(kept->name) == len && memcmp(kept->name, name, len) == 0;
}

struct holdfast_kept *
holdfast_kept_find(
    const struct holdfast *h, const char *name, const char *owner)
{
    for (struct holdfast_kept *kept = h->holds; kept != NULL; kept = kept->next)
        if (strcmp(kept->name, name) == 0 && strcmp(kept->owner, owner) == 0)
            return kept;
    return NULL;
}

/* An OK that was kept back goes out before whatever ended its hold. */
static void
kept_tell(struct holdfast *h, struct holdfast_kept *kept)
{
    if (kept->deferred == NULL)
        return;
    kept->deferred->event.deadline_ms = kept->deadline_ms;
    holdfast_notice_push(
        h, kept->deferred, HOLDFAST_OK, kept->deferred->event.request);
    kept->deferred = NULL;
}

static void
kept_remove(struct holdfast *h, struct holdfast_kept *kept)
{
    struct holdfast_kept **link = &h->holds;

    while (*link != kept)
        link = &(*link)->next;
    *link = kept->next;
    kept_tell(h, kept);
    free(kept);
}

void
holdfast_kept_clear(struct holdfast *h)
{
    while (h->holds != NULL) {
        struct holdfast_kept *kept = h->holds;

        h->holds = kept->next;
        free(kept->deferred);
        free(kept);
    }
}

/* Asks the broker no later than `when_ms`. */
static void
ping_by(struct holdfast *h, uint64_t when_ms)
{
    if (when_ms < h->ping_next_ms)
        h->ping_next_ms = when_ms;
}

/* The latest word counts, also where its end is sooner. */
static void
kept_set(struct holdfast_kept *kept, uint64_t base_ms, uint64_t ttl_ms)
{
    kept->deadline_ms = base_ms + ttl_ms;
    kept->ttl_ms = ttl_ms;
}

static bool
ttl_read(const struct holdfast_message *message, uint64_t *ttl_ms)
{
    /* So far below the end that sums with a time of the clock cannot wrap. */
    return holdfast_message_number(message, "ttl_ms", ttl_ms) &&
           *ttl_ms < UINT64_MAX / 4;
}

static struct holdfast_kept *
kept_create(struct holdfast *h, const struct holdfast_pending *pending)
{
    struct holdfast_kept *kept = calloc(1, sizeof(*kept));

    if (kept == NULL)
        return NULL;
    memcpy(kept->name, pending->name, sizeof(kept->name));
    memcpy(kept->owner, pending->owner, sizeof(kept->owner));
    kept->next = h->holds;
    h->holds = kept;
    return kept;
}

/* Whether half of what was promised is still to come. */
static bool
kept_fresh(const struct holdfast_kept *kept, uint64_t now_ms, uint64_t ttl_ms)
{
    return now_ms + ttl_ms / 2 <= kept->deadline_ms;
}

bool
holdfast_kept_grant(struct holdfast *h, const struct holdfast_pending *pending,
    struct holdfast_notice *notice)
{
    uint64_t base =
        pending->sent_ms > h->proven_ms ? pending->sent_ms : h->proven_ms;
    uint64_t now = holdfast_now_ms(h);
    uint64_t fence, ttl, count;

    if (!holdfast_message_number(&notice->message, "fence", &fence) ||
        !ttl_read(&notice->message, &ttl)) {
        holdfast_link_close(h, "an OK of the broker lacks fence or ttl_ms");
        return true;
    }
    struct holdfast_kept *kept =
        holdfast_kept_find(h, pending->name, pending->owner);
    if (kept == NULL)
        kept = kept_create(h, pending);
    if (kept == NULL) {
        holdfast_link_close(h, "out of memory");
        return true;
    }
    if (kept->fence != fence) {
        kept_tell(h, kept);
        kept->request = pending->request;
        kept->fence = fence;
        kept->releases = 0;
        kept->granted_ms = now;
        kept->leased = pending->leased;
    }
    if (!holdfast_message_number(&notice->message, "count", &count) ||
        count == 0)
        count = 1;
    kept->count = count;
    kept_set(kept, base, ttl);
    ping_by(h, base + ttl / 3);
    notice->event.deadline_ms = kept->deadline_ms;
    if (kept_fresh(kept, now, ttl) || kept->deferred != NULL)
        return true;
    notice->event.request = pending->request;
    kept->deferred = notice;
    ping_by(h, now);
    return false;
}

void
holdfast_kept_released(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done)
{
    struct holdfast_kept *kept =
        holdfast_kept_find(h, pending->name, pending->owner);
    uint64_t count = 0;

    if (kept == NULL)
        return;
    if (kept->releases > 0)
        kept->releases--;
    if (done) {
        (void)holdfast_message_number(message, "count", &count);
        kept->count = count;
    } else if (strcmp(message->word, "NOTHELD") == 0 ||
               strcmp(message->word, "LOST") == 0) {
        kept->count = 0;
    } else {
        ping_by(h, holdfast_now_ms(h));
    }
    if (kept->count == 0)
        kept_remove(h, kept);
}

void
holdfast_kept_renewed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message)
{
    struct holdfast_kept *kept =
        holdfast_kept_find(h, pending->name, pending->owner);
    uint64_t ttl;

    if (kept == NULL || !ttl_read(message, &ttl))
        return;
    kept_set(kept, pending->sent_ms, ttl);
    ping_by(h, pending->sent_ms + ttl / 3);
}

void
holdfast_kept_lost(struct holdfast *h, const struct holdfast_message *message,
    uint64_t *request)
{
    struct holdfast_kept *kept = h->holds;
    uint64_t fence = 0;

    (void)holdfast_message_number(message, "fence", &fence);
    while (kept != NULL) {
        struct holdfast_kept *next = kept->next;

        if (kept_named(kept, message->word, message->word_len) &&
            (fence == 0 || fence == kept->fence)) {
            *request = kept->request;
            kept_remove(h, kept);
        }
        kept = next;
    }
}

/* An ITEM of the library's HELD. */
void
holdfast_kept_surveyed(struct holdfast *h, struct holdfast_pending *pending,
    const struct holdfast_message *message)
{
    const char *name = holdfast_message_value(message, "name");
    const char *owner = holdfast_message_value(message, "owner");
    uint64_t fence, ttl;

    if (name == NULL || !ttl_read(message, &ttl) ||
        !holdfast_message_number(message, "fence", &fence))
        return;
    struct holdfast_kept *kept =
        holdfast_kept_find(h, name, owner != NULL ? owner : "");
    if (kept != NULL && kept->fence == fence) {
        kept_set(kept, pending->sent_ms, ttl);
        if (ttl < pending->ttl_ms)
            pending->ttl_ms = ttl;
    }
}

/* Tells the OKs that waited for this answer; false: one still waits. */
static bool
deferred_tell(
    struct holdfast *h, const struct holdfast_pending *pending, uint64_t now_ms)
{
    bool all = true;

    for (struct holdfast_kept *kept = h->holds; kept != NULL; kept = kept->next)
        if (pending->sent_ms >= kept->granted_ms ||
            kept_fresh(kept, now_ms, kept->ttl_ms))
            kept_tell(h, kept);
        else if (kept->deferred != NULL)
            all = false;
    return all;
}

/*
 * The final answer to the library's PING or HELD; `message` is NULL where it
 * was an ERR.
 */
void
holdfast_kept_confirmed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message)
{
    uint64_t now = holdfast_now_ms(h);
    uint64_t ttl = pending->ttl_ms;

    h->ping_outstanding = false;
    if (message == NULL ||
        (pending->kind == PENDING_SURVEY ? ttl == UINT64_MAX
                                         : !ttl_read(message, &ttl))) {
        h->ping_next_ms =
            now + (h->holds != NULL ? MISSING_MS : CLIENT_WAITING_MS);
        return;
    }
    uint64_t pause = ttl / 3;
    if (pause < CLIENT_PING_MIN_MS)
        pause = CLIENT_PING_MIN_MS;
    h->ping_next_ms = pending->sent_ms + pause;
    for (struct holdfast_kept *kept = h->holds;
         kept != NULL && pending->kind == PENDING_KEEPALIVE; kept = kept->next)
        kept_set(kept, pending->sent_ms, ttl);
    if (!deferred_tell(h, pending, now))
        ping_by(h, now);
}

/* False: out of memory, and the connection is closed for it. */
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
    notice->event.deadline_ms = kept->deadline_ms;
    kept_remove(h, kept);
    holdfast_notice_push(h, notice, HOLDFAST_DEADLINE, request);
    return true;
}

/* Whether there is something to ask the broker about. */
static bool
ping_wanted(const struct holdfast *h, bool *survey)
{
    size_t holds = 0;
    bool leased = false;

    for (const struct holdfast_kept *kept = h->holds; kept != NULL;
         kept = kept->next) {
        if (!kept_releasing(kept)) {
            holds++;
            leased = leased || kept->leased;
        }
    }
    *survey = holds > 1 && leased;
    return holds > 0 || h->waiting > 0;
}

void
holdfast_kept_tick(struct holdfast *h, uint64_t now_ms)
{
    bool survey;

    if (h->link != LINK_OPEN)
        return;
    for (struct holdfast_kept *kept = h->holds; kept != NULL;) {
        struct holdfast_kept *next = kept->next;

        if (!kept_releasing(kept) && kept->deferred == NULL &&
            now_ms >= kept_due(h, kept) && !deadline_tell(h, kept))
            return;
        kept = next;
    }
    if (h->ping_outstanding) {
        if (now_ms >= h->ping_sent_ms + CLIENT_SILENCE_MS)
            holdfast_link_close(h, "the broker is silent");
        return;
    }
    if (!ping_wanted(h, &survey)) {
        h->ping_next_ms = UINT64_MAX;
        return;
    }
    if (now_ms < h->ping_next_ms)
        return;
    /* Where it cannot be queued now: */
    h->ping_next_ms = now_ms + CLIENT_PING_MIN_MS;
    if (holdfast_submit_keepalive(
            h, survey ? PENDING_SURVEY : PENDING_KEEPALIVE)) {
        h->ping_outstanding = true;
        h->ping_sent_ms = now_ms;
    }
}

uint64_t
holdfast_kept_due_ms(const struct holdfast *h)
{
    uint64_t due = UINT64_MAX;
    bool survey;

    if (h->link != LINK_OPEN)
        return due;
    for (const struct holdfast_kept *kept = h->holds; kept != NULL;
         kept = kept->next)
        if (!kept_releasing(kept) && kept->deferred == NULL &&
            kept_due(h, kept) < due)
            due = kept_due(h, kept);
    if (h->ping_outstanding) {
        uint64_t silence = h->ping_sent_ms + CLIENT_SILENCE_MS;
        return silence < due ? silence : due;
    }
    if (ping_wanted(h, &survey) && h->ping_next_ms < due)
        due = h->ping_next_ms;
    return due;
}

uint64_t
holdfast_deadline_ms(const struct holdfast *h, const struct holdfast_hold *hold)
{
    const struct holdfast_kept *kept =
        holdfast_kept_find(h, hold->name, hold->owner);

    if (kept == NULL || kept->fence != hold->fence || kept_releasing(kept))
        return 0;
    return kept->deadline_ms;
}

void
holdfast_set_margin(struct holdfast *h, uint64_t margin_ms)
{
    h->margin_ms = margin_ms;
}
