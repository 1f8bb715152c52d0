/*
 * The holds of the session, and their deadlines by the answers of the broker.
 *
 * A deadline counts from the sending of the answered request. The sending of a
 * LOCK that waited is long ago. So its deadline counts from proven_ms: the
 * latest request whose answer came before the OK, which the broker wrote later.
 * If that is too long ago too, the OK waits for the answer to a new PING. So a
 * program never starts on a grant that lay in the socket's buffer while the
 * process was stopped.
 */
#include "proto/clients/c/hold.h"
#include "proto/clients/c/link.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_SLACK_MS 2 /* a lease ends that much sooner for its client */

bool
holdfast_kept_releasing(const struct holdfast_kept *kept)
{
    return kept->releases >= kept->count;
}

bool
holdfast_kept_stands(const struct holdfast_kept *kept)
{
    return !kept->given_up && !holdfast_kept_releasing(kept);
}

static bool
kept_named(const struct holdfast_kept *kept, const char *name, size_t len)
{
    return strlen(kept->name) == len && memcmp(kept->name, name, len) == 0;
}

bool
holdfast_kept_is(
    const struct holdfast_kept *kept, const char *name, const char *owner)
{
    return strcmp(kept->name, name) == 0 && strcmp(kept->owner, owner) == 0;
}

struct holdfast_kept *
holdfast_kept_find(const struct holdfast *h, const char *name,
    const char *owner, uint64_t fence)
{
    EACH (holdfast_kept, kept, h->holds)
        if (holdfast_kept_is(kept, name, owner) &&
            (fence == 0 || kept->fence == fence))
            return kept;
    return NULL;
}

/* The other one of a hold and its upgrade, or NULL. */
static struct holdfast_kept *
kept_beside(const struct holdfast *h, const struct holdfast_kept *kept)
{
    EACH (holdfast_kept, other, h->holds)
        if (other->upgrade != kept->upgrade &&
            holdfast_kept_is(other, kept->name, kept->owner))
            return other;
    return NULL;
}

struct holdfast_kept *
holdfast_kept_of(
    const struct holdfast *h, const struct holdfast_pending *pending)
{
    assert(pending->name_count == 1); /* LOCK alone has more */
    return holdfast_kept_find(
        h, pending->names, pending->owner, pending->fence);
}

void
holdfast_kept_tell(struct holdfast *h, struct holdfast_kept *kept)
{
    struct holdfast_notice *notice = NULL;
    uint64_t request = kept->confirming;
    uint64_t deadline = UINT64_MAX;

    if (request == 0)
        return;
    EACH (holdfast_kept, at, h->holds) {
        if (at->confirming != request)
            continue;
        at->confirming = 0;
        if (at->deadline_ms < deadline)
            deadline = at->deadline_ms;
        if (at->deferred != NULL) {
            notice = at->deferred;
            at->deferred = NULL;
        }
    }
    while (notice != NULL) {
        struct holdfast_notice *next = notice->next;

        notice->event.deadline_ms = deadline;
        holdfast_notice_push(h, notice, HOLDFAST_OK, notice->event.request);
        notice = next;
    }
}

void
holdfast_kept_remove(struct holdfast *h, struct holdfast_kept *kept)
{
    struct holdfast_kept **link = &h->holds;

    holdfast_kept_tell(h, kept);
    while (*link != NULL && *link != kept)
        link = &(*link)->next;
    assert(*link == kept);
    assert(kept->deferred == NULL);
    *link = kept->next;
    free(kept);
}

void
holdfast_kept_clear(struct holdfast *h)
{
    while (h->holds != NULL) {
        struct holdfast_kept *kept = h->holds;

        h->holds = kept->next;
        while (kept->deferred != NULL) {
            struct holdfast_notice *notice = kept->deferred;

            kept->deferred = notice->next;
            free(notice);
        }
        free(kept);
    }
}

void
holdfast_kept_ask_by(struct holdfast *h, uint64_t when_ms)
{
    if (when_ms < h->ping_next_ms)
        h->ping_next_ms = when_ms;
}

/* The broker keeps the session from the end of its connection on, which may be
 * soon after the last answer. So a short keep_ms needs frequent questions. */
uint64_t
holdfast_kept_pause_ms(const struct holdfast *h, uint64_t ttl_ms)
{
    uint64_t pause = ttl_ms / 3;

    if (h->keep_ms > 0 && h->keep_ms / 3 < pause)
        pause = h->keep_ms / 3;
    return pause;
}

