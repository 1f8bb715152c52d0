/*
 * The timer wheel.
 *
 * A slot of a level spans the 64 slots of the level below. Slots of level 0 are
 * single ticks. Every level but the last has nodes of only one slot of the next
 * level: that of `tick`. So its slots do not wrap, and its nodes are due before
 * those of the next level. The last level wraps. Nodes beyond it are in its
 * farthest slot, and move on when `tick` reaches that slot.
 *
 * When `tick` enters a slot, its nodes move to the levels below at once. The
 * slot may have very many nodes. So each wheel_pop() that finds nothing moves
 * some nodes of the next slots to lists of their own (`ahead`). These replace
 * the level below when `tick` enters the slot. The `tick_slot` of such a node
 * is its later slot.
 *
 * Invariants (wheel_check): on level 0, the slot of a node is at `tick` or
 * later. On other levels it is later than the slot of `tick`. A bit in
 * `occupied` is set if the slot has nodes, also ahead. `due` has only nodes of
 * ticks before `tick`.
 *
 * Called by the core for its deadlines and by the store for its time-outs.
 */
#include "daemon/base/wheel.h"

#include "daemon/base/assert.h"

#include <stddef.h>

#define SLOT_BITS    6
#define SLOT_MASK    (WHEEL_SLOTS - 1u)
#define LEVEL_LAST   (WHEEL_LEVELS - 1u)
#define SLOT_DUE     (WHEEL_LEVELS * (uint32_t)WHEEL_SLOTS)
#define LEVELS_AHEAD (WHEEL_LEVELS - 2u)
#define AHEAD_ONCE   256 /* nodes that are moved ahead together */

_Static_assert(1 << SLOT_BITS == WHEEL_SLOTS, "a slot count of bits");

static unsigned
level_shift(unsigned level)
{
    return level * SLOT_BITS;
}

/* The first tick that begins at or after the time. */
static uint64_t
tick_at_or_after(uint64_t time_us)
{
    uint64_t tick = time_us >> WHEEL_TICK_SHIFT;
    uint64_t rest = time_us & ((1u << WHEEL_TICK_SHIFT) - 1);

    return rest == 0 ? tick : tick + 1;
}

/* The slot of a node with that tick: level * WHEEL_SLOTS + slot; or SLOT_DUE */
static uint32_t
slot_of(const struct wheel *wheel, uint64_t tick)
{
    uint64_t differ = tick ^ wheel->tick;
    unsigned level;
    uint64_t block;

    if (tick < wheel->tick)
        return SLOT_DUE;
    if (differ == 0)
        return (uint32_t)(tick & SLOT_MASK);
    level = (63u - (unsigned)__builtin_clzll(differ)) / SLOT_BITS;
    if (level < LEVEL_LAST) {
        block = tick >> level_shift(level);
    } else {
        uint64_t farthest = wheel->tick >> level_shift(LEVEL_LAST);

        level = LEVEL_LAST;
        farthest += WHEEL_SLOTS - 1;
        block = tick >> level_shift(LEVEL_LAST);
        if (block > farthest)
            block = farthest;
    }
    return level * WHEEL_SLOTS + (uint32_t)(block & SLOT_MASK);
}

static struct list *
slot_list(struct wheel *wheel, uint32_t slot)
{
    if (slot == SLOT_DUE)
        return &wheel->due;
    return &wheel->slots[slot / WHEEL_SLOTS][slot % WHEEL_SLOTS];
}

static struct wheel_node *
node_of(struct list *link)
{
    return container_of(link, struct wheel_node, link);
}

/* The slot of a level that `tick` enters next. */
static unsigned
next_slot(const struct wheel *wheel, unsigned level)
{
    return (unsigned)((wheel->tick >> level_shift(level)) + 1) & SLOT_MASK;
}

/* Whether the node is sorted for the next slot of the level above its own. */
static bool
is_ahead(const struct wheel *wheel, const struct wheel_node *node)
{
    unsigned level = node->tick_slot / WHEEL_SLOTS;
    unsigned shift = level_shift(level + 1);

    return level < LEVELS_AHEAD &&
           tick_at_or_after(node->due_us) >> shift != wheel->tick >> shift;
}

static bool
slot_is_empty(const struct wheel *wheel, unsigned level, unsigned slot)
{
    bool sorted = level > 0 && level <= LEVELS_AHEAD &&
                  slot == next_slot(wheel, level) &&
                  wheel->ahead_count[level - 1] > 0;

    return !sorted && list_empty(&wheel->slots[level][slot]);
}

static void
place(struct wheel *wheel, struct wheel_node *node)
{
    uint32_t slot = slot_of(wheel, tick_at_or_after(node->due_us));

    node->tick_slot = slot;
    list_push_back(slot_list(wheel, slot), &node->link);
    if (slot != SLOT_DUE)
        wheel->occupied[slot / WHEEL_SLOTS] |= 1ull << slot % WHEEL_SLOTS;
}

