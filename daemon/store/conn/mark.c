/*
 * The marker of a node: a broker writes it where it is settled, and reads it
 * where it is not. See history.c.
 */
#include "daemon/store/conn/life.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"
#include "daemon/store/node/script.h"

#include "daemon/base/log.h"

#include <stdio.h>

#define MARK_KEEP_US 10000000 /* the same, where it was there */
#define MARK_IDS     81       /* bytes of the ids in a marker */

static void
mark_value(const struct conn *conn, char out[MARK_IDS])
{
    memcpy(out, conn->run_id, 40);
    out[40] = ' ';
    memcpy(out + 41, conn->id, 40);
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

/* A node that refuses all writes refuses grants. A lack of rights may be one
 * to the marker alone: it is said once, and a broker that starts later has
 * to wait. */
static void
mark_refused(
    struct store *store, struct conn *conn, struct text error, uint64_t now_us)
{
    enum health_reason reason = health_of_error(error);
    char name[80];
    char key[sizeof(store->settings.key_prefix) + sizeof(":settled")];

    if (health_is_of_node(reason)) {
        node_refuses(store, conn, now_us, error);
        return;
    }
    if (conn->history.mark_refused)
        return;
    conn->history.mark_refused = true;
    snprintf(key, sizeof(key), "%s:settled", store->settings.key_prefix);
    log_write(LOG_WARN, "redis_marker_refused",
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_word("key", key), log_foreign("error", error));
}

void
history_marked(struct store *store, struct conn *conn, bool wrote,
    const struct resp *reply, uint64_t now_us)
{
    char value[MARK_IDS];
    uint64_t clock_us;

    if (wrote)
        conn->history.mark_us = now_us + MARK_KEEP_US;
    if (reply->type == RESP_ERROR) {
        mark_refused(store, conn, reply->text, now_us);
    } else if (conn->fault.reason != HEALTH_FINE &&
               !health_is_of_node(conn->fault.reason)) {
        script_probe(store, conn, now_us); /* it is a right to scripts */
    } else if (wrote) {
        health_grants(conn);
    }
    if (wrote && reply->type != RESP_ERROR)
        conn->history.mark_refused = false;
    if (reply->type != RESP_STRING || !mark_read(reply->text, &clock_us))
        return;
    /* A value ahead of the one there is put there again. */
    if (fence_clock_hear(store, clock_us, now_us))
        conn->history.mark_us = now_us;
    if (conn->history.state != HISTORY_NEW)
        return;
    mark_value(conn, value);
    if (memcmp(reply->text.at, value, conn->first ? 40 : MARK_IDS) == 0)
        history_settle(store, conn, "marker");
}

void
history_tick(struct store *store, struct conn *conn, uint64_t now_us)
{
    char key[KEY_BYTES];
    char value[MARK_IDS + 1 + 20];
    uint16_t slot = 0;

    if (conn->history.state != HISTORY_SETTLED &&
        now_us >= conn->history.since_us + peers_settle_us(store, now_us))
        history_settle(store, conn, "time");
    if (conn->history.ids_wanted && !conn->history.ids_asked) {
        conn->history.ids_wanted = false;
        conn->history.ids_asked = conn_ask_ids(store, conn, now_us);
        if (!conn->history.ids_asked)
            history_mute(store, conn, now_us); /* there is no room for that */
    }
    if (conn->unproved && !conn->readonly)
        script_probe(store, conn, now_us);
    if (now_us < conn->history.mark_us || conn->readonly)
        return;
    conn->history.mark_us = now_us + MARK_AGAIN_US;
    size_t len = history_key(store, conn, "settled", &slot, key);
    if (len == 0)
        return;
    mark_value(conn, value);
    value[MARK_IDS] = ' ';
    size_t digits =
        text_from_u64(value + MARK_IDS + 1, fence_clock_us(store, now_us));
    conn_mark(store, conn, now_us, text_make(key, len),
        conn->history.state == HISTORY_SETTLED
            ? text_make(value, MARK_IDS + 1 + digits)
            : TEXT(""));
}

uint64_t
history_next_us(const struct store *store, const struct conn *conn)
{
    uint64_t next_us = conn->readonly ? WHEEL_NEVER : conn->history.mark_us;

    uint64_t settle_us = peers_settle_us(store, store->now_us);

    if (conn->history.state != HISTORY_SETTLED &&
        conn->history.since_us + settle_us < next_us)
        next_us = conn->history.since_us + settle_us;
    return conn->history.ids_wanted && !conn->history.ids_asked ? 0 : next_us;
}
