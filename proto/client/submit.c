/*
 * Requests to lines, and into the output. A line is written without its tag
 * first, so that a bad argument is refused before a request exists.
 */
#include "proto/client/client.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A request being written, without tag and LF. */
struct line {
    char bytes[CLIENT_LINE_BYTES];
    size_t len;
    bool bad; /* it did not fit, or an argument was bad */
};

static void line_add(struct line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void
line_add(struct line *line, const char *format, ...)
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

/* Adds `word` of 1 to `max` bytes behind `before`. */
static void
line_add_word(
    struct line *line, const char *before, const char *word, size_t max)
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

/* Sends the line; `kind` and, where known, name and owner are remembered. */
static enum holdfast_status
line_submit(struct holdfast *h, const struct line *line,
    enum holdfast_pending_kind kind, struct holdfast_pending **out)
{
    char bytes[CLIENT_LINE_BYTES + 32];

    if (h->link == LINK_CLOSED)
        return HOLDFAST_NOT_CONNECTED;
    int len = snprintf(bytes, sizeof(bytes), "%" PRIu64 " %.*s\n",
        h->request_last + 1, (int)line->len, line->bytes);
    if (line->bad || len < 0 || (size_t)len > h->line_max)
        return HOLDFAST_BAD_ARGUMENT;
    enum holdfast_status status = holdfast_link_append(h, bytes, (size_t)len);
    if (status != HOLDFAST_SUCCESS)
        return status;
    *out = holdfast_pending_add(h, kind);
    if (*out == NULL) {
        holdfast_link_close(h, "out of memory");
        return HOLDFAST_NO_MEMORY;
    }
    return HOLDFAST_SUCCESS;
}

/* The lengths were checked by line_add_word(). */
static void
pending_name(
    struct holdfast_pending *pending, const char *name, const char *owner)
{
    (void)snprintf(pending->name, sizeof(pending->name), "%s", name);
    (void)snprintf(pending->owner, sizeof(pending->owner), "%s",
        owner != NULL ? owner : "");
}

enum holdfast_status
holdfast_submit_lock(struct holdfast *h, const char *name,
    const struct holdfast_lock_options *options, uint64_t *request)
{
    static const struct holdfast_lock_options defaults = HOLDFAST_LOCK_DEFAULTS;
    struct line line = {.len = 0};
    struct holdfast_pending *pending;

    if (options == NULL)
        options = &defaults;
    line_add_word(&line, "LOCK ", name, HOLDFAST_NAME_MAX);
    if (options->wait_ms != HOLDFAST_FOREVER)
        line_add(&line, " wait=%" PRIu64, options->wait_ms);
    if (options->lease_ms > 0)
        line_add(&line, " lease=%" PRIu64, options->lease_ms);
    if (options->owner != NULL)
        line_add_word(&line, " owner=", options->owner, HOLDFAST_OWNER_MAX);
    if (options->note != NULL)
        line_add_word(&line, " note=", options->note, HOLDFAST_NOTE_MAX);
    if (options->progress)
        line_add(&line, " progress=1");
    enum holdfast_status status = line_submit(h, &line, PENDING_LOCK, &pending);
    if (status != HOLDFAST_SUCCESS)
        return status;
    pending_name(pending, name, options->owner);
    pending->leased = options->lease_ms > 0;
    if (pending->sent_ms + CLIENT_WAITING_MS < h->ping_next_ms)
        h->ping_next_ms = pending->sent_ms + CLIENT_WAITING_MS;
    *request = pending->request;
    return HOLDFAST_SUCCESS;
}

enum holdfast_status
holdfast_submit_unlock(struct holdfast *h, const char *name, const char *owner,
    uint64_t fence, uint64_t *request)
{
    struct line line = {.len = 0};
    struct holdfast_pending *pending;

    line_add_word(&line, "UNLOCK ", name, HOLDFAST_NAME_MAX);
    if (fence > 0)
        line_add(&line, " fence=%" PRIu64, fence);
    if (owner != NULL)
        line_add_word(&line, " owner=", owner, HOLDFAST_OWNER_MAX);
    enum holdfast_status status =
        line_submit(h, &line, PENDING_UNLOCK, &pending);
    if (status != HOLDFAST_SUCCESS)
        return status;
    pending_name(pending, name, owner);
    struct holdfast_kept *kept =
        holdfast_kept_find(h, pending->name, pending->owner);
    if (kept != NULL)
        kept->releases++;
    *request = pending->request;
    return HOLDFAST_SUCCESS;
}

enum holdfast_status
holdfast_submit_renew(struct holdfast *h, const char *name, const char *owner,
    uint64_t fence, uint64_t lease_ms, uint64_t *request)
{
    struct line line = {.len = 0};
    struct holdfast_pending *pending;

    line_add_word(&line, "RENEW ", name, HOLDFAST_NAME_MAX);
    line_add(&line, " lease=%" PRIu64, lease_ms);
    if (fence > 0)
        line_add(&line, " fence=%" PRIu64, fence);
    if (owner != NULL)
        line_add_word(&line, " owner=", owner, HOLDFAST_OWNER_MAX);
    enum holdfast_status status =
        line_submit(h, &line, PENDING_RENEW, &pending);
    if (status != HOLDFAST_SUCCESS)
        return status;
    pending_name(pending, name, owner);
    *request = pending->request;
    return HOLDFAST_SUCCESS;
}

enum holdfast_status
holdfast_submit(struct holdfast *h, const char *text, uint64_t *request)
{
    struct line line = {.len = 0};
    struct holdfast_pending *pending;

    /* A digit first would be a tag. */
    line.bad = text[0] == '\0' || (text[0] >= '0' && text[0] <= '9');
    for (const char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            line.bad = true;
    line_add(&line, "%s", text);
    enum holdfast_status status =
        line_submit(h, &line, PENDING_OTHER, &pending);
    if (status == HOLDFAST_SUCCESS)
        *request = pending->request;
    return status;
}

bool
holdfast_submit_keepalive(struct holdfast *h, enum holdfast_pending_kind kind)
{
    struct line line = {.len = 0};
    struct holdfast_pending *pending;

    line_add(&line, "%s", kind == PENDING_SURVEY ? "HELD" : "PING");
    return line_submit(h, &line, kind, &pending) == HOLDFAST_SUCCESS;
}

void
holdfast_submit_pong(struct holdfast *h, const char *number)
{
    char bytes[64];
    uint64_t value;

    if (!holdfast_number(number, &value))
        return;
    /* PONG has no answer. Where it finds no room, other bytes are under way,
     * and any byte counts as a sign of life. */
    int len = snprintf(bytes, sizeof(bytes), "PONG %" PRIu64 "\n", value);
    (void)holdfast_link_append(h, bytes, (size_t)len);
}