/* Takes the node off its list and keeps the bit of its slot right. */
static void
unplace(struct wheel *wheel, struct wheel_node *node)
{
    unsigned level = node->tick_slot / WHEEL_SLOTS;
    unsigned slot = node->tick_slot % WHEEL_SLOTS;

    list_remove(&node->link);
    if (node->tick_slot == SLOT_DUE)
        return;
    if (is_ahead(wheel, node)) {
        require(wheel->ahead_count[level] > 0);
        wheel->ahead_count[level]--;
        slot = next_slot(wheel, ++level);
    }
    if (slot_is_empty(wheel, level, slot))
        wheel->occupied[level] &= ~(1ull << slot);
}

void
wheel_init(struct wheel *wheel, uint64_t now_us)
{
    wheel->tick = now_us >> WHEEL_TICK_SHIFT;
    wheel->count = 0;
    list_init(&wheel->due);
    for (unsigned level = 0; level < LEVELS_AHEAD; level++) {
        wheel->ahead_count[level] = 0;
        for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++)
            list_init(&wheel->ahead[level][slot]);
    }
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        wheel->occupied[level] = 0;
        for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++)
            list_init(&wheel->slots[level][slot]);
    }
}

void
wheel_node_init(struct wheel_node *node, uint32_t kind)
{
    list_init(&node->link);
    node->due_us = WHEEL_NEVER;
    node->tick_slot = SLOT_DUE;
    node->kind = kind;
}

void
wheel_add(struct wheel *wheel, struct wheel_node *node, uint64_t due_us)
{
    wheel_remove(wheel, node);
    if (due_us == WHEEL_NEVER)
        return;
    node->due_us = due_us;
    place(wheel, node);
    wheel->count++;
}

void
wheel_remove(struct wheel *wheel, struct wheel_node *node)
{
    if (!wheel_node_set(node))
        return;
    require(wheel->count > 0 && node->tick_slot <= SLOT_DUE);
    unplace(wheel, node);
    node->due_us = WHEEL_NEVER;
    wheel->count--;
}

/* The nodes that were sorted ahead become those of this level. */
static void
take_ahead(struct wheel *wheel, unsigned level)
{
    for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++) {
        if (list_empty(&wheel->ahead[level][slot]))
            continue;
        list_splice_back(
            &wheel->slots[level][slot], &wheel->ahead[level][slot]);
        wheel->occupied[level] |= 1ull << slot;
    }
    wheel->ahead_count[level] = 0;
}

/* Moves all nodes of a slot to their slots as seen from `tick`. */
static void
cascade(struct wheel *wheel, unsigned level)
{
    uint64_t slot = wheel->tick >> level_shift(level) & SLOT_MASK;
    struct list moved;

    if ((wheel->occupied[level] >> slot & 1) == 0)
        return;
    if (level <= LEVELS_AHEAD && wheel->ahead_count[level - 1] > 0)
        take_ahead(wheel, level - 1);
    list_init(&moved);
    list_splice_back(&moved, &wheel->slots[level][slot]);
    wheel->occupied[level] &= ~(1ull << slot);
    while (!list_empty(&moved))
        place(wheel, node_of(list_pop_front(&moved)));
}

/*
 * Makes `tick` the wheel's own. No slot may begin between the two: those that
 * begin at `tick` are emptied into the levels below.
 */
static void
turn_to(struct wheel *wheel, uint64_t tick)
{
    unsigned level = 0;

    wheel->tick = tick;
    while (level < LEVEL_LAST &&
           (tick & ((1ull << level_shift(level + 1)) - 1)) == 0)
        level++;
    for (; level > 0; level--)
        cascade(wheel, level);
}

/* Sorts some nodes of the slots that `tick` enters next. The nodes of a slot
 * that is the first of its level are still on a level above it. */
static void
sort_ahead(struct wheel *wheel)
{
    unsigned left = AHEAD_ONCE;

    for (unsigned level = 1; level <= LEVELS_AHEAD; level++) {
        unsigned next = next_slot(wheel, level);
        struct list *nodes = &wheel->slots[level][next];
        while (next > 0 && left > 0 && !list_empty(nodes)) {
            struct wheel_node *node = node_of(list_pop_front(nodes));
            uint64_t block =
                tick_at_or_after(node->due_us) >> level_shift(level - 1);
            unsigned slot = (unsigned)block & SLOT_MASK;
            node->tick_slot = (level - 1) * WHEEL_SLOTS + slot;
            list_push_back(&wheel->ahead[level - 1][slot], &node->link);
            wheel->ahead_count[level - 1]++;
            left--;
        }
    }
}

