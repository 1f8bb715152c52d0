/*
 * The marker of a node: a broker writes it where it is settled, and reads it
 * where it is not. See trust.c.
 */
#include "daemon/store/node/mark.h"

#include "daemon/store/node/fault.h"
#include "daemon/store/node/fence_clock.h"
#include "daemon/store/node/link.h"
#include "daemon/store/node/trust.h"
#include "daemon/store/queue/call.h"

#include "daemon/base/log.h"

#include <stdio.h>

#define MARK_KEEP_US 10000000 /* the same, where it was there */
#define MARK_IDS     81       /* bytes of the ids in a marker */

static void
mark_value(const struct link *link, char out[MARK_IDS])
{
    memcpy(out, link->run_id, 40);
    out[40] = ' ';
    memcpy(out + 41, link->id, 40);
}

/* Whether it is a marker, and the fence clock that it tells behind the ids; 0:
 * it tells none. */
static bool
mark_read(struct text mark, uint64_t *clock_us)
{
    *clock_us = 0;
    if (mark.len <= MARK_IDS)
        return mark.len == MARK_IDS;
    return mark.at[MARK_IDS] == ' ' &&
           text_to_u64(
               text_make(mark.at + MARK_IDS + 1, mark.len - MARK_IDS - 1),
               UINT64_MAX / 2, clock_us);
}

/* What refuses all writes refuses grants. A lack of rights may be one to the
 * marker alone: it is said once, and a broker that starts later has to wait. */
static void
mark_refused(
    struct store *store, struct link *link, struct text error, uint64_t now_us)
{
    enum health_reason reason = health_of_error(error);
    char name[80];
    char key[sizeof(store->settings.key_prefix) + sizeof(":settled")];

    if (health_is_of_node(reason)) {
        call_refuses(store, link, now_us, error);
        return;
    }
    if (link->mark_refused)
        return;
    link->mark_refused = true;
    snprintf(key, sizeof(key), "%s:settled", store->settings.key_prefix);
    log_write(LOG_WARN, "redis_marker_refused",
        log_word("node", link_name(store, link, name, sizeof(name))),
        log_word("key", key), log_quoted("error", error));
}

void
trust_marked(struct store *store, struct link *link, bool wrote,
    const struct resp *reply, uint64_t now_us)
{
    char value[MARK_IDS];
    uint64_t clock_us;

    if (wrote)
        link->mark_us = now_us + MARK_KEEP_US;
    if (reply->type == RESP_ERROR) {
        mark_refused(store, link, reply->text, now_us);
    } else if (link->fault.reason != HEALTH_FINE &&
               !health_is_of_node(link->fault.reason)) {
        call_probe(store, link, now_us); /* it is a right to scripts */
    } else if (wrote) {
        health_grants(link);
    }
    if (wrote && reply->type != RESP_ERROR)
        link->mark_refused = false;
    if (reply->type != RESP_STRING || !mark_read(reply->text, &clock_us))
        return;
    /* Where that is ahead of what was put there it is put there again. */
    if (fence_clock_hear(store, clock_us, now_us))
        link->mark_us = now_us;
    if (link->settled || link->inherits)
        return;
    mark_value(link, value);
    if (memcmp(reply->text.at, value, link->first ? 40 : MARK_IDS) == 0)
        trust_settle(store, link, "marker");
}

void
trust_tick(struct store *store, struct link *link, uint64_t now_us)
{
    char key[KEY_BYTES];
    char value[MARK_IDS + 1 + 20];
    uint16_t slot = 0;

    if (!link->settled &&
        now_us >= link->since_us + peers_settle_us(store, now_us))
        trust_settle(store, link, "time");
    if (link->ids_wanted && !link->ids_asked) {
        link->ids_wanted = false;
        link->ids_asked = link_ask_ids(store, link, now_us);
        if (!link->ids_asked)
            trust_mute(store, link, now_us); /* there is no room for that */
    }
    if (link->unproved && !link->readonly)
        call_probe(store, link, now_us);
    if (now_us < link->mark_us || link->readonly)
        return;
    link->mark_us = now_us + MARK_AGAIN_US;
    size_t len = trust_key(store, link, "settled", &slot, key);
    if (len == 0)
        return;
    mark_value(link, value);
    value[MARK_IDS] = ' ';
    size_t digits =
        text_from_u64(value + MARK_IDS + 1, fence_clock_us(store, now_us));
    link_mark(store, link, now_us, text_make(key, len),
        link->settled ? text_make(value, MARK_IDS + 1 + digits) : TEXT(""));
}

uint64_t
trust_next_us(const struct store *store, const struct link *link)
{
    uint64_t next_us = link->readonly ? WHEEL_NEVER : link->mark_us;

    uint64_t settle_us = peers_settle_us(store, store->now_us);

    if (!link->settled && link->since_us + settle_us < next_us)
        next_us = link->since_us + settle_us;
    return link->ids_wanted && !link->ids_asked ? 0 : next_us;
}
