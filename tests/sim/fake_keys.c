/*
 * The keys of a fake Redis: a hash table of byte strings, with expiry, and with
 * a note of what the command under way has written.
 *
 * The table is never walked: whoever needs all keys uses the array beside it,
 * whose order follows from the calls alone. An expired key goes when it is
 * looked for, or in a sweep now and then; at a replica when its master says so.
 */
#include "tests/sim/fake_state.h"

#include "daemon/base/slot.h"

#include <stdlib.h>

#define BUCKETS_FIRST 64

void
keys_init(struct keyspace *keys)
{
    memset(keys, 0, sizeof(*keys));
    keys->bucket_count = BUCKETS_FIRST;
    keys->buckets = memory_get(NULL, BUCKETS_FIRST * sizeof(struct key *));
    memset(keys->buckets, 0, BUCKETS_FIRST * sizeof(struct key *));
    keys->due_ms = INT64_MAX;
}

static void
key_free(struct key *key)
{
    bytes_fini(&key->value);
    free(key);
}

void
keys_fini(struct keyspace *keys)
{
    require(keys->touched_count == 0);
    for (size_t i = 0; i < keys->count; i++)
        key_free(keys->all[i]);
    free(keys->buckets);
    free(keys->all);
    free(keys->touched);
    memset(keys, 0, sizeof(*keys));
}