/* The first tick of the earliest slot that has nodes; WHEEL_NEVER: none. */
static uint64_t
next_tick(const struct wheel *wheel)
{
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        uint64_t occupied = wheel->occupied[level];
        uint64_t block = wheel->tick >> level_shift(level);
        unsigned here = (unsigned)(block & SLOT_MASK);

        if (occupied == 0)
            continue;
        /* rotated: bit 0 is the slot of `tick` */
        if (here != 0)
            occupied = occupied >> here | occupied << (WHEEL_SLOTS - here);
        block += (unsigned)__builtin_ctzll(occupied);
        return block << level_shift(level);
    }
    return WHEEL_NEVER;
}

/* Gives out the nodes of the wheel's own tick and goes on to the next. */
static void
give_out_tick(struct wheel *wheel)
{
    uint64_t slot = wheel->tick & SLOT_MASK;
    struct list *nodes = &wheel->slots[0][slot];

    LIST_EACH (link, nodes) {
        node_of(link)->tick_slot = SLOT_DUE;
    }
    list_splice_back(&wheel->due, nodes);
    wheel->occupied[0] &= ~(1ull << slot);
    turn_to(wheel, wheel->tick + 1);
}

struct wheel_node *
wheel_pop(struct wheel *wheel, uint64_t now_us)
{
    uint64_t now_tick = now_us >> WHEEL_TICK_SHIFT;
    struct wheel_node *node;

    while (list_empty(&wheel->due)) {
        uint64_t next = next_tick(wheel);

        if (next > now_tick) {
            if (wheel->tick <= now_tick)
                turn_to(wheel, now_tick + 1);
            sort_ahead(wheel);
            return NULL;
        }
        turn_to(wheel, next);
        give_out_tick(wheel);
    }
    node = node_of(wheel->due.next);
    wheel_remove(wheel, node);
    return node;
}

uint64_t
wheel_next_us(const struct wheel *wheel)
{
    uint64_t tick;

    if (!list_empty(&wheel->due))
        return (wheel->tick - 1) << WHEEL_TICK_SHIFT;
    tick = next_tick(wheel);
    if (tick > WHEEL_NEVER >> WHEEL_TICK_SHIFT)
        return WHEEL_NEVER;
    return tick << WHEEL_TICK_SHIFT;
}

/* Checks the nodes of a slot: each is in its own, none overdue or out of range.
 */
static size_t
check_slot(const struct wheel *wheel, unsigned level, unsigned slot)
{
    const struct list *nodes = &wheel->slots[level][slot];
    uint64_t block = wheel->tick >> level_shift(level);
    bool bit = (wheel->occupied[level] >> slot & 1) == 1;
    size_t count = 0;

    require(bit == !slot_is_empty(wheel, level, slot));
    require(level == 0 || !bit || slot != (block & SLOT_MASK));
    require(level == LEVEL_LAST || !bit || slot >= (block & SLOT_MASK));
    LIST_EACH (link, nodes) {
        const struct wheel_node *node = node_of(link);
        uint64_t due = tick_at_or_after(node->due_us);

        require(wheel_node_set(node));
        require(node->tick_slot == level * WHEEL_SLOTS + slot);
        require(due >= wheel->tick);
        if (level < LEVEL_LAST) {
            require(due >> level_shift(level + 1) == block >> SLOT_BITS);
            require((due >> level_shift(level) & SLOT_MASK) == slot);
        }
        count++;
    }
    return count;
}

/* Checks the nodes that are sorted ahead: each is in its slot of the next
 * block. */
static size_t
check_ahead(const struct wheel *wheel, unsigned level)
{
    unsigned shift = level_shift(level + 1);
    size_t count = 0;

    for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++)
        LIST_EACH (link, &wheel->ahead[level][slot]) {
            const struct wheel_node *node = node_of(link);
            uint64_t due = tick_at_or_after(node->due_us);

            require(wheel_node_set(node) && is_ahead(wheel, node));
            require(node->tick_slot == level * WHEEL_SLOTS + slot);
            require(due >> shift == (wheel->tick >> shift) + 1);
            require((due >> level_shift(level) & SLOT_MASK) == slot);
            count++;
        }
    require(count == wheel->ahead_count[level]);
    return count;
}

void
wheel_check(const struct wheel *wheel)
{
    size_t count = 0;

    for (unsigned level = 0; level < LEVELS_AHEAD; level++)
        count += check_ahead(wheel, level);

    LIST_EACH (link, &wheel->due) {
        const struct wheel_node *node = node_of(link);

        require(wheel_node_set(node) && node->tick_slot == SLOT_DUE);
        require(tick_at_or_after(node->due_us) < wheel->tick);
        count++;
    }
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++)
            count += check_slot(wheel, level, slot);
    }
    require(count == wheel->count);
}
