/*
 * What time does to a connection: it connects again, asks what is due, is late,
 * or is given up.
 */
#include "daemon/store/node/link_time.h"

#include "daemon/store/model/times.h"
#include "daemon/store/node/link.h"
#include "daemon/store/node/link_life.h"
#include "daemon/store/node/mark.h"
#include "daemon/store/node/peers.h"
#include "daemon/store/node/trust.h"
#include "daemon/store/queue/call.h"
#include "daemon/store/strict/confirm.h"
#include "daemon/store/strict/replicas.h"
#include "daemon/store/topology/route.h"
#include "daemon/store/topology/sentinel.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <inttypes.h>

/* Any Sentinel that answers. */
static uint16_t
switches_host(const struct store *store)
{
    for (uint16_t i = 0; i < store->node_count; i++)
        if (store->nodes[i].used && store->nodes[i].sentinel &&
            store->links[i].state == LINK_READY)
            return i;
    return NODE_NONE;
}

/* Of a node's link: whether a second one is wanted beside it. */
static bool
link_wants_second(const struct link *link)
{
    return link->state == LINK_READY && !link->readonly;
}

/* Which node a link that is down is to connect to; NODE_NONE: to none now. */
static uint16_t
link_host(const struct store *store, const struct link *link)
{
    if (link->index == LINK_SUBSCRIBER)
        return store->quorum != NULL ? NODE_NONE : link_subscriber_host(store);
    if (link->index == LINK_SWITCHES)
        return switches_host(store);
    if (link_is_second(link))
        return link_wants_second(&store->links[link->node]) ? link->node
                                                            : NODE_NONE;
    /* Of several that Sentinels may name only the master is one. */
    if (store->settings.topology == STORE_SENTINEL &&
        !store->nodes[link->node].sentinel && link->node != store->master)
        return NODE_NONE;
    return link->node;
}

/* Whether it asks a Sentinel who the master is. */
static bool
link_polls(const struct store *store, const struct link *link)
{
    return sentinel_is(store, link) && link->index != LINK_SWITCHES;
}

/* Whether late answers count: those to renewals do, and no other node would
 * tell hints sooner. */
static bool
link_may_be_late(const struct store *store, const struct link *link)
{
    bool elsewhere = store->settings.topology == STORE_CLUSTER &&
                     link->index == LINK_SUBSCRIBER;

    return link->state == LINK_READY && !sentinel_is(store, link) && !elsewhere;
}

/* Until when the oldest call is waited for. */
static uint64_t
link_until_us(const struct store *store, const struct link *link)
{
    uint64_t wait_us = store_silence_us(store);

    if (!link_may_be_late(store, link) && link->redis_timeout_us == 0)
        wait_us = store->settings.command_timeout_us;
    else if (!link_may_be_late(store, link))
        wait_us = link->redis_timeout_us;
    return container_of(link->calls.next, struct call, link)->sent_us + wait_us;
}

/* It may be slow, or stopped, or have been replaced: whoever knows of another
 * node in its place is asked. */
static void
link_is_late(struct store *store, struct link *link, uint64_t now_us)
{
    uint64_t timeout_ms = store->settings.command_timeout_us / 1000;
    char name[80];

    link->late = true;
    count(store->counters, COUNTER_redis_timeouts);
    if (link_serves(store, link) &&
        (link->late_us == 0 || now_us >= link->late_us + SAID_AGAIN_US)) {
        link->late_us = now_us;
        log_write(LOG_WARN, "redis_late",
            log_word("node", link_name(store, link, name, sizeof(name))),
            log_number("waited_ms", timeout_ms),
            log_quoted("advice",
                TEXT("Redis answers later than redis.command_timeout: see "
                     "SLOWLOG GET, or raise it")));
    }
    LIST_EACH (at, &link->calls) {
        struct call *call = container_of(at, struct call, link);
        if (call->kind != CALL_MAP)
            continue;
        call->kind = CALL_PING; /* another node is asked */
        store->map_asked = false;
    }
    if (link_serves(store, link))
        trust_mute(store, link, now_us);
    route_want_map(store);
}

/* Operations whose time is over are given back. Their calls' answers count no
 * more. */
static void
link_give_back(struct store *store, const struct link *link, uint64_t now_us)
{
    LIST_EACH (at, &link->calls) {
        struct call *call = container_of(at, struct call, link);
        if (now_us < call->sent_us + store->settings.command_timeout_us)
            return;
        if (now_us >= call_due_us(store, call))
            call_lost(store, call);
    }
}

