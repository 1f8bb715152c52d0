/*
 * Requests to lines, and into the output. A line is first written without its
 * tag, so that a bad argument makes no request. A request keeps this line, to
 * send it on another connection too.
 *
 * A request is parked if it cannot be sent yet:
 *
 * - no broker serves the session;
 * - the broker drains;
 * - an earlier request on the same lock and owner is not settled: a claim, or a
 *   repeated LOCK. So requests on one lock and owner stay in their order.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/submit.h"
#include "proto/clients/c/hold.h"
#include "proto/clients/c/link.h"
#include "proto/clients/c/pending.h"
#include "proto/clients/c/session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static void line_add(struct holdfast_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void
line_add(struct holdfast_line *line, const char *format, ...)
{
    size_t room = sizeof(line->bytes) - line->len;
    va_list arguments;

    va_start(arguments, format);
    int len = vsnprintf(line->bytes + line->len, room, format, arguments);
    va_end(arguments);
    if (len < 0 || (size_t)len >= room) {
        line->bad = true;
        return;
    }
    line->len += (size_t)len;
}

/* Adds `before`, and `word` of 1 to `max` bytes. */
static void
line_add_word(struct holdfast_line *line, const char *before, const char *word,
    size_t max)
{
    size_t len = strlen(word);

    if (len == 0 || len > max) {
        line->bad = true;
        return;
    }
    line_add(line, "%s", before);
    size_t written = holdfast_encode(
        word, len, line->bytes + line->len, sizeof(line->bytes) - line->len);
    if (written == 0)
        line->bad = true;
    line->len += written;
}

/* Begins a line with `verb`, and the name of a lock unless it is NULL. */
static void
line_begin(struct holdfast_line *line, const char *verb, const char *name)
{
    line->len = 0;
    line->wait_at = 0;
    line->wait_ms = HOLDFAST_FOREVER;
    line->bad = false;
    line_add(line, "%s", verb);
    if (name != NULL)
        line_add_word(line, " ", name, HOLDFAST_NAME_MAX);
}

static void
line_add_owner(struct holdfast_line *line, const char *owner)
{
    if (owner != NULL)
        line_add_word(line, " owner=", owner, HOLDFAST_OWNER_MAX);
}

/* The hold that the line is about. Fence 0: the owner's, whichever it is. */
static void
line_add_hold(struct holdfast_line *line, uint64_t fence, const char *owner)
{
    if (fence > 0)
        line_add(line, " fence=%" PRIu64, fence);
    line_add_owner(line, owner);
}

/* Composes the line to send. Returns its length; 0: it is too long. */
static size_t
line_compose(const struct holdfast *h, char *out, size_t out_bytes,
    uint64_t request, const char *text, size_t text_len, size_t wait_at,
    uint64_t wait_ms)
{
    char wait[32] = "";

    assert(wait_at <= text_len);
    if (wait_ms != HOLDFAST_FOREVER)
        (void)snprintf(wait, sizeof(wait), " wait=%" PRIu64, wait_ms);
    int len = snprintf(out, out_bytes, "%" PRIu64 " %.*s%s%.*s\n", request,
        (int)wait_at, text, wait, (int)(text_len - wait_at), text + wait_at);
    if (len < 0 || (size_t)len > h->line_max || (size_t)len >= out_bytes)
        return 0;
    return (size_t)len;
}

/* The rest of the wait of a LOCK; at least 1, since 0 is no wait at all. */
static uint64_t
wait_left(const struct holdfast_pending *pending, uint64_t now_ms)
{
    uint64_t passed = now_ms - pending->asked_ms;

    if (pending->wait_ms == HOLDFAST_FOREVER || pending->wait_ms == 0)
        return pending->wait_ms;
    return passed < pending->wait_ms ? pending->wait_ms - passed : 1;
}

static bool
kind_of_lock(enum holdfast_pending_kind kind)
{
    return kind == PENDING_LOCK || kind == PENDING_UNLOCK ||
           kind == PENDING_PART || kind == PENDING_RENEW;
}

