/*
 * Users: their proofs, and their rights to names.
 *
 * A table is built once, from a file, and only read then. A later file is
 * another table. Only two counts of a user change, which the core keeps. This
 * file does not know the purpose of a right.
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

/* Bits. RIGHT_LOCK and RIGHT_BREAK include RIGHT_SEE for their names, and
 * RIGHT_ADMIN for all names. */
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
    uint32_t proofs_most; /* the most secrets of a user */
    uint64_t file;        /* hash of the file */
};

/* Frees it; *users becomes NULL, and may be. */
void users_destroy(struct users **users);

/* NULL: there is none of this name. */
struct user *users_find(const struct users *users, struct text name);

/* The user with that uid, or NULL. *mark tells the proof from others, for
 * user_has_mark(). */
struct user *users_of_uid(
    const struct users *users, uint32_t uid, uint32_t *mark);

/* The user with a certificate of that name, or NULL; *mark as above. */
struct user *users_of_cert(
    const struct users *users, struct text cert, uint32_t *mark);

/*
 * The user of that name and secret, or NULL; *mark as above. The time tells
 * neither how much of a secret is right nor whether the user exists: it hashes
 * as many secrets as any user may have.
 */
struct user *users_of_secret(const struct users *users, struct text name,
    struct text secret, uint32_t *mark);

/* Whether the user still has that proof. */
bool user_has_mark(
    const struct users *users, const struct user *user, uint32_t mark);

/* Whether the user has the right to `name`. RIGHT_ADMIN ignores it. */
bool user_may(const struct users *users, const struct user *user,
    enum right right, struct text name);

/* The form of a secret in the file: a mark, salt and digest in hex. */
void user_hash_text(const uint8_t salt[USER_SALT_BYTES], struct text secret,
    char out[USER_HASHED_BYTES]);

/* False: it is none. */
bool user_hash_parse(struct text text, struct user_proof *proof);

#endif