/* The latest answer counts, even if its deadline is earlier. */
void
holdfast_kept_set(struct holdfast_kept *kept, uint64_t base_ms, uint64_t ttl_ms)
{
    kept->deadline_ms = base_ms + ttl_ms;
    kept->ttl_ms = ttl_ms;
}

bool
holdfast_ttl_read(const struct holdfast_message *message, uint64_t *ttl_ms)
{
    /* So small that a sum with a time cannot overflow. */
    return holdfast_message_number(message, "ttl_ms", ttl_ms) &&
           *ttl_ms < UINT64_MAX / 4;
}

static struct holdfast_kept *
kept_create(struct holdfast *h, const char *name, const char *owner)
{
    struct holdfast_kept *kept = calloc(1, sizeof(*kept));

    if (kept == NULL)
        return NULL;
    (void)snprintf(kept->name, sizeof(kept->name), "%s", name);
    (void)snprintf(kept->owner, sizeof(kept->owner), "%s", owner);
    kept->renew_end_ms = UINT64_MAX;
    kept->next = h->holds;
    h->holds = kept;
    return kept;
}

/* The time that the lease of a RENEW leaves its client; no sum with a time
 * overflows. */
static uint64_t
renew_ttl_ms(const struct holdfast_pending *pending)
{
    uint64_t lease = pending->lease_ms - pending->lease_ms / 100;

    if (lease > UINT64_MAX / 4)
        return UINT64_MAX / 4;
    return lease > LEASE_SLACK_MS ? lease - LEASE_SLACK_MS : 0;
}

/* The RENEW, without an answer, may be carried out. From its sending on no PING
 * tells the deadline of the hold. */
static void
kept_bound(struct holdfast_kept *kept, const struct holdfast_pending *pending)
{
    if (pending->end_ms == UINT64_MAX)
        return;
    kept->leased = true;
    if (pending->end_ms >= kept->renew_end_ms)
        return;
    kept->renew_end_ms = pending->end_ms;
    kept->renew_ttl_ms = renew_ttl_ms(pending);
}

/* The bounds of all RENEWs but `answered`, or NULL. */
static void
kept_bound_all(struct holdfast *h, struct holdfast_kept *kept,
    const struct holdfast_pending *answered)
{
    kept->renew_end_ms = UINT64_MAX;
    EACH (holdfast_pending, other, h->pending)
        if (other != answered && other->kind == PENDING_RENEW &&
            holdfast_kept_of(h, other) == kept)
            kept_bound(kept, other);
}

void
holdfast_kept_renewing(struct holdfast *h, struct holdfast_pending *pending)
{
    struct holdfast_kept *kept = holdfast_kept_of(h, pending);
    uint64_t end = pending->sent_ms + renew_ttl_ms(pending);

    assert(pending->kind == PENDING_RENEW && !pending->parked);
    if (pending->lease_ms == 0)
        return; /* a NOTE */
    /* An earlier sending counts as well. */
    if (end < pending->end_ms)
        pending->end_ms = end;
    if (kept != NULL)
        kept_bound(kept, pending);
}

/*
 * Enters the hold of `name` once more, or for the first time. NULL: no memory.
 */
static struct holdfast_kept *
kept_take(struct holdfast *h, const struct holdfast_pending *pending,
    const char *name, uint64_t fence, bool upgrade)
{
    struct holdfast_kept *kept =
        holdfast_kept_find(h, name, pending->owner, fence);

    if (kept == NULL)
        kept = holdfast_kept_find(h, name, pending->owner, 0);
    if (kept != NULL && kept->fence != fence && kept->upgrade != upgrade)
        kept = kept_beside(h, kept);
    if (kept == NULL)
        kept = kept_create(h, name, pending->owner);
    if (kept == NULL)
        return NULL;
    if (kept->fence != fence) {
        holdfast_kept_tell(h, kept);
        kept->request = pending->request;
        kept->upgrade = upgrade;
        kept->fence = fence;
        kept->count = 0;
        kept->releases = 0;
        kept->granted_ms = holdfast_now_ms(h);
        kept->leased = pending->leased;
        kept->wanted = false;
        kept_bound_all(h, kept, NULL);
    }
    kept->wanted = kept->wanted || pending->wanted;
    kept->given_up = false;
    kept->count++;
    if (pending->again) {
        kept->claim = CLAIM_NEEDED;
        kept->claim_due_ms = 0;
    }
    return kept;
}

/* Corrects the count in the OK of a repeated LOCK, which the broker may have
 * counted twice. The line has a number that is no shorter. */
