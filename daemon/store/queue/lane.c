/*
 * The lanes of a node: the operations that wait there, one lane for each kind.
 * The sessions of a lane take turns, an operation each, so that a thousand
 * operations of one session keep no other session waiting.
 *
 * A lane has the first operation of each session, the *lead*. The session's
 * other operations stand behind it in their order. A lead that leaves the lane
 * gives its place to the next one. Operations of the broker itself have no
 * session. They count as those of one.
 */
#include "daemon/store/queue/queue.h"

#include "daemon/base/assert.h"

static unsigned
lane_of(const struct op *op)
{
    return op->kind == OP_RELEASE && op->yields ? LANE_YIELDS
                                                : (unsigned)op->kind;
}

static uint64_t
lead_hash(const struct store *store, const struct op *op)
{
    uint16_t node = op_see(op)->at_node;
    uint8_t key[sizeof(op->session) + sizeof(node) + 1];

    memcpy(key, op->session, sizeof(op->session));
    memcpy(key + sizeof(op->session), &node, sizeof(node));
    key[sizeof(key) - 1] = (uint8_t)lane_of(op);
    return hash_bytes(&store->lead_key, key, sizeof(key));
}

static struct op *
lead_find(const struct store *store, const struct op *op, uint64_t hash)
{
    struct table_node *node = table_first(&store->leads, hash);

    for (; node != NULL; node = table_next(node)) {
        struct op *lead = op_whole(container_of(node, struct store_op, lead));
        if (op_own(lead)->at_node == op_see(op)->at_node &&
            lane_of(lead) == lane_of(op) &&
            memcmp(lead->session, op->session, sizeof(op->session)) == 0)
            return lead;
    }
    return NULL;
}

/* Puts an operation into the place of a lead, which leaves the lane. */
static void
lead_replace(struct store *store, struct op *lead, struct op *op)
{
    struct store_op *old = op_own(lead);
    struct store_op *own = op_own(op);

    require(old->leads && !own->leads && list_empty(&op->link));
    require(old->at_node == own->at_node);
    old->leads = false;
    own->leads = true;
    list_init(&own->behind);
    list_splice_back(&own->behind, &old->behind);
    require(list_empty(&old->behind));
    table_remove(&store->leads, &old->lead);
    table_insert(&store->leads, &own->lead, old->lead.hash);
    list_push_back(&lead->link, &op->link);
    list_remove(&lead->link);
}

/* Whether a renewal must overtake the others: its deadline is nearer than that
 * of the first. */
static bool
op_is_pressed(const struct list *lane, const struct op *op)
{
    return op->kind == OP_RENEW && !list_empty(lane) &&
           op->deadline_us <
               container_of(lane->next, struct op, link)->deadline_us;
}

void
lane_add(struct store *store, struct node *node, struct op *op, bool first)
{
    struct list *lane = &node->lanes[lane_of(op)];
    struct store_op *own = op_own(op);
    uint64_t hash = lead_hash(store, op);
    require(!own->leads && list_empty(&op->link));
    struct op *lead = lead_find(store, op, hash);

    if (memcmp(node->last_session, op->session, sizeof(op->session)) != 0)
        node->mixed_us = store->now_us;
    memcpy(node->last_session, op->session, sizeof(op->session));
    first = first || op_is_pressed(lane, op);
    if (lead == NULL) {
        own->leads = true;
        list_init(&own->behind);
        table_insert(&store->leads, &own->lead, hash);
        list_push_back(lane, &op->link);
    } else if (first) {
        lead_replace(store, lead, op);
        list_push_front(&own->behind, &lead->link);
    } else {
        list_push_back(&op_own(lead)->behind, &op->link);
    }
    if (!first)
        return;
    list_remove(&op->link);
    list_push_front(lane, &op->link);
}

void
lane_remove(struct store *store, struct op *op)
{
    struct store_op *own = op_own(op);
    struct list *next = own->leads ? list_pop_front(&own->behind) : NULL;

    require(!list_empty(&op->link));
    if (next != NULL) {
        lead_replace(store, op, container_of(next, struct op, link));
    } else if (own->leads) {
        table_remove(&store->leads, &own->lead);
        own->leads = false;
    }
    list_remove(&op->link);
}

void
lane_each(struct store *store, struct node *node, uint64_t now_us,
    void (*act)(struct store *store, struct op *op, uint64_t now_us))
{
    for (unsigned lane = 0; lane < LANE_COUNT; lane++)
        LIST_EACH_SAFE (at, &node->lanes[lane]) {
            struct op *lead = container_of(at, struct op, link);
            LIST_EACH_SAFE (next, &op_own(lead)->behind) {
                act(store, container_of(next, struct op, link), now_us);
            }
            act(store, lead, now_us);
        }
}