/* Whether a claim or a request of this name and owner, before `end`, is not
 * settled. */
static bool
name_unsettled(const struct holdfast *h, const char *name, const char *owner,
    const struct holdfast_pending *end)
{
    EACH (holdfast_kept, kept, h->holds)
        if (kept->claim != CLAIM_NONE && holdfast_kept_is(kept, name, owner))
            return true;
    for (const struct holdfast_pending *pending = h->pending; pending != end;
         pending = pending->next)
        if ((pending->parked ||
                (pending->again && pending->kind == PENDING_LOCK)) &&
            kind_of_lock(pending->kind) &&
            holdfast_pending_names(pending, name, owner))
            return true;
    return false;
}

/* Whether a request must wait for an earlier one, before `end`. */
static bool
blocked(const struct holdfast *h, enum holdfast_pending_kind kind,
    const struct holdfast_subject *subject, uint64_t target,
    const struct holdfast_pending *end)
{
    const struct holdfast_pending *lock;

    if (h->generation <= 1 && !h->draining)
        return false;
    if (kind == PENDING_CANCEL) {
        lock = holdfast_pending_of(h, target);
        return lock != NULL && lock->parked;
    }
    if (!kind_of_lock(kind))
        return false;
    if (kind == PENDING_LOCK && h->draining && holdfast_session_known(h))
        return true;
    for (size_t i = 0; i < subject->name_count; i++)
        if (name_unsettled(h, subject->names[i],
                subject->owner != NULL ? subject->owner : "", end))
            return true;
    return false;
}

/* After QUIT the session ends with its connection. */
static void
mark_quit(struct holdfast *h, const struct holdfast_pending *pending)
{
    if (pending->kind == PENDING_OTHER &&
        strcasecmp(pending->text, "QUIT") == 0)
        h->final = true;
}

/* Sends or parks the line. *out is the new request. */
static enum holdfast_status
line_submit(struct holdfast *h, const struct holdfast_line *line,
    enum holdfast_pending_kind kind, const struct holdfast_subject *subject,
    uint64_t target, struct holdfast_pending **out)
{
    char bytes[CLIENT_LINE_BYTES + 64];

    if (h->link == LINK_CLOSED)
        return HOLDFAST_NOT_CONNECTED;
    size_t len =
        line->bad ? 0
                  : line_compose(h, bytes, sizeof(bytes), h->request_last + 1,
                        line->bytes, line->len, line->wait_at, line->wait_ms);
    if (len == 0)
        return HOLDFAST_BAD_ARGUMENT;
    bool park = kind < PENDING_KEEPALIVE &&
                (!holdfast_session_serves(h) ||
                    blocked(h, kind, subject, target, NULL));
    enum holdfast_status status = HOLDFAST_SUCCESS;
    if (!park)
        status = holdfast_link_append(h, bytes, len);
    else if (h->parked_bytes + len > CLIENT_OUT_BYTES)
        status = HOLDFAST_FULL;
    if (status != HOLDFAST_SUCCESS)
        return status;
    *out = holdfast_pending_add(h, kind, line, subject);
    if (*out == NULL) {
        holdfast_link_close(h, "out of memory");
        return HOLDFAST_NO_MEMORY;
    }
    (*out)->target = target;
    if (park) {
        holdfast_pending_park(h, *out);
        holdfast_drain_hasten(h);
    } else {
        mark_quit(h, *out);
    }
    return HOLDFAST_SUCCESS;
}