/* Not keyed: nobody attacks a simulation. Eight bytes at a time. */
static uint64_t
hash_of(struct text name)
{
    uint64_t hash = 0x9e3779b97f4a7c15u ^ name.len;
    size_t at = 0;

    while (at < name.len) {
        uint64_t word = 0;
        size_t left = name.len - at;
        memcpy(&word, name.at + at, left < 8 ? left : 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        at += 8;
    }
    return hash;
}

static struct key **
bucket_of(const struct keyspace *keys, uint64_t hash)
{
    return &keys->buckets[hash & (keys->bucket_count - 1)];
}

static struct key *
find_hashed(const struct keyspace *keys, struct text name, uint64_t hash)
{
    struct key *key = *bucket_of(keys, hash);

    while (key != NULL && (key->hash != hash || key->name_len != name.len ||
                              memcmp(key->name, name.at, name.len) != 0))
        key = key->next;
    return key;
}

struct key *
keys_find(const struct keyspace *keys, struct text name)
{
    return find_hashed(keys, name, hash_of(name));
}

static void
keys_grow(struct keyspace *keys)
{
    size_t count = keys->bucket_count * 2;
    size_t len = count * sizeof(struct key *);

    keys->buckets = memory_get(keys->buckets, len);
    memset(keys->buckets, 0, len);
    keys->bucket_count = count;
    for (size_t i = 0; i < keys->count; i++) {
        struct key **bucket = bucket_of(keys, keys->all[i]->hash);
        keys->all[i]->next = *bucket;
        *bucket = keys->all[i];
    }
}

struct key *
keys_add(struct fake *fake, struct text name)
{
    struct keyspace *keys = &fake->keys;
    struct key *key = memory_get(NULL, sizeof(*key) + name.len + 1);

    memset(key, 0, sizeof(*key));
    memcpy(key->name, name.at, name.len);
    key->name[name.len] = '\0';
    key->name_len = (uint32_t)name.len;
    key->hash = hash_of(name);
    key->expires_ms = FAKE_NEVER_MS;
    if (fake->cluster != NULL)
        key->slot = slot_of_key(name);
    keys->all =
        array_room(keys->all, keys->count, &keys->cap, sizeof(struct key *));
    if (keys->count >= keys->bucket_count)
        keys_grow(keys);
    struct key **bucket = bucket_of(keys, key->hash);
    key->next = *bucket;
    *bucket = key;
    key->index = keys->count;
    keys->all[keys->count++] = key;
    keys_touch(fake, key);
    return key;
}

void
keys_touch(struct fake *fake, struct key *key)
{
    struct keyspace *keys = &fake->keys;

    if (key->touched)
        return;
    key->touched = true;
    keys->touched = array_room(keys->touched, keys->touched_count,
        &keys->touched_cap, sizeof(struct key *));
    keys->touched[keys->touched_count++] = key;
}

void
keys_remove(struct fake *fake, struct key *key)
{
    struct keyspace *keys = &fake->keys;
    struct key **at = bucket_of(keys, key->hash);

    require(!key->dead && keys->all[key->index] == key);
    while (*at != key)
        at = &(*at)->next;
    *at = key->next;
    keys->count--;
    keys->all[key->index] = keys->all[keys->count];
    keys->all[key->index]->index = key->index;
    keys_touch(fake, key);
    key->dead = true;
}

void
keys_clear(struct fake *fake)
{
    while (fake->keys.count > 0)
        keys_remove(fake, fake->keys.all[fake->keys.count - 1]);
    fake->keys.due_ms = INT64_MAX;
}

void
keys_set_expiry(struct fake *fake, struct key *key, int64_t expires_ms)
{
    key->expires_ms = expires_ms;
    if (expires_ms != FAKE_NEVER_MS && expires_ms < fake->keys.due_ms)
        fake->keys.due_ms = expires_ms;
}

bool
key_expired(const struct fake *fake, const struct key *key)
{
    return key->expires_ms != FAKE_NEVER_MS &&
           fake_now_ms(fake) > key->expires_ms;
}

struct key *
keys_lookup(struct fake *fake, struct text name)
{
    struct key *key = keys_find(&fake->keys, name);

    if (key == NULL || !key_expired(fake, key))
        return key;
    if (!fake->replica)
        keys_remove(fake, key);
    return NULL;
}

void
keys_sweep(struct fake *fake)
{
    struct keyspace *keys = &fake->keys;
    int64_t now_ms = fake_now_ms(fake);

    if (fake->replica || now_ms <= keys->due_ms ||
        (now_ms < keys->next_sweep_ms &&
            now_ms + FAKE_SWEEP_MS >= keys->next_sweep_ms))
        return;
    keys->next_sweep_ms = now_ms + FAKE_SWEEP_MS;
    keys->due_ms = INT64_MAX;
    for (size_t i = 0; i < keys->count;) {
        struct key *key = keys->all[i];
        if (key_expired(fake, key)) {
            keys_remove(fake, key);
            continue;
        }
        if (key->expires_ms != FAKE_NEVER_MS && key->expires_ms < keys->due_ms)
            keys->due_ms = key->expires_ms;
        i++;
    }
    keys_flush(fake);
}

/* The fate of a key that was touched; the dead are freed. */
static void
key_settle(struct fake *fake, struct key *key)
{
    const struct fake_sink *sink = &fake->settings.sink;
    bool dead = key->dead;

    key->touched = false;
    if (dead) {
        const struct key *again =
            keys_find(&fake->keys, text_make(key->name, key->name_len));
        if (again != NULL) { /* it was made anew, and is told of as that */
            key_free(key);
            return;
        }
    }
    if (sink->wrote != NULL)
        sink->wrote(fake->settings.arg, key->name, key->name_len,
            dead                    ? NULL
            : key->value.at != NULL ? key->value.at
                                    : "",
            dead ? 0 : key->value.len);
    replication_write(fake, key);
    if (dead)
        key_free(key);
}

void
keys_flush(struct fake *fake)
{
    struct keyspace *keys = &fake->keys;

    if (keys->touched_count == 0)
        return;
    for (size_t i = 0; i < keys->touched_count; i++)
        key_settle(fake, keys->touched[i]);
    keys->touched_count = 0;
    replication_commit(fake);
}

void
keys_copy(struct fake *to, const struct fake *from)
{
    keys_clear(to);
    for (size_t i = 0; i < from->keys.count; i++) {
        const struct key *source = from->keys.all[i];
        struct key *key =
            keys_add(to, text_make(source->name, source->name_len));
        key->type = source->type;
        bytes_add(&key->value, source->value.at, source->value.len);
        keys_set_expiry(to, key, source->expires_ms);
    }
    keys_flush(to);
}

/* --- for checks ----------------------------------------------------------- */

const char *
fake_get(const struct fake *fake, const char *key, size_t key_len, size_t *len)
{
    const struct key *found = keys_find(&fake->keys, text_make(key, key_len));

    if (found == NULL || key_expired(fake, found))
        return NULL;
    *len = found->value.len;
    return found->value.at != NULL ? found->value.at : "";
}

bool
fake_key(const struct fake *fake, size_t index, const char **key,
    size_t *key_len, const char **value, size_t *value_len)
{
    if (index >= fake->keys.count)
        return false;
    const struct key *found = fake->keys.all[index];
    *key = found->name;
    *key_len = found->name_len;
    *value = found->value.at != NULL ? found->value.at : "";
    *value_len = found->value.len;
    return true;
}

int64_t
fake_key_expires_ms(const struct fake *fake, size_t index)
{
    require(index < fake->keys.count);
    int64_t at_ms = fake->keys.all[index]->expires_ms;

    return at_ms == FAKE_NEVER_MS ? INT64_MAX : at_ms;
}
