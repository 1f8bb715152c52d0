/*
 * A heap by count, and a table by name, over the entries. Halving keeps the
 * order of the counts, and so the heap.
 */
#include "daemon/core/model/contention.h"

#include "daemon/base/assert.h"

/* After so many halvings nothing is left of what was before. */
#define HALVINGS_MAX 64

bool
contention_init(struct contention *contention, uint64_t now_us)
{
    contention->count = 0;
    contention->halved_us = now_us;
    return table_init(&contention->table, CONTENTION_KEPT);
}

void
contention_fini(struct contention *contention)
{
    table_abandon(&contention->table);
}

static struct contended *
contended_find(
    const struct contention *contention, struct text name, uint64_t hash)
{
    for (struct table_node *node = table_first(&contention->table, hash);
         node != NULL; node = table_next(node)) {
        struct contended *entry = container_of(node, struct contended, table);
        if (text_equal(text_make(entry->name, entry->name_len), name))
            return entry;
    }
    return NULL;
}

/* --- the heap ------------------------------------------------------------- */

static void
heap_put(struct contention *contention, uint32_t place, uint8_t which)
{
    contention->heap[place] = which;
    contention->kept[which].place = (uint8_t)place;
}

static uint64_t
heap_count(const struct contention *contention, uint32_t place)
{
    return contention->kept[contention->heap[place]].count;
}

/* The entry at `place` has a larger count than before. */
static void
heap_sink(struct contention *contention, uint32_t place)
{
    uint8_t which = contention->heap[place];
    uint64_t count = contention->kept[which].count;

    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child + 1 < contention->count &&
            heap_count(contention, child + 1) < heap_count(contention, child))
            child++;
        if (child >= contention->count ||
            heap_count(contention, child) >= count)
            break;
        heap_put(contention, place, contention->heap[child]);
        place = child;
    }
    heap_put(contention, place, which);
    require(place == 0 || heap_count(contention, (place - 1) / 2) <= count);
}

/* A new entry, which has no wait so far: it is the least. */
static void
heap_add(struct contention *contention, uint8_t which)
{
    uint32_t place = contention->count++;

    require(contention->kept[which].count == 0);
    while (place > 0) {
        uint32_t parent = (place - 1) / 2;
        heap_put(contention, place, contention->heap[parent]);
        place = parent;
    }
    heap_put(contention, 0, which);
}

/* --- time ----------------------------------------------------------------- */

static void
contended_wait_on(struct contended *entry, uint64_t now_us)
{
    if (now_us <= entry->at_us)
        return;
    entry->waited_us += entry->waiters * (now_us - entry->at_us);
    entry->at_us = now_us;
}

/* Halves all at the time of `contention->halved_us`. */
static void
contention_halve(struct contention *contention)
{
    for (uint32_t i = 0; i < contention->count; i++) {
        struct contended *entry = &contention->kept[i];

        contended_wait_on(entry, contention->halved_us);
        entry->count /= 2;
        entry->seen /= 2;
        entry->waited_us /= 2;
    }
}

static void
contention_fade(struct contention *contention, uint64_t now_us)
{
    const uint64_t whole_us =
        (uint64_t)HALVINGS_MAX * (uint64_t)CONTENTION_HALF_US;

    if (now_us < contention->halved_us)
        return;
    if (now_us - contention->halved_us > whole_us + CONTENTION_HALF_US) {
        uint64_t minutes =
            (now_us - contention->halved_us) / CONTENTION_HALF_US;
        contention->halved_us += (minutes - HALVINGS_MAX) * CONTENTION_HALF_US;
    }
    while (now_us - contention->halved_us >= CONTENTION_HALF_US) {
        contention->halved_us += CONTENTION_HALF_US;
        contention_halve(contention);
    }
}

/* --- waits ---------------------------------------------------------------- */

/* An entry for a name that has none: a new one, or that of the name with the
 * fewest waits, whose count it goes on with. */
static struct contended *
contended_obtain(struct contention *contention, struct text name, uint64_t hash)
{
    struct contended *entry;

    require(name.len <= sizeof(entry->name));
    if (contention->count < CONTENTION_KEPT) {
        entry = &contention->kept[contention->count];
        entry->count = 0;
        heap_add(contention, (uint8_t)contention->count);
    } else {
        entry = &contention->kept[contention->heap[0]];
        table_remove(&contention->table, &entry->table);
    }
    memcpy(entry->name, name.at, name.len);
    entry->name_len = (uint8_t)name.len;
    entry->seen = 0;
    entry->waited_us = 0;
    table_insert(&contention->table, &entry->table, hash);
    require(contention->table.count == contention->count);
    return entry;
}

void
contention_begins(struct contention *contention, struct text name,
    uint64_t hash, uint32_t waiters, uint64_t now_us)
{
    contention_fade(contention, now_us);
    struct contended *entry = contended_find(contention, name, hash);
    if (entry == NULL) {
        entry = contended_obtain(contention, name, hash);
        entry->at_us = now_us;
    }
    contended_wait_on(entry, now_us);
    require(waiters > 0 && entry->seen <= entry->count);
    entry->waiters = waiters;
    entry->count++;
    entry->seen++;
    heap_sink(contention, entry->place);
}

void
contention_ends(struct contention *contention, struct text name, uint64_t hash,
    uint32_t waiters, uint64_t now_us)
{
    contention_fade(contention, now_us);
    struct contended *entry = contended_find(contention, name, hash);
    if (entry == NULL)
        return;
    require(entry->waiters > waiters);
    contended_wait_on(entry, now_us);
    entry->waiters = waiters;
}

/* --- reading -------------------------------------------------------------- */

static bool
contended_is_more(const struct contended *entry, const struct contended *than)
{
    if (entry->seen != than->seen)
        return entry->seen > than->seen;
    return entry->waited_us > than->waited_us;
}

uint32_t
contention_order(struct contention *contention, uint64_t now_us,
    uint8_t order[CONTENTION_KEPT])
{
    const struct contended *kept = contention->kept;
    uint32_t count = 0;

    contention_fade(contention, now_us);
    for (uint32_t i = 0; i < contention->count; i++) {
        uint32_t place = count;

        contended_wait_on(&contention->kept[i], now_us);
        if (kept[i].seen == 0 && kept[i].waiters == 0)
            continue; /* it has faded */
        while (
            place > 0 && contended_is_more(&kept[i], &kept[order[place - 1]])) {
            order[place] = order[place - 1];
            place--;
        }
        order[place] = (uint8_t)i;
        count++;
    }
    return count;
}

void
contention_check(const struct contention *contention)
{
    require(contention->count <= CONTENTION_KEPT);
    require(contention->table.count == contention->count);
    for (uint32_t i = 0; i < contention->count; i++) {
        const struct contended *entry = &contention->kept[i];

        require(entry->seen <= entry->count);
        require(contention->heap[entry->place] == i);
        require(i == 0 || heap_count(contention, (i - 1) / 2) <=
                              heap_count(contention, i));
        require(
            contended_find(contention, text_make(entry->name, entry->name_len),
                entry->table.hash) == entry);
    }
}