static void
lock_line(struct holdfast_line *line, const struct holdfast_lock_options *o)
{
    line->wait_at = line->len;
    line->wait_ms = o->wait_ms;
    if (o->lease_ms > 0)
        line_add(line, " lease=%" PRIu64, o->lease_ms);
    line_add_owner(line, o->owner);
    if (o->note != NULL)
        line_add_word(line, " note=", o->note, HOLDFAST_NOTE_MAX);
    if (o->progress)
        line_add(line, " progress=1");
    if (o->shared)
        line_add(line, " mode=shared");
    else if (o->upgradable)
        line_add(line, " mode=upgradable");
    if (o->limit > 0)
        line_add(line, " limit=%" PRIu64, o->limit);
    if (o->permits > 0)
        line_add(line, " permits=%" PRIu64, o->permits);
    if (o->delay_ms > 0)
        line_add(line, " delay=%" PRIu64, o->delay_ms);
    if (o->no_deadlock)
        line_add(line, " deadlock=0");
    if (o->wanted)
        line_add(line, " wanted=1");
    if (o->tree)
        line_add(line, " tree=1");
}

enum holdfast_status
holdfast_submit_lock_all(struct holdfast *h, const char *const *names,
    size_t name_count, const struct holdfast_lock_options *options,
    uint64_t *request)
{
    static const struct holdfast_lock_options defaults = HOLDFAST_LOCK_DEFAULTS;
    struct holdfast_line line;
    struct holdfast_pending *pending;

    if (options == NULL)
        options = &defaults;
    const struct holdfast_subject subject = {names, name_count, options->owner};
    line_begin(&line, "LOCK", NULL);
    line.bad = line.bad || name_count == 0 || name_count > HOLDFAST_NAMES_MAX;
    for (size_t i = 0; i < name_count && !line.bad; i++)
        line_add_word(&line, " ", names[i], HOLDFAST_NAME_MAX);
    lock_line(&line, options);
    enum holdfast_status status =
        line_submit(h, &line, PENDING_LOCK, &subject, 0, &pending);
    if (status != HOLDFAST_SUCCESS)
        return status;
    pending->leased = options->lease_ms > 0;
    pending->wanted = options->wanted;
    holdfast_kept_ask_by(h, pending->sent_ms + CLIENT_WAITING_MS);
    *request = pending->request;
    return HOLDFAST_SUCCESS;
}

enum holdfast_status
holdfast_submit_lock(struct holdfast *h, const char *name,
    const struct holdfast_lock_options *options, uint64_t *request)
{
    return holdfast_submit_lock_all(h, &name, 1, options, request);
}

/* Submits a request of one name. `fence`: of its hold; 0: any. */
static enum holdfast_status
hold_submit(struct holdfast *h, const struct holdfast_line *line,
    enum holdfast_pending_kind kind, const char *name, const char *owner,
    uint64_t fence, uint64_t *request)
{
    const struct holdfast_subject subject = {&name, 1, owner};
    struct holdfast_pending *pending;

    enum holdfast_status status =
        line_submit(h, line, kind, &subject, 0, &pending);
    if (status != HOLDFAST_SUCCESS)
        return status;
    pending->fence = fence;
    *request = pending->request;
    return status;
}

static enum holdfast_status
name_submit(struct holdfast *h, const struct holdfast_line *line,
    enum holdfast_pending_kind kind, const char *name, const char *owner,
    uint64_t *request)
{
    return hold_submit(h, line, kind, name, owner, 0, request);
}

enum holdfast_status
holdfast_submit_unlock_delayed(struct holdfast *h, const char *name,
    const char *owner, uint64_t fence, uint64_t delay_ms, uint64_t *request)
{
    struct holdfast_line line;

    line_begin(&line, "UNLOCK", name);
    if (delay_ms > 0)
        line_add(&line, " delay=%" PRIu64, delay_ms);
    line_add_hold(&line, fence, owner);
    enum holdfast_status status =
        hold_submit(h, &line, PENDING_UNLOCK, name, owner, fence, request);
    if (status != HOLDFAST_SUCCESS)
        return status;
    struct holdfast_kept *kept =
        holdfast_kept_find(h, name, owner != NULL ? owner : "", fence);
    if (kept != NULL)
        kept->releases++;
    return HOLDFAST_SUCCESS;
}