static void
count_correct(struct holdfast_notice *notice, uint64_t count)
{
    struct holdfast_message *message = &notice->message;
    char digits[24];
    size_t len = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, count);

    for (size_t i = 0; i < message->pair_count; i++) {
        struct holdfast_pair *pair = &message->pairs[i];

        if (strcmp(pair->key, "count") != 0 || pair->len < len)
            continue;
        memcpy(notice->line + (pair->value - notice->line), digits, len + 1);
        pair->len = len;
        return;
    }
}

/* Enters the holds of all names. False: no memory. */
static bool
kept_take_all(struct holdfast *h, const struct holdfast_pending *pending,
    const struct holdfast_notice *notice, const uint64_t *fences,
    uint64_t *count)
{
    struct holdfast_kept *kept = NULL;
    const char *name = pending->names;
    uint64_t told;
    bool upgrade = holdfast_message_value(&notice->message, "upgrade") != NULL;

    *count = UINT64_MAX;
    for (size_t i = 0; i < pending->name_count; i++) {
        kept = kept_take(h, pending, name, fences[i], upgrade);
        if (kept == NULL)
            return false;
        const struct holdfast_kept *other = kept_beside(h, kept);
        uint64_t sum = kept->count + (other != NULL ? other->count : 0);
        if (sum < *count)
            *count = sum;
        name += strlen(name) + 1;
    }
    if (pending->name_count == 1 && !pending->again &&
        kept_beside(h, kept) == NULL &&
        holdfast_message_number(&notice->message, "count", &told) && told > 0)
        kept->count = told;
    return true;
}

/* The holds that confirm `request` now confirm `other`. Returns the OKs that
 * wait, which one of the holds had. */
static struct holdfast_notice *
deferred_join(struct holdfast *h, uint64_t request, uint64_t other)
{
    struct holdfast_notice *first = NULL;

    EACH (holdfast_kept, at, h->holds) {
        if (request == 0 || at->confirming != request)
            continue;
        at->confirming = other;
        if (at->deferred != NULL) {
            first = at->deferred;
            at->deferred = NULL;
        }
    }
    return first;
}

/* Sets the deadlines of all names. */
static void
kept_date_all(struct holdfast *h, const struct holdfast_pending *pending,
    const uint64_t *fences, uint64_t base_ms, uint64_t ttl_ms)
{
    const char *name = pending->names;

    for (size_t i = 0; i < pending->name_count; i++) {
        struct holdfast_kept *kept =
            holdfast_kept_find(h, name, pending->owner, fences[i]);

        assert(kept != NULL); /* by kept_take_all() */
        holdfast_kept_set(kept, base_ms, ttl_ms);
        name += strlen(name) + 1;
    }
}

/* The OK waits for the confirmation of each name, after the OKs that already
 * wait. */
static void
kept_defer_all(struct holdfast *h, const struct holdfast_pending *pending,
    const uint64_t *fences, struct holdfast_notice *notice)
{
    const char *name = pending->names;
    struct holdfast_notice *first = NULL;
    struct holdfast_notice **last = &first;

    for (size_t i = 0; i < pending->name_count; i++) {
        struct holdfast_kept *kept =
            holdfast_kept_find(h, name, pending->owner, fences[i]);

        assert(kept != NULL); /* by kept_take_all() */
        *last = deferred_join(h, kept->confirming, pending->request);
        while (*last != NULL)
            last = &(*last)->next;
        kept->confirming = pending->request;
        name += strlen(name) + 1;
    }
    notice->event.request = pending->request;
    *last = notice;
    holdfast_kept_find(h, pending->names, pending->owner, fences[0])->deferred =
        first;
}

bool
holdfast_kept_grant(struct holdfast *h, const struct holdfast_pending *pending,
    struct holdfast_notice *notice)
{
    uint64_t base =
        pending->sent_ms > h->proven_ms ? pending->sent_ms : h->proven_ms;
    uint64_t now = holdfast_now_ms(h);
    const char *list = holdfast_message_value(&notice->message, "fence");
    uint64_t fences[HOLDFAST_NAMES_MAX];
    uint64_t ttl, count;