/* Calls are under way. */
static void
link_await(struct store *store, struct link *link, uint64_t now_us)
{
    if (now_us < link_in_time_us(store, link))
        return;
    bool replaced = link->index < LINK_WITNESS &&
                    store->settings.topology == STORE_CLUSTER &&
                    !store->nodes[link->node].mapped;
    uint64_t until_us = link_until_us(store, link);
    if (now_us >= until_us || replaced) {
        uint64_t redis_timeout_us = 2 * link->redis_timeout_us;
        if (redis_timeout_us == 0)
            redis_timeout_us = 2 * store->settings.command_timeout_us;
        link->redis_timeout_us = redis_timeout_us < store_silence_us(store)
                                     ? redis_timeout_us
                                     : store_silence_us(store);
        if (!link->late)
            count(store->counters, COUNTER_redis_timeouts);
        link_give_up(store, link, now_us, HEALTH_SILENT, "no answer in time");
        return;
    }
    if (!link->late && link_may_be_late(store, link))
        link_is_late(store, link, now_us);
    link_give_back(store, link, now_us);
}

/* When to look at calls under way again. */
static uint64_t
link_await_us(const struct store *store, const struct link *link)
{
    uint64_t next_us = link_in_time_us(store, link);

    if (!link->late &&
        (link_may_be_late(store, link) || link->redis_timeout_us == 0))
        return next_us;
    next_us = link_until_us(store, link);
    LIST_EACH (at, &link->calls) {
        const struct call *call = container_of(at, struct call, link);
        uint64_t due_us = call_due_us(store, call);
        next_us = due_us < next_us ? due_us : next_us;
    }
    return next_us;
}

static void
link_down_tick(struct store *store, struct link *link, uint64_t now_us)
{
    uint16_t host = link_host(store, link);

    if (now_us < link->retry_us || host == NODE_NONE)
        return;
    link->node = host;
    link_connect(store, link, now_us);
}

static void
link_connecting_tick(struct store *store, struct link *link, uint64_t now_us)
{
    if (now_us < link->deadline_us)
        return;
    if (link->opened)
        link_give_up(store, link, now_us, HEALTH_TLS_FAILED,
            "no answer to the TLS handshake in time");
    else
        link_give_up(
            store, link, now_us, HEALTH_SILENT, "connecting takes too long");
}

void
link_tick(struct store *store, struct link *link, uint64_t now_us)
{
    if (link->state == LINK_DOWN) {
        link_down_tick(store, link, now_us);
        return;
    }
    if (link_is_second(link) && !link_wants_second(&store->links[link->node])) {
        link_abandon(store, link, now_us, "nothing is asked there");
        return;
    }
    if (link->state == LINK_CONNECTING) {
        link_connecting_tick(store, link, now_us);
        return;
    }
    if (link_answers(link) && link_serves(store, link))
        trust_tick(store, link, now_us);
    if (link->state == LINK_READY && link_serves(store, link))
        peers_tick(store, link, now_us);
    if (link->state == LINK_READY && link_serves(store, link))
        confirm_tick(store, link, now_us);
    if (!list_empty(&link->calls)) {
        link_await(store, link, now_us);
        return;
    }
    if (link->state == LINK_READY && link_polls(store, link)) {
        sentinel_link_tick(store, link, now_us);
        return;
    }
    if (link->state == LINK_READY && link_is_witness(store, link)) {
        if (now_us >= replicas_due_us(store, link))
            confirm_ask(store, &store->links[link->node], now_us);
        return;
    }
    if (link->state != LINK_READY || now_us < link->spoke_us + link->idle_us)
        return;
    if (!link_serves(store, link)) {
        LINK_SEND(store, link, CALL_PING, now_us, TEXT("PING"));
        return;
    }
    /* Who has long asked nothing has to hear of it where the clock steps, or
     * the history is another one; and of a replica that has taken over. */
    if (store->settings.settle_us > 0 || link->readonly)
        (void)link_ask_ids(store, link, now_us);
    LINK_SEND(store, link, CALL_TIME, now_us, TEXT("TIME"));
}

uint64_t
link_next_us(const struct store *store, const struct link *link)
{
    switch (link->state) {
    case LINK_DOWN:
        return link_host(store, link) == NODE_NONE ? WHEEL_NEVER
                                                   : link->retry_us;
    case LINK_CONNECTING:
        return link->deadline_us;
    case LINK_GREETING:
    case LINK_PREPARING:
    case LINK_READY:
        break;
    }
    uint64_t due_us;
    if (!list_empty(&link->calls))
        due_us = link_await_us(store, link);
    else if (link_polls(store, link))
        return sentinel_ask_due_us(store, link);
    else if (link_is_witness(store, link))
        due_us = replicas_due_us(store, link);
    else
        due_us = link->spoke_us + link->idle_us;
    if (link->state != LINK_READY || !link_serves(store, link))
        return due_us;
    uint64_t next_us = link->late ? WHEEL_NEVER : trust_next_us(store, link);
    uint64_t confirm_us = confirm_next_us(store, link);
    uint64_t peers_us = peers_next_us(store, link);
    next_us = next_us < confirm_us ? next_us : confirm_us;
    next_us = next_us < peers_us ? next_us : peers_us;
    return next_us < due_us ? next_us : due_us;
}
