/*
 * The effects of a line of the broker. It finds the request of a reply, updates
 * the holds, and queues events for the program. Unknown verbs are ignored.
 */
#include "proto/clients/c/client.h"
#include "proto/clients/c/hold.h"
#include "proto/clients/c/link.h"
#include "proto/clients/c/session.h"
#include "proto/clients/c/submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
text_keep(char *out, size_t out_bytes, const char *text)
{
    (void)snprintf(out, out_bytes, "%s", text != NULL ? text : "");
}

/* Reads the greeting. False: the program does not see it. */
static bool
greeting_take(struct holdfast *h, const struct holdfast_message *message)
{
    uint64_t number;

    if (!holdfast_message_number(message, "proto", &number) || number != 1) {
        holdfast_link_close(
            h, "the broker has another version of the protocol");
        return false;
    }
    text_keep(h->server, sizeof(h->server),
        holdfast_message_value(message, "server"));
    if (holdfast_message_number(message, "max_line", &number) &&
        number < h->line_max) {
        if (number < CLIENT_LINE_MIN) {
            holdfast_link_close(h, "the broker's limit of a line is too small");
            return false;
        }
        h->line_max = (size_t)number;
    }
    if (holdfast_session_known(h)) {
        h->connect_deadline_ms = holdfast_now_ms(h) + CLIENT_CONNECT_MS;
        holdfast_session_greet(h);
        return false;
    }
    text_keep(h->session, sizeof(h->session),
        holdfast_message_value(message, "session"));
    h->link = LINK_OPEN;
    h->opened_ms = holdfast_now_ms(h);
    h->reason[0] = '\0';
    return true;
}

/* The effects of an event. False: the program does not see it. */
static bool
event_act(struct holdfast *h, const struct holdfast_message *message,
    enum holdfast_kind kind, uint64_t *request)
{
    if (kind == HOLDFAST_HELLO)
        return h->link == LINK_GREETING && greeting_take(h, message);
    if (kind == HOLDFAST_LOST)
        holdfast_kept_lost(h, message, request);
    if (kind == HOLDFAST_DRAIN)
        holdfast_drain_told(h, message);
    if (kind == HOLDFAST_BYE)
        return holdfast_session_bye(h, message);
    return true;
}

/* Handles an event; `line` is not decoded. True: the queue owns the notice. */
static bool
event_take(struct holdfast *h, struct holdfast_notice *notice, const char *line,
    size_t len)
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
        {"HELD", HOLDFAST_HELD},
        {"FREE", HOLDFAST_FREE},
        {"MEMBERS", HOLDFAST_MEMBERS},
        {"JOINED", HOLDFAST_JOINED},
        {"CHANGED", HOLDFAST_CHANGED},
        {"LEFT", HOLDFAST_LEFT},
        {"WANTED", HOLDFAST_WANTED},
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
    if ((kinds[i].kind == HOLDFAST_HELD || kinds[i].kind == HOLDFAST_FREE) &&
        !holdfast_watch_news(h, message, line, len))
        return false;
    if (!event_act(h, message, kinds[i].kind, &request))
        return false;
    holdfast_notice_push(h, notice, kinds[i].kind, request);
    return true;
}

/* Handles the final answer. True: the queue or a hold owns the notice. */
static bool
final_take(struct holdfast *h, struct holdfast_pending *pending,
    struct holdfast_notice *notice, bool done)
{
    const struct holdfast_message *message = &notice->message;

    switch (pending->kind) {
    case PENDING_KEEPALIVE:
    case PENDING_SURVEY:
        holdfast_keepalive_confirmed(h, pending, done ? message : NULL);
        return false;
    case PENDING_AUTH:
        holdfast_session_known_as(h, message, done);
        return false;
    case PENDING_HELLO:
        holdfast_session_greeted(h, message, done);
        return false;
    case PENDING_CLAIM:
        holdfast_claim_done(h, pending, message, done);
        return false;
    case PENDING_DISCARD:
        holdfast_claim_discarded(h, pending);
        return false;
    case PENDING_REWATCH:
        holdfast_watch_done(h, pending, message, done);
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
    case PENDING_PART:
        if (done)
            holdfast_kept_parted(h, pending, message);
        break;
    case PENDING_RENEW:
        holdfast_kept_renewed(h, pending, message, done);
        break;
    case PENDING_WATCH:
    case PENDING_WATCH_MEMBERS:
    case PENDING_UNWATCH:
        holdfast_watch_done(h, pending, message, done);
        break;
    case PENDING_AWAIT:
    case PENDING_CANCEL:
    case PENDING_OTHER:
        break;
    }
    if (h->link == LINK_CLOSED)
        return false;
    holdfast_notice_push(
        h, notice, done ? HOLDFAST_OK : HOLDFAST_ERR, pending->request);
    return true;
}

/* Handles a line before the final answer. True: the queue owns the notice. */
static bool
part_take(struct holdfast *h, struct holdfast_pending *pending,
    struct holdfast_notice *notice, bool item)
{
    bool own = pending->kind >= PENDING_KEEPALIVE;

    if (item && pending->kind == PENDING_SURVEY)
        holdfast_keepalive_surveyed(h, pending, &notice->message);
    if (!own)
        holdfast_notice_push(h, notice, item ? HOLDFAST_ITEM : HOLDFAST_QUEUED,
            pending->request);
    return !own;
}

/* Handles a reply. True: the queue or a hold owns the notice. */
static bool
reply_take(struct holdfast *h, struct holdfast_notice *notice)
{
    const struct holdfast_message *message = &notice->message;
    struct holdfast_pending *pending = holdfast_pending_find(h, message->tag);
    bool done = strcmp(message->verb, "OK") == 0;
    bool item = strcmp(message->verb, "ITEM") == 0;

    if (pending == NULL)
        return false;
    if (item || strcmp(message->verb, "QUEUED") == 0)
        return part_take(h, pending, notice, item);
    if (!done && strcmp(message->verb, "ERR") != 0)
        return false;
    uint64_t sent = pending->sent_ms;
    if (!done && strcmp(message->word, "DRAINING") == 0 &&
        holdfast_pending_waits(pending) && holdfast_drain_refused(h, pending))
        return false;
    bool taken = final_take(h, pending, notice, done);
    if (h->link == LINK_CLOSED)
        return taken;
    if (sent > h->proven_ms)
        h->proven_ms = sent;
    holdfast_pending_remove(h, pending);
    if (h->refused)
        holdfast_link_lost(h, "the broker does not resume the session");
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
        holdfast_link_close(h, "a line of the broker is malformed");
    else if (strcmp(message->tag, "*") == 0)
        taken = event_take(h, notice, line, len);
    else if (h->link == LINK_GREETING)
        holdfast_link_close(h, "the peer is not a Holdfast broker");
    else
        taken = reply_take(h, notice);
    if (!taken)
        free(notice);
}
