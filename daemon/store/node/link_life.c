/*
 * A connection begins, is lost, or is given up; what becomes of its calls, and
 * of what waits at its node.
 */
#include "daemon/store/node/link_life.h"

#include "daemon/store/model/times.h"
#include "daemon/store/node/fault.h"
#include "daemon/store/node/link.h"
#include "daemon/store/node/trust.h"
#include "daemon/store/queue/call.h"
#include "daemon/store/queue/lane.h"
#include "daemon/store/queue/op_queue.h"
#include "daemon/store/strict/confirm.h"
#include "daemon/store/topology/route.h"
#include "daemon/store/topology/sentinel.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#define BACKOFF_MAX_US 1000000
#define PING_LEAST_US  250000

void
link_connect(struct store *store, struct link *link, uint64_t now_us)
{
    require(link->state == LINK_DOWN && list_empty(&link->calls));
    link->state = LINK_CONNECTING;
    link->serial++;
    link->wish_connect = true;
    link->opened = false;
    link->demoted = false;
    link->late = false;
    link->deadline_us = now_us + store->settings.connect_timeout_us;
    buffer_clear(&link->out);
}

/* What was on its way is unknown; what was not sent waits for a route. */
static void
link_drop_calls(struct store *store, struct link *link)
{
    while (!list_empty(&link->calls)) {
        struct call *call = container_of(link->calls.next, struct call, link);
        if (call->kind == CALL_SCRIPT)
            call_lost(store, call);
        if (call->kind == CALL_MAP)
            store->map_asked = false;
        call_free(store, link, call);
    }
    confirm_drop(store, link);
    buffer_clear(&link->out);
}

/* Only of a connection that was ready can a command still be asleep. */
static void
link_remember(struct link *link)
{
    link->old_client_id = link->client_id;
    memcpy(link->old_run_id, link->run_id, sizeof(link->old_run_id));
}

/*
 * A connection that was good has ended. One try to replace it is worth waiting
 * for. Where it was idle, Redis or a balancer may close idle connections: the
 * next ones are used more often.
 */
static void
link_was_good(struct link *link, uint64_t now_us)
{
    uint64_t idle_us = (now_us - link->spoke_us) / 2;

    link->again = true;
    if (!link->demoted && list_empty(&link->calls) &&
        idle_us >= PING_LEAST_US && idle_us < link->idle_us)
        link->idle_us = idle_us;
}

/*
 * What waits at a node whose connection is gone waits on, no longer than it
 * would without one, but for the one try that follows the loss of a good one.
 * What was to go there by ASK asks the slot's own node again.
 */
static void
op_wait_on(struct store *store, struct op *op, uint64_t now_us)
{
    uint16_t index = op->at_node;

    if (op->asking) {
        op_dequeue(store, op);
        op_park(store, op, now_us + BACKOFF_MIN_US);
    } else if (!store->links[index].again) {
        wheel_add(&store->wheel, &op->timer, op->deadline_us);
    }
}

struct log_pair
link_use(const struct store *store, const struct link *link)
{
    return link_listens(store, link)      ? log_word("use", "hints")
           : sentinel_is(store, link)     ? log_word("use", "sentinel")
           : link_is_witness(store, link) ? log_word("use", "replicas")
                                          : LOG_NOTHING;
}

void
link_lost(struct store *store, struct link *link, uint64_t now_us,
    enum health_reason reason, const char *why)
{
    char name[80];
    bool was_ready = link->state == LINK_READY;

    if (link->state == LINK_DOWN)
        return;
    bool news = reason != HEALTH_FINE &&
                health_fault(link, reason, text_from(why), now_us);
    news = news || was_ready || link->backoff_us == BACKOFF_MIN_US;
    if (link->state != LINK_CONNECTING)
        count(store->counters, COUNTER_redis_disconnects);
    log_write(news ? LOG_WARN : LOG_DEBUG, "redis_link_lost",
        log_word("node", link_name(store, link, name, sizeof(name))),
        link_use(store, link), log_quoted("why", text_from(why)));
    link->again = false;
    if (link_answers(link) && (!link->wish_close || link->demoted))
        link_was_good(link, now_us);
    link->state = LINK_DOWN;
    link->late = false;
    link->named = false;
    if (was_ready && link->client_id != 0)
        link_remember(link);
    link->client_id = 0;
    link_drop_calls(store, link);
    link->retry_us = now_us + store_jitter(store, link->backoff_us);
    link->backoff_us = link->backoff_us * 2 > BACKOFF_MAX_US
                           ? BACKOFF_MAX_US
                           : link->backoff_us * 2;
    if (link->index >= LINK_SUBSCRIBER) {
        link->node = NODE_NONE;
        return;
    }
    if (link_is_second(link))
        return;
    trust_mute(store, link, now_us);
    lane_each(store, &store->nodes[link->node], now_us, op_wait_on);
    if (store->settings.topology == STORE_CLUSTER)
        route_want_map(store);
    else if (store->settings.topology == STORE_SENTINEL &&
             !sentinel_is(store, link) &&
             (store->master == link->node || store->master == NODE_NONE))
        sentinel_resolve(store, now_us);
}

void
link_give_up(struct store *store, struct link *link, uint64_t now_us,
    enum health_reason reason, const char *why)
{
    link->wish_close = true;
    link->wish_connect = false;
    link_lost(store, link, now_us, reason, why);
}

void
link_abandon(
    struct store *store, struct link *link, uint64_t now_us, const char *why)
{
    link_give_up(store, link, now_us, HEALTH_FINE, why);
}

void
link_unfit(struct store *store, struct link *link, uint64_t now_us,
    enum health_reason reason, struct text said)
{
    struct health_why why = {.reason = reason};
    char name[80];
    char text[HEALTH_TEXT_MAX];

    if (health_fault(link, reason, said, now_us))
        log_write(LOG_ERROR, "redis_unfit",
            log_word("node", link_name(store, link, name, sizeof(name))),
            log_word("reason", health_word(reason)),
            log_quoted("why", text_from(health_text(&why, false, text))));
    link->backoff_us = BACKOFF_MAX_US / 2;
    link_abandon(store, link, now_us, "it does not fit");
}
