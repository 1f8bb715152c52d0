/*
 * TOP: the locks that are waited for most, the oldest holds, the oldest waits.
 *
 * Holds and waits are on lists by age (ages.c). So the request for some of the
 * oldest costs no more than these, and a bounded number of looks where the user
 * may not see all of them.
 */
#include "daemon/core/answer/answer.h"
#include "daemon/core/model/handlers.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/ticket.h"

#include "daemon/base/assert.h"

#define TOP_DEFAULT 10
#define TOP_MAX     100 /* of each kind */
/* Places of a list that one request looks at. */
#define TOP_LOOKS 4096

static void
contended_item(struct core *core, struct session *session, const char *tag,
    const struct contended *entry)
{
    struct reply reply = answer_begin(core, tag, "ITEM");

    require(entry->seen <= entry->count);
    reply_pair(&reply, "kind", TEXT("contended"));
    reply_pair(&reply, "name", text_make(entry->name, entry->name_len));
    reply_pair_number(&reply, "waits", entry->seen);
    if (entry->count > entry->seen)
        reply_pair_number(&reply, "unseen", entry->count - entry->seen);
    reply_pair_number(&reply, "waited_ms", entry->waited_us / 1000);
    reply_pair_number(&reply, "waiters", entry->waiters);
    answer_end(core, session, &reply);
}

static uint32_t
top_contended(
    struct core *core, struct session *session, const char *tag, uint32_t limit)
{
    uint8_t order[CONTENTION_KEPT];
    uint32_t count = contention_order(&core->contention, core->now_us, order);
    uint32_t shown = 0;

    require(count <= core->contention.count);
    for (uint32_t i = 0; i < count && shown < limit; i++) {
        const struct contended *entry = &core->contention.kept[order[i]];
        if (!auth_sees(core, session, text_make(entry->name, entry->name_len)))
            continue;
        contended_item(core, session, tag, entry);
        shown++;
    }
    return shown;
}

static void
ticket_item(struct core *core, struct session *session, const char *tag,
    const struct ticket *ticket)
{
    struct reply reply = answer_begin(core, tag, "ITEM");
    bool held = ticket->state == TICKET_HELD;
    char short_id[SHORT_ID_BYTES + 1];

    require(ticket_since_us(ticket) <= core->now_us);
    core_short_id(ticket->session_id, short_id);
    reply_pair(&reply, "kind", held ? TEXT("holder") : TEXT("waiter"));
    reply_pair(&reply, "name", lock_name(ticket->lock));
    reply_pair_number(
        &reply, "age_ms", (core->now_us - ticket_since_us(ticket)) / 1000);
    reply_pair(&reply, "session", text_from(short_id));
    if (held)
        reply_pair_number(&reply, "fence", ticket->fence);
    listing_kind(&reply, &ticket->ask);
    reply_pair_if(&reply, "client", ticket_client(ticket));
    reply_pair_if(&reply, "owner", ticket_owner(ticket));
    reply_pair_if(&reply, "note", ticket_note(ticket));
    answer_end(core, session, &reply);
}

/* The oldest holds or waits; *cut: there may be more that the session may see.
 */
static uint32_t
top_oldest(struct core *core, struct session *session, const char *tag,
    bool holds, uint32_t limit, bool *cut)
{
    const struct ticket *ticket;
    uint32_t looked = 0;
    uint32_t shown = 0;
    struct walk walk;

    walk_begin(&walk, core, holds);
    while (shown < limit && (ticket = walk_next(&walk)) != NULL) {
        require((ticket->state == TICKET_HELD) == holds);
        if (looked++ == TOP_LOOKS) {
            *cut = true;
            break;
        }
        if (!auth_sees(core, session, lock_name(ticket->lock)))
            continue;
        ticket_item(core, session, tag, ticket);
        shown++;
    }
    return shown;
}

/* All that there is fits into one answer. */
void
top_list(
    struct core *core, struct session *session, const struct request_line *line)
{
    const char *tag = line->tag;
    uint32_t limit = TOP_DEFAULT;
    uint32_t shown;
    bool cut = false;

    if (request_has(line, REQUEST_KEY_LIMIT)) {
        uint64_t asked = line->value[REQUEST_KEY_LIMIT];
        limit = asked < TOP_MAX ? (uint32_t)asked : TOP_MAX;
    }
    require(limit <= TOP_MAX);
    shown = top_contended(core, session, tag, limit);
    shown += top_oldest(core, session, tag, true, limit, &cut);
    shown += top_oldest(core, session, tag, false, limit, &cut);
    struct reply reply = answer_begin(core, tag, "OK");
    reply_pair_number(&reply, "n", shown);
    if (cut)
        reply_pair_number(&reply, "cut", 1);
    answer_end(core, session, &reply);
}
