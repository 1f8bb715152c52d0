/*
 * Intrusive chained hash table with a fixed number of buckets. The keyed hash
 * (SipHash-2-4) keeps names of clients from meeting in one bucket.
 *
 * Not uthash: its handle costs 56 bytes an entry and its bucket array grows.
 * Nothing here may allocate after start.
 */
#ifndef HOLDFAST_BASE_TABLE_H
#define HOLDFAST_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_node {
    struct table_node *next; /* ref: next of the bucket */
    uint64_t hash;
};

struct table {
    struct table_node **buckets; /* owned; pages are touched as used */
    uint64_t mask;               /* bucket count - 1 */
    size_t count;                /* nodes in it */
};

/* Makes a table for about `expected` nodes, one a bucket. False: no memory. */
bool table_init(struct table *table, size_t expected);

/* Frees the table, which must be empty. */
void table_fini(struct table *table);

/* Forgets all nodes. Their owner frees them. */
void table_abandon(struct table *table);

/* Adds a node. The table must have no equal one. */
void table_insert(struct table *table, struct table_node *node, uint64_t hash);

/* Removes a node of the table. */
void table_remove(struct table *table, struct table_node *node);

/* The first node with that hash, or NULL. The caller compares its key. */
struct table_node *table_first(const struct table *table, uint64_t hash);

/* The next node with the same hash, or NULL. */
struct table_node *table_next(const struct table_node *node);

struct hash_key {
    uint64_t word[2];
};

/* SipHash-2-4 (Aumasson and Bernstein, 2012) of `len` bytes. */
uint64_t hash_bytes(const struct hash_key *key, const void *bytes, size_t len);

#endif
