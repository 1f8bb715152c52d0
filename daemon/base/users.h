/*
 * Users: how each is known, and which names it may do what with.
 *
 * Built once, from a file of them, and read from then on; a later file is
 * another table. Only the two counts of a user change, which are for its owner
 * to keep. This file does not know the purpose of a right.
 */
#ifndef HOLDFAST_BASE_USERS_H
#define HOLDFAST_BASE_USERS_H

#include "daemon/base/sha256.h"

#define USER_NAME_MAX     64  /* bytes */
#define USER_SECRET_MAX   255 /* bytes */
#define USER_SECRET_MIN   16  /* of one that is to be hashed */
#define USER_SALT_BYTES   16
#define USER_PATTERN_MAX  255
#define USER_CERT_MAX     255       /* bytes of a name in a certificate */
#define USER_SECRET_BEGIN "sha256$" /* then salt, $ and digest, in hex */

/* Room for a secret as it stands in the file, with its NUL. */
#define USER_HASHED_BYTES \
    (sizeof(USER_SECRET_BEGIN) + 2 * USER_SALT_BYTES + 1 + 2 * SHA256_BYTES)

/* Bits. See the names: those that LOCK and BREAK are for, and all of ADMIN. */
enum right {
    RIGHT_LOCK = 1,
    RIGHT_SEE = 2,
    RIGHT_BREAK = 4,
    RIGHT_ADMIN = 8, /* not of names */
};

enum user_proof_kind {
    PROOF_SECRET,
    PROOF_UID,  /* of the process at a Unix socket */
    PROOF_CERT, /* a certificate that has the name */
};

/* One way of showing who one is. */
struct user_proof {
    enum user_proof_kind kind;
    uint32_t uid;
    struct text cert; /* ref */
    uint8_t salt[USER_SALT_BYTES];
    uint8_t digest[SHA256_BYTES]; /* of salt and secret */
};

struct user_rule {
    struct text name; /* ref */
    bool beginning;   /* all names that begin so */
    uint8_t rights;
};

struct user {
    struct text name; /* ref */
    bool admin;
    uint32_t rule_first;
    uint32_t rule_count;
    uint32_t proof_first;
    uint32_t proof_count;
    uint32_t connections; /* its owner's */
    uint32_t tickets;     /* likewise */
};

struct users {
    char *text;               /* owned; what names refer to */
    struct user *user;        /* owned; sorted by name */
    struct user_rule *rule;   /* owned */
    struct user_proof *proof; /* owned */
    uint32_t count;
    uint32_t proofs_most; /* that one of them has */
    uint64_t file;        /* hash of what they were read from */
};

/* Frees it; *users becomes NULL, and may be. */
void users_destroy(struct users **users);

/* NULL: there is none of this name. */
struct user *users_find(const struct users *users, struct text name);

/* The user with that uid, or NULL. *mark is set where there is one: it tells
 * the proof from others, for user_has_mark(). */
struct user *users_of_uid(
    const struct users *users, uint32_t uid, uint32_t *mark);

/* The user with a certificate of that name, or NULL; *mark as above. */
struct user *users_of_cert(
    const struct users *users, struct text cert, uint32_t *mark);

/*
 * The user of that name and secret, or NULL; *mark as above. The time that it
 * takes tells neither how much of a secret is right nor whether the user
 * exists. For any name as many secrets are hashed as one user has at most.
 */
struct user *users_of_secret(const struct users *users, struct text name,
    struct text secret, uint32_t *mark);

/* Whether it would be known by that proof still. */
bool user_has_mark(
    const struct users *users, const struct user *user, uint32_t mark);

/* `name` is not looked at for RIGHT_ADMIN. */
bool user_may(const struct users *users, const struct user *user,
    enum right right, struct text name);

/* The digest of salt and secret. */
void user_hash(const uint8_t salt[USER_SALT_BYTES], struct text secret,
    uint8_t digest[SHA256_BYTES]);

/* The secret as it stands in the file: a mark, salt and digest in hex. */
void user_hash_text(const uint8_t salt[USER_SALT_BYTES], struct text secret,
    char out[USER_HASHED_BYTES]);

/* False: it is none. */
bool user_hash_parse(struct text text, struct user_proof *proof);

#endif
