/*
 * Users by their proofs, and their rights.
 *
 * A secret is hashed once, with a salt. The comparison runs in the loop that
 * renews all leases. A hash that is slow on purpose would let anyone without a
 * secret hold up the loop. So a secret must be random, as `holdfast secret
 * --new` makes it: nobody guesses such a secret however fast.
 */
#include "daemon/base/users.h"

#include "daemon/base/table.h"

#include <stdlib.h>

void
users_destroy(struct users **users)
{
    if (*users == NULL)
        return;
    free((*users)->text);
    free((*users)->user);
    free((*users)->rule);
    free((*users)->proof);
    free(*users);
    *users = NULL;
}

struct user *
users_find(const struct users *users, struct text name)
{
    uint32_t low = 0;
    uint32_t high = users->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int way = text_compare(users->user[middle].name, name);
        if (way == 0)
            return &users->user[middle];
        if (way < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static uint32_t
proof_mark(const struct user_proof *proof)
{
    static const struct hash_key key = {
        {0x686f6c6466617374, 0x70726f6f666d6172}};

    static const struct hash_key cert_key = {
        {0x686f6c6466617374, 0x6365727420202020}};

    if (proof->kind == PROOF_UID)
        return (uint32_t)hash_bytes(&key, &proof->uid, sizeof(proof->uid));
    if (proof->kind == PROOF_CERT)
        return (uint32_t)hash_bytes(&cert_key, proof->cert.at, proof->cert.len);
    return (uint32_t)hash_bytes(&key, proof->digest, sizeof(proof->digest));
}

/* Compares two proofs that are no secrets. */
static bool
proof_equal(const struct user_proof *a, const struct user_proof *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == PROOF_UID ? a->uid == b->uid
                                : text_equal(a->cert, b->cert);
}

/* The user with a proof that is no secret. */
static struct user *
users_of_proof(
    const struct users *users, const struct user_proof *wanted, uint32_t *mark)
{
    for (uint32_t i = 0; i < users->count; i++) {
        struct user *user = &users->user[i];
        const struct user_proof *proof = users->proof + user->proof_first;
        for (uint32_t j = 0; j < user->proof_count; j++) {
            if (!proof_equal(&proof[j], wanted))
                continue;
            *mark = proof_mark(wanted);
            return user;
        }
    }
    return NULL;
}

struct user *
users_of_uid(const struct users *users, uint32_t uid, uint32_t *mark)
{
    const struct user_proof proof = {.kind = PROOF_UID, .uid = uid};

    return users_of_proof(users, &proof, mark);
}

struct user *
users_of_cert(const struct users *users, struct text cert, uint32_t *mark)
{
    const struct user_proof proof = {.kind = PROOF_CERT, .cert = cert};

    return users_of_proof(users, &proof, mark);
}

/* The digest of salt and secret. */
static void
user_hash(const uint8_t salt[USER_SALT_BYTES], struct text secret,
    uint8_t digest[SHA256_BYTES])
{
    struct sha256 sha;

    sha256_init(&sha);
    sha256_add(&sha, text_make((const char *)salt, USER_SALT_BYTES));
    sha256_add(&sha, secret);
    sha256_end(&sha, digest);
}

static bool
proof_holds(const struct user_proof *proof, struct text secret)
{
    uint8_t digest[SHA256_BYTES];

    user_hash(proof->salt, secret, digest);
    bool equal = secret_equal(digest, proof->digest, sizeof(digest));
    explicit_bzero(digest, sizeof(digest));
    return equal && proof->kind == PROOF_SECRET;
}

struct user *
users_of_secret(const struct users *users, struct text name, struct text secret,
    uint32_t *mark)
{
    static const struct user_proof nobodys = {.kind = PROOF_UID};
    struct user *user = users_find(users, name);
    uint32_t count = user != NULL ? user->proof_count : 0;
    struct user *found = NULL;

    for (uint32_t i = 0; i < users->proofs_most; i++) {
        const struct user_proof *proof =
            i < count ? &users->proof[user->proof_first + i] : &nobodys;
        if (!proof_holds(proof, secret))
            continue;
        *mark = proof_mark(proof);
        found = user;
    }
    return found;
}

bool
user_has_mark(const struct users *users, const struct user *user, uint32_t mark)
{
    const struct user_proof *proof = users->proof + user->proof_first;

    for (uint32_t i = 0; i < user->proof_count; i++)
        if (proof_mark(&proof[i]) == mark)
            return true;
    return false;
}

static bool
rule_covers(const struct user_rule *rule, struct text name)
{
    return rule->beginning ? text_starts_with(name, rule->name)
                           : text_equal(name, rule->name);
}

bool
user_may(const struct users *users, const struct user *user, enum right right,
    struct text name)
{
    const struct user_rule *rule = users->rule + user->rule_first;

    if (right == RIGHT_ADMIN || (right == RIGHT_SEE && user->admin))
        return user->admin;
    for (uint32_t i = 0; i < user->rule_count; i++) {
        /* The rights to lock and to break include the right to see. */
        bool given = right == RIGHT_SEE || (rule[i].rights & right) != 0;
        if (given && rule_covers(&rule[i], name))
            return true;
    }
    return false;
}

void
user_hash_text(const uint8_t salt[USER_SALT_BYTES], struct text secret,
    char out[USER_HASHED_BYTES])
{
    uint8_t digest[SHA256_BYTES];
    size_t at = sizeof(USER_SECRET_BEGIN) - 1;

    user_hash(salt, secret, digest);
    memcpy(out, USER_SECRET_BEGIN, at);
    text_to_hex(out + at, salt, USER_SALT_BYTES);
    at += (size_t)2 * USER_SALT_BYTES;
    out[at++] = '$';
    text_to_hex(out + at, digest, sizeof(digest));
    out[USER_HASHED_BYTES - 1] = '\0';
}

bool
user_hash_parse(struct text text, struct user_proof *proof)
{
    size_t begin = sizeof(USER_SECRET_BEGIN) - 1;
    size_t middle = begin + (size_t)2 * USER_SALT_BYTES;

    if (text.len != USER_HASHED_BYTES - 1 ||
        !text_starts_with(text, TEXT(USER_SECRET_BEGIN)) ||
        text.at[middle] != '$')
        return false;
    return text_from_hex(text_make(text.at + begin, middle - begin),
               proof->salt, sizeof(proof->salt)) &&
           text_from_hex(text_make(text.at + middle + 1, text.len - middle - 1),
               proof->digest, sizeof(proof->digest));
}
