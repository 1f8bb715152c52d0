/*
 * Reply and event lines into the step's effects, and the frame of lists. The
 * only place that turns what the core decided into text.
 */
#include "daemon/core/answer/answer.h"

#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/ticket.h"

#include "daemon/base/assert.h"

/* No line of ours is longer: names, words and numbers are all bounded. */
#define ANSWER_BYTES 4096

#define LISTING_DEFAULT 100

struct reply
answer_begin(struct core *core, const char *tag, const char *word)
{
    struct reply reply;

    require(core->effects != NULL); /* DESIGN.md D13.2 */
    reply_begin(&reply, effects_reserve(core->effects, ANSWER_BYTES),
        ANSWER_BYTES, tag, word);
    return reply;
}

struct reply
answer_event(struct core *core, enum event_code event)
{
    struct reply reply;

    require(core->effects != NULL); /* DESIGN.md D13.2 */
    reply_event_begin(&reply, effects_reserve(core->effects, ANSWER_BYTES),
        ANSWER_BYTES, event);
    return reply;
}

void
reply_pair_if(struct reply *reply, const char *key, struct text value)
{
    if (value.len > 0)
        reply_pair(reply, key, value);
}

void
answer_times(
    const struct core *core, const struct session *session, struct reply *reply)
{
    uint64_t silence_us = session_silence_bound_us(session);

    require(session_connected(session) && silence_us > 0);
    if (silence_us != NEVER)
        reply_pair_number(reply, "silence_ms", silence_us / 1000);
    reply_pair_number(
        reply, "command_ms", core->settings.command_timeout_us / 1000);
}

void
answer_end(
    struct core *core, const struct session *session, struct reply *reply)
{
    size_t len = reply_end(reply);

    require(len > 0 && len <= ANSWER_BYTES);
    require(session->state < SESSION_STATE_COUNT);
    if (!session_connected(session))
        return; /* there is nobody to hear it */
    effects_line(
        core->effects, slab_handle(&core->sessions, session), (uint32_t)len);
}

void
answer_error_begin(struct core *core, struct reply *reply, const char *tag,
    enum error_code code)
{
    require(core->effects != NULL && code < ERROR_COUNT);
    reply_error_begin(reply, effects_reserve(core->effects, ANSWER_BYTES),
        ANSWER_BYTES, tag, code);
}

void
answer_error(struct core *core, const struct session *session, const char *tag,
    enum error_code code, const char *why)
{
    struct reply reply;

    answer_error_begin(core, &reply, tag, code);
    reply_text(&reply, why != NULL ? why : error_meaning(code));
    answer_end(core, session, &reply);
}

void
answer_limit(struct core *core, const struct session *session, const char *tag,
    const char *limit)
{
    struct reply reply;

    require(limit != NULL);
    answer_error_begin(core, &reply, tag, ERROR_LIMIT);
    reply_pair(&reply, "limit", text_from(limit));
    reply_text(&reply, error_meaning(ERROR_LIMIT));
    answer_end(core, session, &reply);
}

void
answer_ok(
    struct core *core, struct session *session, const struct request_line *line)
{
    struct reply reply = answer_begin(core, line->tag, "OK");

    answer_end(core, session, &reply);
}

uint32_t
listing_limit(const struct request_line *line)
{
    if (!request_has(line, REQUEST_KEY_LIMIT))
        return LISTING_DEFAULT;
    uint64_t limit = line->value[REQUEST_KEY_LIMIT];
    return limit < LISTING_MAX ? (uint32_t)limit : LISTING_MAX;
}

void
listing_end(struct core *core, struct session *session, const char *tag,
    uint32_t shown, uint32_t next)
{
    struct reply reply = answer_begin(core, tag, "OK");

    reply_pair_number(&reply, "n", shown);
    if (next > 0)
        reply_pair_number(&reply, "cursor", next);
    answer_end(core, session, &reply);
}

void
reply_lease(struct reply *reply, bool leased, uint64_t lease_ms)
{
    if (leased)
        reply_pair_number(reply, "lease_ms", lease_ms);
    else
        reply_pair_number(reply, "renewed", 1);
}

void
answer_lease(
    struct core *core, struct reply *reply, const struct ticket *ticket)
{
    bool leased = ticket->hard_end_us != NEVER;

    require(ticket->state == TICKET_HELD);
    reply_lease(reply, leased, leased ? ticket_lease_ms(core, ticket) : 0);
}

#define IGNORES_NOTE  1u
#define IGNORES_LEASE 2u
#define IGNORES_DELAY 4u

unsigned
hold_ignores(const struct ticket *ticket, const struct request *request,
    uint64_t hold_ms)
{
    struct text note = text_make(request->note, request->note_len);
    uint32_t delay_ms = request->ask.delay_ms;
    unsigned ignored = 0;

    if (note.len > 0 && !text_equal(note, ticket_note(ticket)))
        ignored |= IGNORES_NOTE;
    if (hold_ms > 0 && hold_ms != ticket->ask.hold_ms)
        ignored |= IGNORES_LEASE;
    if (delay_ms > 0 && delay_ms != ticket->ask.delay_ms)
        ignored |= IGNORES_DELAY;
    return ignored;
}

void
reply_ignored(struct reply *reply, unsigned ignored)
{
    static const struct text words[] = {
        {",note", 5}, {",lease", 6}, {",delay", 6}};
    char list[sizeof(",note,lease,delay")];
    size_t len = 0;

    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if ((ignored & 1u << i) == 0)
            continue;
        memcpy(list + len, words[i].at, words[i].len);
        len += words[i].len;
    }
    require(len < sizeof(list));
    if (len > 0)
        reply_pair(reply, "ignored", text_make(list + 1, len - 1));
}

struct text
mode_name(enum mode mode)
{
    switch (mode) {
    case MODE_SHARED:
        return TEXT("shared");
    case MODE_UPGRADABLE:
        return TEXT("upgradable");
    case MODE_INTENT:
        return TEXT("intent");
    case MODE_INTENT_SHARED:
        return TEXT("intent-shared");
    case MODE_EXCLUSIVE:
    case MODE_UPGRADE:
        break;
    }
    return TEXT("exclusive");
}

void
reply_mode(struct reply *reply, enum mode mode)
{
    if (mode == MODE_UPGRADE)
        reply_pair_number(reply, "upgrade", 1);
    else if (mode != MODE_EXCLUSIVE)
        reply_pair(reply, "mode", mode_name(mode));
}

void
listing_kind(struct reply *reply, const struct ask *ask)
{
    if (ask->permits_max > 0) {
        reply_pair_number(reply, "limit", ask->permits_max);
        reply_pair_number(reply, "permits", ask->permits);
    } else {
        reply_mode(reply, ask->mode);
    }
}