enum holdfast_status
holdfast_submit_unlock(struct holdfast *h, const char *name, const char *owner,
    uint64_t fence, uint64_t *request)
{
    return holdfast_submit_unlock_delayed(h, name, owner, fence, 0, request);
}

enum holdfast_status
holdfast_submit_unlock_part(struct holdfast *h, const char *name,
    const char *owner, uint64_t fence, uint64_t permits, uint64_t *request)
{
    struct holdfast_line line;

    line_begin(&line, "UNLOCK", name);
    line_add(&line, " permits=%" PRIu64, permits);
    line_add_hold(&line, fence, owner);
    return hold_submit(h, &line, PENDING_PART, name, owner, fence, request);
}

enum holdfast_status
holdfast_submit_renew(struct holdfast *h, const char *name, const char *owner,
    uint64_t fence, uint64_t lease_ms, uint64_t *request)
{
    struct holdfast_line line;

    line_begin(&line, "RENEW", name);
    line_add(&line, " lease=%" PRIu64, lease_ms);
    line_add_hold(&line, fence, owner);
    enum holdfast_status status =
        hold_submit(h, &line, PENDING_RENEW, name, owner, fence, request);
    if (status != HOLDFAST_SUCCESS)
        return status;
    struct holdfast_pending *pending = holdfast_pending_of(h, *request);
    pending->lease_ms = lease_ms;
    if (!pending->parked)
        holdfast_kept_renewing(h, pending);
    return status;
}

enum holdfast_status
holdfast_submit_note(struct holdfast *h, const char *name, const char *owner,
    uint64_t fence, const char *note, uint64_t *request)
{
    struct holdfast_line line;

    line_begin(&line, "NOTE", name);
    if (note != NULL)
        line_add_word(&line, " note=", note, HOLDFAST_NOTE_MAX);
    line_add_hold(&line, fence, owner);
    /* The answer tells the deadline, as that of a RENEW. */
    return hold_submit(h, &line, PENDING_RENEW, name, owner, fence, request);
}

enum holdfast_status
holdfast_submit_cancel(struct holdfast *h, uint64_t target, uint64_t *request)
{
    struct holdfast_pending *lock = holdfast_pending_of(h, target);
    struct holdfast_line line;
    struct holdfast_pending *pending;

    line_begin(&line, "CANCEL", NULL);
    line_add(&line, " %" PRIu64, target);
    enum holdfast_status status =
        line_submit(h, &line, PENDING_CANCEL, NULL, target, &pending);
    if (status != HOLDFAST_SUCCESS)
        return status;
    *request = pending->request;
    if (lock == NULL || !holdfast_pending_waits(lock) || !lock->parked ||
        lock->again)
        return status; /* the broker answers, also if nothing waits */
    /* The request was sent to no broker. */
    holdfast_notice_say(h, HOLDFAST_ERR, target,
        "- ERR CANCELLED retry=1 :the wait was cancelled");
    holdfast_notice_say(h, HOLDFAST_OK, *request, "- OK");
    holdfast_pending_remove(h, lock);
    holdfast_pending_remove(h, pending);
    return status;
}

enum holdfast_status
holdfast_submit_await(
    struct holdfast *h, const char *name, uint64_t wait_ms, uint64_t *request)
{
    struct holdfast_line line;

    line_begin(&line, "AWAIT", name);
    line.wait_at = line.len;
    line.wait_ms = wait_ms;
    enum holdfast_status status =
        name_submit(h, &line, PENDING_AWAIT, name, NULL, request);
    if (status == HOLDFAST_SUCCESS)
        holdfast_kept_ask_by(h, holdfast_now_ms(h) + CLIENT_WAITING_MS);
    return status;
}

enum holdfast_status
holdfast_submit_watch(struct holdfast *h, const char *name, uint64_t *request)
{
    struct holdfast_line line;

    line_begin(&line, "WATCH", name);
    return name_submit(h, &line, PENDING_WATCH, name, NULL, request);
}

enum holdfast_status
holdfast_submit_watch_members(
    struct holdfast *h, const char *name, uint64_t *request)
{
    struct holdfast_line line;

