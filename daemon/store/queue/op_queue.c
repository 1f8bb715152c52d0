/*
 * The place of an operation: in its lane at a node, parked until there is a
 * route, or done.
 */
#include "daemon/store/queue/queue.h"

#include "daemon/store/node/conn.h"

#include "daemon/base/assert.h"

#define GRACE_US 50000 /* beyond the grace, at most */

void
op_begin(struct op *op)
{
    struct store_op *own = op_own(op);

    *own = (struct store_op){.at_node = NODE_NONE};
    wheel_node_init(&own->timer, 0);
}

uint64_t
op_end_by(const struct op *op, uint64_t due_us)
{
    return op->end_us > 0 && op->end_us < due_us ? op->end_us : due_us;
}

uint64_t
queue_due_us(const struct store *store, const struct op *op, uint16_t index,
    uint64_t now_us)
{
    const struct conn *conn = &store->conns[index];
    uint64_t due_us = op->deadline_us;

    if ((conn_answers(conn) || conn->again) &&
        due_us < now_us + store->settings.command_timeout_us)
        due_us = now_us + store->settings.command_timeout_us;
    return op_end_by(op, due_us);
}

uint64_t
route_due_us(const struct store *store, const struct op *op)
{
    uint64_t named_us = store->anew_us + store->settings.command_timeout_us;

    if (store->anew_us == 0 || store->master != NODE_NONE ||
        named_us < op->deadline_us)
        return op->deadline_us;
    return op_end_by(op, named_us);
}

void
op_enqueue(struct store *store, struct op *op, uint16_t index, uint64_t now_us,
    bool first)
{
    struct store_op *own = op_own(op);
    struct node *node = &store->nodes[index];

    require(node->used && list_empty(&op->link));
    own->at_node = index;
    op->sent_us = 0;
    op->answered_us = 0;
    lane_add(store, node, op, first);
    node->queued++;
    wheel_add(
        &store->wheel, &own->timer, queue_due_us(store, op, index, now_us));
}

void
op_dequeue(struct store *store, struct op *op)
{
    struct store_op *own = op_own(op);

    require(own->at_node != NODE_NONE);
    struct node *node = &store->nodes[own->at_node];

    require(node->queued > 0);
    lane_remove(store, op);
    wheel_remove(&store->wheel, &own->timer);
    own->at_node = NODE_NONE;
    node->queued--;
}

void
op_park(struct store *store, struct op *op, uint64_t until_us)
{
    struct store_op *own = op_own(op);

    require(list_empty(&op->link) && !own->leads);
    own->at_node = NODE_NONE;
    op->sent_us = 0;
    op->answered_us = 0;
    own->asking = false;
    list_push_back(&store->parked, &op->link);
    uint64_t due_us = route_due_us(store, op);
    wheel_add(
        &store->wheel, &own->timer, until_us < due_us ? until_us : due_us);
}

void
op_park_grace(
    struct store *store, struct op *op, uint64_t grace_us, uint64_t until_us)
{
    uint64_t end_us = store->now_us + grace_us;
    uint64_t due_us = end_us + random_below(&store->random, GRACE_US);

    op_own(op)->attempts = 1; /* a new map does not make it sooner */
    op_own(op)->grace_us = end_us;
    op_park(store, op, due_us < until_us ? due_us : until_us);
}

void
store_end_grace(struct store *store)
{
    LIST_EACH (at, &store->parked) {
        struct store_op *own = op_own(container_of(at, struct op, link));
        uint64_t due_us =
            store->now_us + random_below(&store->random, GRACE_US);
        if (own->grace_us > 0 && due_us < own->timer.due_us)
            wheel_add(&store->wheel, &own->timer, due_us);
    }
}

void
op_done(struct store *store, struct op *op, enum op_status status)
{
    require(list_empty(&op->link) && op_own(op)->at_node == NODE_NONE);
    wheel_remove(&store->wheel, &op_own(op)->timer);
    if (status == OP_UNSENT || status == OP_UNKNOWN || status == OP_REFUSED)
        op->result = (struct op_result){
            .senseless = status == OP_REFUSED && op->result.senseless};
    op->result.status = status;
    if (store->topology->results == NULL ||
        !store->topology->results(store, op, status))
        list_push_back(&store->done, &op->link);
}

/* The node that serves the operation; NODE_NONE: none is known. */
static uint16_t
route_of(const struct store *store, const struct op *op)
{
    return op->kind == OP_AUDIT ? op_see(op)->home
                                : store->topology->route(store, op);
}

void
op_route(struct store *store, struct op *op, uint64_t now_us)
{
    uint16_t node = route_of(store, op);

    op_own(op)->grace_us = 0;
    if (store->topology->submit != NULL && !op_own(op)->vote) {
        store->topology->submit(store, op);
        return;
    }
    if (node != NODE_NONE) {
        op_enqueue(store, op, node, now_us, false);
        return;
    }
    store->map_wanted = true;
    op_park(store, op, now_us + ROUTE_RETRY_US);
}

void
store_route_parked(struct store *store, uint64_t now_us)
{
    struct list parked;
    struct list *at;

    list_init(&parked);
    list_splice_back(&parked, &store->parked);
    while ((at = list_pop_front(&parked)) != NULL) {
        struct op *op = container_of(at, struct op, link);
        if (op_own(op)->attempts > 0)
            op_park(store, op, op_own(op)->timer.due_us); /* backs off */
        else
            op_route(store, op, now_us);
    }
}

static void
op_reroute(struct store *store, struct op *op, uint64_t now_us)
{
    if (op_own(op)->asking || route_of(store, op) == op_own(op)->at_node)
        return;
    op_dequeue(store, op);
    op_route(store, op, now_us);
}

void
route_requeue(struct store *store, uint64_t now_us)
{
    for (uint16_t i = 0; i < store->node_count; i++)
        lane_each(store, &store->nodes[i], now_us, op_reroute);
}
