/*
 * Compares two configurations. Equal values are equal bytes (see value.c), so
 * most keys need no code here. Exceptions are passwords, which are no keys, TLS
 * to Redis, TLS for clients, and the presence of users.
 */
#include "conf/checks.h"

#include "conf/keys.h"
#include "daemon/base/assert.h"

#include <string.h>

/* Passwords, which come from the file that a key names. */
static const struct {
    const char *path;
    size_t offset;
    size_t bytes;
} secrets[] = {
    {"redis.password_file", offsetof(struct config, redis_password),
        sizeof(((struct config *)NULL)->redis_password)},
    {"redis.sentinel_password_file", offsetof(struct config, sentinel_password),
        sizeof(((struct config *)NULL)->sentinel_password)},
};

#define SECRETS (sizeof(secrets) / sizeof(secrets[0]))

static const struct key *
key_of_secret(size_t i)
{
    const struct key *key = key_find(text_from(secrets[i].path));

    require(key != NULL && key->reloadable);
    return key;
}

static bool
bytes_differ(const struct config *now, const struct config *next, size_t offset,
    size_t bytes)
{
    require(offset + bytes <= sizeof(*now));
    return memcmp((const char *)now + offset, (const char *)next + offset,
               bytes) != 0;
}

static void
bytes_take(
    struct config *now, const struct config *next, size_t offset, size_t bytes)
{
    memcpy((char *)now + offset, (const char *)next + offset, bytes);
}

/* Whether the key has its own field in struct config. */
static bool
key_counts(const struct key *key)
{
    return key->type != KEY_SECTION && key_items(key) == NULL;
}

static bool
key_differs(
    const struct key *key, const struct config *now, const struct config *next)
{
    if (bytes_differ(now, next, key->offset, key->bytes))
        return true;
    return key->type == KEY_ITEMS &&
           bytes_differ(now, next, key->count_offset, sizeof(uint32_t));
}

/* Passwords too, which may be meant for encrypted connections only. */
static bool
key_goes_with_tls(const struct key *key)
{
    static const char *const begins[] = {"redis.tls.", "redis.username",
        "redis.password_file", "redis.sentinel_username",
        "redis.sentinel_password_file"};

    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        if (strncmp(key->path, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static bool
key_goes_with_listen_tls(const struct key *key)
{
    return strncmp(key->path, "listen.tls_", strlen("listen.tls_")) == 0;
}

/* Whether exactly one of the two is empty. */
static bool
begins_or_ends(const char *now, const char *next)
{
    return (now[0] == '\0') != (next[0] == '\0');
}

static enum change
change_of(
    const struct key *key, const struct config *now, const struct config *next)
{
    if (!key->reloadable)
        return CHANGE_LEFT;
    if (key_goes_with_tls(key) && begins_or_ends(now->tls_ca, next->tls_ca))
        return CHANGE_LEFT;
    if (key_goes_with_listen_tls(key) &&
        begins_or_ends(now->listen_tls_cert, next->listen_tls_cert))
        return CHANGE_LEFT;
    if (key->offset == offsetof(struct config, users_file) &&
        begins_or_ends(now->users_file, next->users_file))
        return CHANGE_LEFT;
    return CHANGE_TAKEN;
}

void
changes_find(struct config_changes *changes, const struct config *now,
    const struct config *next)
{
    require(key_count() <= CHANGES_KEYS_MAX);
    memset(changes, 0, sizeof(*changes));
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        if (key_counts(key) && key_differs(key, now, next))
            changes->of[i] = change_of(key, now, next);
    }
    for (size_t i = 0; i < SECRETS; i++) {
        const struct key *key = key_of_secret(i);
        if (bytes_differ(now, next, secrets[i].offset, secrets[i].bytes))
            changes->of[key_index(key)] = change_of(key, now, next);
    }
}

void
changes_note(struct config_changes *changes, const char *path)
{
    const struct key *key = key_find(text_from(path));

    require(key != NULL && key->reloadable);
    changes->of[key_index(key)] = CHANGE_TAKEN;
}

void
changes_take(const struct config_changes *changes, struct config *now,
    const struct config *next)
{
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        if (changes->of[i] != CHANGE_TAKEN)
            continue;
        bytes_take(now, next, key->offset, key->bytes);
        if (key->type == KEY_ITEMS)
            bytes_take(now, next, key->count_offset, sizeof(uint32_t));
    }
    for (size_t i = 0; i < SECRETS; i++)
        if (changes->of[key_index(key_of_secret(i))] == CHANGE_TAKEN)
            bytes_take(now, next, secrets[i].offset, secrets[i].bytes);
}

bool
changes_any(const struct config_changes *changes, enum change change)
{
    for (size_t i = 0; i < key_count(); i++)
        if (changes->of[i] == change)
            return true;
    return false;
}

const char *
changes_text(const struct config_changes *changes, enum change change,
    char *out, size_t out_bytes)
{
    size_t len = 0;

    out[0] = '\0';
    for (size_t i = 0; i < key_count(); i++) {
        if (changes->of[i] != change)
            continue;
        int more = snprintf(out + len, out_bytes - len, "%s%s",
            len == 0 ? "" : ",", key_at(i)->path);
        require(more > 0 && (size_t)more < out_bytes - len);
        len += (size_t)more;
    }
    return out;
}