    assert(
        pending->name_count > 0 && pending->name_count <= HOLDFAST_NAMES_MAX);
    if (list == NULL ||
        holdfast_numbers(list, fences, HOLDFAST_NAMES_MAX) !=
            pending->name_count ||
        !holdfast_ttl_read(&notice->message, &ttl)) {
        holdfast_link_close(h, "an OK of the broker lacks fence or ttl_ms");
        return true;
    }
    if (!kept_take_all(h, pending, notice, fences, &count)) {
        holdfast_link_close(h, "out of memory");
        return true;
    }
    bool fresh = now + ttl / 2 <= base + ttl;
    bool confirm = !fresh || pending->again;
    kept_date_all(h, pending, fences, base, ttl);
    holdfast_kept_ask_by(h, base + holdfast_kept_pause_ms(h, ttl));
    notice->event.deadline_ms = base + ttl;
    if (pending->again)
        count_correct(notice, count);
    if (!confirm)
        return true;
    kept_defer_all(h, pending, fences, notice);
    if (!pending->again)
        holdfast_kept_ask_by(h, now);
    return false;
}

/* Whether the hold has ended although the UNLOCK got an ERR. */
static bool
unlock_ended(
    const struct holdfast_kept *kept, const struct holdfast_message *message)
{
    if (strcmp(message->word, "NOTHELD") == 0 ||
        strcmp(message->word, "LOST") == 0)
        return true;
    /* The broker continues the release, and does not renew the hold. */
    return holdfast_kept_releasing(kept) &&
           (strcmp(message->word, "INDOUBT") == 0 ||
               strcmp(message->word, "INTERNAL") == 0);
}

void
holdfast_kept_released(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done)
{
    struct holdfast_kept *kept = holdfast_kept_of(h, pending);
    uint64_t count = 0;

    if (kept == NULL)
        return;
    bool ended = !done && unlock_ended(kept, message);
    if (kept->releases > 0)
        kept->releases--;
    if (done) {
        (void)holdfast_message_number(message, "count", &count);
        /* It is the sum of both, as far as both stand. */
        if (kept_beside(h, kept) != NULL && count >= kept->count)
            count = kept->count - 1;
        kept->count = count;
    } else if (ended) {
        kept->count = 0;
    } else {
        holdfast_kept_ask_by(h, holdfast_now_ms(h));
    }
    if (kept->count == 0)
        holdfast_kept_remove(h, kept);
}

void
holdfast_kept_parted(struct holdfast *h, const struct holdfast_pending *pending,
    const struct holdfast_message *message)
{
    struct holdfast_kept *kept = holdfast_kept_of(h, pending);
    uint64_t count = 1;

    (void)holdfast_message_number(message, "count", &count);
    if (kept != NULL && count == 0)
        holdfast_kept_remove(h, kept);
}

uint64_t
holdfast_kept_deadline_ms(const struct holdfast_kept *kept)
{
    return kept->renew_end_ms < kept->deadline_ms ? kept->renew_end_ms
                                                  : kept->deadline_ms;
}

/* The RENEW failed: the hold may have the new end, if that is sooner. */
static void
renew_failed(struct holdfast_kept *kept, const struct holdfast_pending *pending,
    const char *code)
{
    if (strcmp(code, "UNAVAILABLE") != 0 && strcmp(code, "INDOUBT") != 0 &&
        strcmp(code, "INTERNAL") != 0)
        return;
    if (pending->end_ms >= kept->deadline_ms)
        return;
    kept->deadline_ms = pending->end_ms;
    kept->ttl_ms = renew_ttl_ms(pending);
}

void
holdfast_kept_renewed(struct holdfast *h,
    const struct holdfast_pending *pending,
    const struct holdfast_message *message, bool done)
{
    struct holdfast_kept *kept = holdfast_kept_of(h, pending);
    uint64_t ttl;

    if (kept == NULL)
        return;
    if (kept->renew_end_ms != UINT64_MAX)
        kept_bound_all(h, kept, pending);
    if (!done)
        renew_failed(kept, pending, message->word);
    if (!done || !holdfast_ttl_read(message, &ttl))
        return;
    holdfast_kept_set(kept, pending->sent_ms, ttl);
    holdfast_kept_ask_by(h, pending->sent_ms + holdfast_kept_pause_ms(h, ttl));
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
            holdfast_kept_remove(h, kept);
        }
        kept = next;
    }
}

uint64_t
holdfast_deadline_ms(const struct holdfast *h, const struct holdfast_hold *hold)
{
    const struct holdfast_kept *kept =
        holdfast_kept_find(h, hold->name, hold->owner, hold->fence);

    if (h->link == LINK_CLOSED || kept == NULL || !holdfast_kept_stands(kept))
        return 0;
    return holdfast_kept_deadline_ms(kept);
}

void
holdfast_set_margin(struct holdfast *h, uint64_t margin_ms)
{
    h->margin_ms = margin_ms;
}
