/*
 * Chained hash table and SipHash-2-4.
 *
 * Invariants: a node is in the bucket of the low bits of its hash; `count` is
 * the number of nodes. The bucket array never moves or grows. A table with more
 * nodes than expected gets slower, and stays right.
 *
 * Called by the core for locks, sessions and tags, and by the store.
 */
#include "daemon/base/table.h"

#include "daemon/base/assert.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 16u

bool
table_init(struct table *table, size_t expected)
{
    size_t buckets = BUCKETS_MIN;

    require(expected <= SIZE_MAX / 4);
    while (buckets < expected)
        buckets *= 2;
    /* Large arrays come from the system as untouched pages of zeros. */
    table->buckets = calloc(buckets, sizeof(struct table_node *));
    table->mask = buckets - 1;
    table->count = 0;
    return table->buckets != NULL;
}

void
table_fini(struct table *table)
{
    require(table->count == 0);
    free(table->buckets);
    memset(table, 0, sizeof(*table));
}

void
table_abandon(struct table *table)
{
    table->count = 0;
    table_fini(table);
}

void
table_insert(struct table *table, struct table_node *node, uint64_t hash)
{
    struct table_node **bucket = &table->buckets[hash & table->mask];

    node->hash = hash;
    node->next = *bucket;
    *bucket = node;
    table->count++;
}

void
table_remove(struct table *table, struct table_node *node)
{
    struct table_node **link = &table->buckets[node->hash & table->mask];

    while (*link != node) {
        require(*link != NULL);
        link = &(*link)->next;
    }
    require(table->count > 0);
    *link = node->next;
    node->next = NULL;
    table->count--;
}

static struct table_node *
first_of(struct table_node *node, uint64_t hash)
{
    while (node != NULL && node->hash != hash)
        node = node->next;
    return node;
}

struct table_node *
table_first(const struct table *table, uint64_t hash)
{
    return first_of(table->buckets[hash & table->mask], hash);
}

struct table_node *
table_next(const struct table_node *node)
{
    return first_of(node->next, node->hash);
}

struct sip {
    uint64_t v0;
    uint64_t v1;
    uint64_t v2;
    uint64_t v3;
};

static inline uint64_t
rotate(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static inline void
sip_round(struct sip *sip)
{
    sip->v0 += sip->v1;
    sip->v1 = rotate(sip->v1, 13) ^ sip->v0;
    sip->v0 = rotate(sip->v0, 32);
    sip->v2 += sip->v3;
    sip->v3 = rotate(sip->v3, 16) ^ sip->v2;
    sip->v0 += sip->v3;
    sip->v3 = rotate(sip->v3, 21) ^ sip->v0;
    sip->v2 += sip->v1;
    sip->v1 = rotate(sip->v1, 17) ^ sip->v2;
    sip->v2 = rotate(sip->v2, 32);
}

static inline void
sip_word(struct sip *sip, uint64_t word)
{
    sip->v3 ^= word;
    sip_round(sip);
    sip_round(sip);
    sip->v0 ^= word;
}

uint64_t
hash_bytes(const struct hash_key *key, const void *bytes, size_t len)
{
    struct sip sip = {
        .v0 = key->word[0] ^ 0x736f6d6570736575u,
        .v1 = key->word[1] ^ 0x646f72616e646f6du,
        .v2 = key->word[0] ^ 0x6c7967656e657261u,
        .v3 = key->word[1] ^ 0x7465646279746573u,
    };
    const unsigned char *at = bytes;
    uint64_t last = (uint64_t)len << 56;
    uint64_t word;

    for (size_t left = len / 8; left > 0; left--, at += 8) {
        memcpy(&word, at, sizeof(word));
        sip_word(&sip, le64toh(word));
    }
    for (size_t i = 0; i < len % 8; i++)
        last |= (uint64_t)at[i] << (8 * i);
    sip_word(&sip, last);
    sip.v2 ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(&sip);
    return sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3;
}