    line_begin(&line, "WATCH", name);
    line_add(&line, " members=1");
    return name_submit(h, &line, PENDING_WATCH_MEMBERS, name, NULL, request);
}

enum holdfast_status
holdfast_submit_unwatch(struct holdfast *h, const char *name, uint64_t *request)
{
    struct holdfast_line line;

    line_begin(&line, "UNWATCH", name);
    enum holdfast_status status =
        name_submit(h, &line, PENDING_UNWATCH, name, NULL, request);
    /* The next broker gets no WATCH, so it cannot answer. */
    if (status == HOLDFAST_SUCCESS && !holdfast_session_serves(h) &&
        holdfast_watch_end(h, name)) {
        holdfast_notice_say(h, HOLDFAST_OK, *request, "- OK");
        holdfast_pending_remove(h, holdfast_pending_of(h, *request));
    }
    return status;
}

enum holdfast_status
holdfast_submit(struct holdfast *h, const char *text, uint64_t *request)
{
    struct holdfast_line line;
    struct holdfast_pending *pending;

    line_begin(&line, text, NULL);
    /* A word that begins with a digit would be a tag. */
    if (text[0] == '\0' || (text[0] >= '0' && text[0] <= '9'))
        line.bad = true;
    for (const char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            line.bad = true;
    enum holdfast_status status =
        line_submit(h, &line, PENDING_OTHER, NULL, 0, &pending);
    if (status == HOLDFAST_SUCCESS)
        *request = pending->request;
    return status;
}

/* --- the library's own ---------------------------------------------------- */

static const char *
kept_owner(const struct holdfast_kept *kept)
{
    return kept->owner[0] != '\0' ? kept->owner : NULL;
}

static bool
own_submit_hold(struct holdfast *h, const struct holdfast_line *line,
    enum holdfast_pending_kind kind, const struct holdfast_kept *kept)
{
    uint64_t request;

    return hold_submit(h, line, kind, kept->name, kept_owner(kept), kept->fence,
               &request) == HOLDFAST_SUCCESS;
}

static bool
own_submit(struct holdfast *h, const struct holdfast_line *line,
    enum holdfast_pending_kind kind, const char *name, const char *owner)
{
    const struct holdfast_subject subject = {
        &name, name != NULL ? 1 : 0, owner};
    struct holdfast_pending *pending;

    return line_submit(h, line, kind, &subject, 0, &pending) ==
           HOLDFAST_SUCCESS;
}

bool
holdfast_submit_keepalive(struct holdfast *h, enum holdfast_pending_kind kind)
{
    struct holdfast_line line;

    line_begin(&line, kind == PENDING_SURVEY ? "HELD" : "PING", NULL);
    return own_submit(h, &line, kind, NULL, NULL);
}

void
holdfast_submit_pong(struct holdfast *h, const char *number)
{
    char bytes[64];
    uint64_t value;

    if (!holdfast_number(number, &value))
        return;
    /* PONG has no answer. If there is no room, other bytes go out, and each
     * byte counts as a sign of life. */
    int len = snprintf(bytes, sizeof(bytes), "PONG %" PRIu64 "\n", value);
    (void)holdfast_link_append(h, bytes, (size_t)len);
}

bool
holdfast_submit_auth(struct holdfast *h)
{
    struct holdfast_line line;

    line_begin(&line, "AUTH", NULL);
    line_add_word(&line, " ", h->user, HOLDFAST_USER_MAX);
    line_add_word(&line, " ", h->secret, HOLDFAST_SECRET_MAX);
    bool done = own_submit(h, &line, PENDING_AUTH, NULL, NULL);
    explicit_bzero(&line, sizeof(line));
    return done;
}

bool
holdfast_submit_hello(struct holdfast *h)
{
    struct holdfast_line line;

    line_begin(&line, "HELLO", NULL);
    if (h->name[0] != '\0')
        line_add_word(&line, " name=", h->name, HOLDFAST_WORD_MAX);
    if (h->heartbeat_ms > 0)
        line_add(&line, " heartbeat=%" PRIu64, h->heartbeat_ms);
    if (h->keep_ms > 0)
        line_add(&line, " keep=%" PRIu64, h->keep_ms);
    if (h->generation > 1)
        line_add(&line, " resume=%s gen=%" PRIu64, h->session, h->generation);
    return own_submit(h, &line, PENDING_HELLO, NULL, NULL);
}

bool
holdfast_submit_claim(struct holdfast *h, const struct holdfast_kept *kept)
{
    struct holdfast_line line;

    line_begin(&line, "CLAIM", kept->name);
    line_add(&line, " fence=%" PRIu64, kept->fence);
    line_add_owner(&line, kept_owner(kept));
    /* One UNLOCK must release the whole of a hold that is given up. */
    line_add(&line, " count=%" PRIu64,
        kept->given_up && kept->releases == 0 ? 1 : kept->count);
    if (kept->wanted)
        line_add(&line, " wanted=1");
    if (kept->upgrade)
        line_add(&line, " upgrade=1");
    return own_submit_hold(h, &line, PENDING_CLAIM, kept);
}

bool
holdfast_submit_discard(struct holdfast *h, const struct holdfast_kept *kept)
{
    struct holdfast_line line;

    line_begin(&line, "UNLOCK", kept->name);
    line_add(&line, " fence=%" PRIu64, kept->fence);
    line_add_owner(&line, kept_owner(kept));
    return own_submit_hold(h, &line, PENDING_DISCARD, kept);
}

bool
holdfast_submit_rewatch(
    struct holdfast *h, const struct holdfast_watched *watched)
{
    struct holdfast_line line;

    line_begin(&line, "WATCH", watched->name);
    if (watched->members)
        line_add(&line, " members=1");
    return own_submit(h, &line, PENDING_REWATCH, watched->name, NULL);
}

/* --- parked requests ------------------------------------------------------ */

static bool
parked_blocked(const struct holdfast *h, const struct holdfast_pending *pending)
{
    const char *names[HOLDFAST_NAMES_MAX];
    const char *at = pending->names;

    assert(pending->name_count <= HOLDFAST_NAMES_MAX);
    for (size_t i = 0; i < pending->name_count; i++) {
        names[i] = at;
        at += strlen(at) + 1;
    }
    const struct holdfast_subject subject = {
        names, pending->name_count, pending->owner};
    return blocked(h, pending->kind, &subject, pending->target, pending);
}

/* Sends a parked request. False: there is no room now. */
static bool
parked_send(struct holdfast *h, struct holdfast_pending *pending)
{
    char bytes[CLIENT_LINE_BYTES + 64];
    uint64_t now = holdfast_now_ms(h);

    size_t len =
        line_compose(h, bytes, sizeof(bytes), pending->request, pending->text,
            pending->line_len, pending->wait_at, wait_left(pending, now));
    if (len > 0 && holdfast_link_append(h, bytes, len) != HOLDFAST_SUCCESS)
        return false;
    holdfast_pending_unpark(h, pending);
    pending->sent_ms = now;
    mark_quit(h, pending);
    if (pending->kind == PENDING_RENEW)
        holdfast_kept_renewing(h, pending);
    if (len == 0) {
        holdfast_notice_say(h, HOLDFAST_ERR, pending->request,
            "- ERR TOOLONG retry=0 :the line is too long for this broker");
        holdfast_pending_remove(h, pending);
    }
    return true;
}

void
holdfast_submit_parked(struct holdfast *h)
{
    if (h->link != LINK_OPEN || h->unknown || h->parked == 0)
        return;
    for (struct holdfast_pending *pending = h->pending; pending != NULL;) {
        struct holdfast_pending *next = pending->next;

        if (pending->parked && !parked_blocked(h, pending) &&
            !parked_send(h, pending))
            return;
        pending = next;
    }
}
