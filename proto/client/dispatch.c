/*
 * What a line of the broker does: finds the request that it answers, keeps the
 * holds up to date, and puts what the user should know into the queue. Verbs
 * that are not known are passed over.
 */
#include "proto/client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
text_keep(char *out, size_t out_bytes, const char *text)
{
    (void)snprintf(out, out_bytes, "%s", text != NULL ? text : "");
}

/* False: this cannot be served. */
static bool
greeting_take(struct holdfast *h, const struct holdfast_message *message)
{
    uint64_t number;

    if (!holdfast_message_number(message, "proto", &number) || number != 1) {
        holdfast_link_close(h, "the broker speaks another protocol");
        return false;
    }
    text_keep(h->session, sizeof(h->session),
        holdfast_message_value(message, "session"));
    text_keep(h->server, sizeof(h->server),
        holdfast_message_value(message, "server"));
    if (holdfast_message_number(message, "max_line", &number) &&
        number < h->line_max) {
        if (number < CLIENT_LINE_MIN) {
            holdfast_link_close(h, "the broker takes no lines of use");
            return false;
        }
        h->line_max = (size_t)number;
    }
    h->link = LINK_OPEN;
    return true;
}

/* An event of the broker. True: the notice went into the queue. */
static bool
event_take(struct holdfast *h, struct holdfast_notice *notice)
{
    static const struct {
        const char *verb;
        enum holdfast_kind kind;
    } kinds[] = {
        {"HELLO", HOLDFAST_HELLO},
        {"LOST", HOLDFAST_LOST},
        {"JEOPARDY", HOLDFAST_JEOPARDY},
        {"SAFE", HOLDFAST_SAFE},
        {"DRAIN", HOLDFAST_DRAIN},
        {"BYE", HOLDFAST_BYE},
    };
    const struct holdfast_message *message = &notice->message;
    uint64_t request = 0;
    size_t i = 0;

    if (strcmp(message->verb, "PING") == 0) {
        holdfast_submit_pong(h, message->word);
        return false;
    }
    while (strcmp(kinds[i].verb, message->verb) != 0)
        if (++i == sizeof(kinds) / sizeof(kinds[0]))
            return false;
    if (kinds[i].kind == HOLDFAST_HELLO &&
        (h->link == LINK_OPEN || !greeting_take(h, message)))
        return false;
    if (kinds[i].kind == HOLDFAST_LOST)
        holdfast_kept_lost(h, message, &request);
    if (kinds[i].kind == HOLDFAST_BYE) {
        (void)snprintf(h->reason, sizeof(h->reason), "the broker said BYE %s",
            message->word);
    }
    holdfast_notice_push(h, notice, kinds[i].kind, request);
    return true;
}

/* The final answer to `pending`. True: the notice is somebody else's now. */
static bool
final_take(struct holdfast *h, struct holdfast_pending *pending,
    struct holdfast_notice *notice, bool done)
{
    const struct holdfast_message *message = &notice->message;

    switch (pending->kind) {
    case PENDING_KEEPALIVE:
    case PENDING_SURVEY:
        holdfast_kept_confirmed(h, pending, done ? message : NULL);
        return false;
    case PENDING_LOCK:
        if (done) {
            bool now = holdfast_kept_grant(h, pending, notice);

            if (h->link == LINK_CLOSED)
                return false;
            if (!now)
                return true;
        }
        break;
    case PENDING_UNLOCK:
        holdfast_kept_released(h, pending, message, done);
        break;
    case PENDING_RENEW:
        if (done)
            holdfast_kept_renewed(h, pending, message);
        break;
    case PENDING_OTHER:
        break;
    }
    holdfast_notice_push(
        h, notice, done ? HOLDFAST_OK : HOLDFAST_ERR, pending->request);
    return true;
}

static bool
reply_take(struct holdfast *h, struct holdfast_notice *notice)
{
    const struct holdfast_message *message = &notice->message;
    struct holdfast_pending *pending = holdfast_pending_find(h, message->tag);
    bool done = strcmp(message->verb, "OK") == 0;

    if (pending == NULL)
        return false;
    bool item = strcmp(message->verb, "ITEM") == 0;
    if (item || strcmp(message->verb, "QUEUED") == 0) {
        bool own = pending->kind == PENDING_KEEPALIVE ||
                   pending->kind == PENDING_SURVEY;
        if (item && pending->kind == PENDING_SURVEY)
            holdfast_kept_surveyed(h, pending, message);
        if (!own)
            holdfast_notice_push(h, notice,
                item ? HOLDFAST_ITEM : HOLDFAST_QUEUED, pending->request);
        return !own;
    }
    if (!done && strcmp(message->verb, "ERR") != 0)
        return false;
    bool taken = final_take(h, pending, notice, done);
    /* final_take() may have ended the connection, and its requests with it. */
    if (h->link == LINK_CLOSED)
        return taken;
    if (pending->sent_ms > h->proven_ms)
        h->proven_ms = pending->sent_ms;
    holdfast_pending_remove(h, pending);
    return taken;
}

void
holdfast_dispatch(struct holdfast *h, const char *line, size_t len)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (len == 0)
        return;
    struct holdfast_notice *notice = holdfast_notice_create(line, len);
    if (notice == NULL) {
        holdfast_link_close(h, "out of memory");
        return;
    }
    const struct holdfast_message *message = &notice->message;
    bool taken = false;
    if (!holdfast_message_parse(notice->line, len, &notice->message))
        holdfast_link_close(h, "a line of the broker makes no sense");
    else if (strcmp(message->tag, "*") == 0)
        taken = event_take(h, notice);
    else if (h->link == LINK_GREETING)
        holdfast_link_close(h, "this is no Holdfast broker");
    else
        taken = reply_take(h, notice);
    if (!taken)
        free(notice);
}
