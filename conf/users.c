/*
 * Reads users from text, word by word. All mistakes are reported, without any
 * value that may be a secret.
 *
 * Memory is taken once, with room for as many users, rules and proofs as the
 * text has words. Names are decoded in place, in a copy of the text.
 */
#include "conf/users.h"

#include "conf/walk.h"
#include "daemon/base/assert.h"
#include "daemon/base/log.h"
#include "daemon/base/table.h"
#include "proto/reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum once_kind {
    ONCE_NAME,
    ONCE_UID,
    ONCE_CERT,
};

/* Credentials that only one user may have. */
struct once {
    enum once_kind kind;
    struct text name; /* ref; empty: a uid */
    uint32_t uid;
    size_t line;
    size_t column;
};

struct reader {
    struct users *users; /* ref: being filled */
    struct once *once;   /* owned */
    size_t once_count;
    struct user *user; /* ref: of this line */
    uint32_t rules;
    uint32_t proofs;
    size_t room;          /* of once, and of each array of users */
    struct walk mistakes; /* for walk_fail() only */
    char *line_start;
    char *at;
    char *end;
    size_t line;
};

static bool fail(struct reader *reader, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool
fail_at(struct reader *reader, size_t line, size_t column, const char *what)
{
    return walk_fail(
        &reader->mistakes, (struct walk_place){line, column}, "%s", what);
}

static size_t
column_of(const struct reader *reader, const char *at)
{
    require(at >= reader->line_start && at <= reader->end);
    return (size_t)(at - reader->line_start) + 1;
}

/* Reports a mistake at `at`, in the present line. */
static bool
fail(struct reader *reader, const char *at, const char *format, ...)
{
    char what[200];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    return fail_at(reader, reader->line, column_of(reader, at), what);
}

static void
once_add(struct reader *reader, enum once_kind kind, struct text name,
    uint32_t uid, const char *at)
{
    require(reader->once_count < reader->room);
    reader->once[reader->once_count++] =
        (struct once){kind, name, uid, reader->line, column_of(reader, at)};
}

static bool
is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

/* The next word of the line. False: there is none. */
static bool
word_next(struct reader *reader, struct text *word)
{
    char *at = reader->at;

    while (at < reader->end && is_blank(*at))
        at++;
    word->at = at;
    while (at < reader->end && *at != '\n' && !is_blank(*at))
        at++;
    word->len = (size_t)(at - word->at);
    /* A CR before the line end belongs to it. */
    if (word->len > 0 && word->at[word->len - 1] == '\r' &&
        (at == reader->end || *at == '\n'))
        word->len--;
    reader->at = at;
    return word->len > 0;
}

/* A name of 1 to `max` bytes, decoded in place. */
static bool
name_take(struct reader *reader, struct text word, size_t max, const char *what,
    struct text *name)
{
    char *at = reader->line_start + (word.at - reader->line_start);

    for (size_t i = 0; i < word.len; i++)
        if (at[i] <= ' ' || at[i] > '~')
            return fail(reader, at + i,
                "control bytes and bytes above 0x7E must be percent-encoded");
    size_t len = percent_decode(at, word.len);
    if (len == SIZE_MAX)
        return fail(reader, at, "'%%' must be followed by two hex digits");
    if (len == 0 || len > max)
        return fail(reader, at, "%s: 1 to %zu bytes expected", what, max);
    *name = text_make(at, len);
    return true;
}

/* Adds a proof. NULL: there is no room, which is reported. */
static struct user_proof *
proof_add(struct reader *reader, enum user_proof_kind kind, const char *at)
{
    if (reader->user->proof_count == USERS_PROOFS_MAX) {
        (void)fail(reader, at,
            "a user may have at most %d secrets, uids and certificates",
            USERS_PROOFS_MAX);
        return NULL;
    }
    require(reader->proofs < reader->room);
    reader->user->proof_count++;
    struct user_proof *proof = &reader->users->proof[reader->proofs++];
    proof->kind = kind;
    return proof;
}

static bool
secret_take(struct reader *reader, struct text value)
{
    struct user_proof *proof = proof_add(reader, PROOF_SECRET, value.at);

    if (proof == NULL || user_hash_parse(value, proof))
        return proof != NULL;
    return fail(reader, value.at,
        "secret: sha256$SALT$DIGEST expected, as `holdfast secret` prints it");
}

static bool
uid_take(struct reader *reader, struct text value)
{
    struct user_proof *proof;
    uint64_t uid;

    /* UINT32_MAX is no user's uid. */
    if (!text_to_u64(value, UINT32_MAX - 1, &uid))
        return fail(
            reader, value.at, "uid: a number from 0 to 4294967294 expected");
    once_add(reader, ONCE_UID, TEXT(""), (uint32_t)uid, value.at);
    proof = proof_add(reader, PROOF_UID, value.at);
    if (proof == NULL)
        return false;
    proof->uid = (uint32_t)uid;
    return true;
}

static bool
cert_take(struct reader *reader, struct text value)
{
    struct user_proof *proof = proof_add(reader, PROOF_CERT, value.at);
    const char *at = value.at;

    if (proof == NULL || !name_take(reader, value, USER_CERT_MAX,
                             "cert: a name in the certificate", &proof->cert))
        return false;
    once_add(reader, ONCE_CERT, proof->cert, 0, at);
    return true;
}

/* A name of locks; with a * at its end, the beginning of names. */
static bool
pattern_take(struct reader *reader, struct text value, enum right right)
{
    require(reader->rules < reader->room);
    struct user_rule *rule = &reader->users->rule[reader->rules];
    const char *star = memchr(value.at, '*', value.len);
    size_t begun = star == NULL ? value.len : (size_t)(star - value.at);

    if (reader->user->rule_count == USERS_RULES_MAX)
        return fail(reader, value.at,
            "a user may have at most %d names and beginnings of names",
            USERS_RULES_MAX);
    if (begun + 1 < value.len)
        return fail(reader, star,
            "a * is allowed at the end only; write %%2A for the character");
    rule->beginning = star != NULL;
    rule->rights = (uint8_t)right;
    rule->name = text_make(value.at, begun);
    if ((begun > 0 || star == NULL) &&
        !name_take(reader, rule->name, USER_PATTERN_MAX, "a name of locks",
            &rule->name))
        return false;
    reader->rules++;
    reader->user->rule_count++;
    return true;
}

static bool
fail_unknown(struct reader *reader, const char *at)
{
    return fail(reader, at,
        "unknown word; secret=, uid=, cert=, lock=, see=, break= or admin "
        "expected");
}

static bool
pair_take(struct reader *reader, struct text key, struct text value)
{
    static const struct {
        const char *key;
        enum right right;
    } rights[] = {
        {"lock", RIGHT_LOCK},
        {"see", RIGHT_SEE},
        {"break", RIGHT_BREAK},
    };

    if (text_equal(key, TEXT("secret")))
        return secret_take(reader, value);
    if (text_equal(key, TEXT("uid")))
        return uid_take(reader, value);
    if (text_equal(key, TEXT("cert")))
        return cert_take(reader, value);
    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
        if (text_equal(key, text_from(rights[i].key)))
            return pattern_take(reader, value, rights[i].right);
    return fail_unknown(reader, key.at);
}

static bool
word_take(struct reader *reader, struct text word)
{
    const char *equals = memchr(word.at, '=', word.len);

    if (equals != NULL) {
        size_t len = (size_t)(equals - word.at);
        return pair_take(reader, text_make(word.at, len),
            text_make(equals + 1, word.len - len - 1));
    }
    if (!text_equal(word, TEXT("admin")))
        return fail_unknown(reader, word.at);
    reader->user->admin = true;
    return true;
}

/* A line of a user; `word` is its first word, the name. */
static bool
user_take(struct reader *reader, struct text word)
{
    struct users *users = reader->users;
    require(users->count < reader->room);
    struct user *user = &users->user[users->count];
    bool good = true;

    if (memchr(word.at, '=', word.len) != NULL)
        return fail(reader, word.at, "a line begins with the user's name");
    if (users->count == USERS_MAX)
        return fail(reader, word.at, "at most %d users allowed", USERS_MAX);
    user->rule_first = reader->rules;
    user->proof_first = reader->proofs;
    reader->user = user;
    if (!name_take(reader, word, USER_NAME_MAX, "the user's name", &user->name))
        return false;
    once_add(reader, ONCE_NAME, user->name, 0, word.at);
    users->count++;
    while (word_next(reader, &word))
        good = word_take(reader, word) && good;
    if (good && user->proof_count == 0)
        return fail(reader, reader->line_start,
            "the user has no credentials: secret=, uid= or cert= expected");
    if (user->proof_count > users->proofs_most)
        users->proofs_most = user->proof_count;
    return good;
}

static bool
line_take(struct reader *reader)
{
    struct text word;

    if (!word_next(reader, &word))
        return true;
    if (word.at[0] != '#')
        return user_take(reader, word);
    while (reader->at < reader->end && *reader->at != '\n')
        reader->at++;
    return true;
}

static int
user_compare(const void *a, const void *b)
{
    return text_compare(
        ((const struct user *)a)->name, ((const struct user *)b)->name);
}

/* 0: the credentials are equal. */
static int
once_differs(const struct once *a, const struct once *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->kind == ONCE_UID)
        return (a->uid > b->uid) - (a->uid < b->uid);
    return text_compare(a->name, b->name);
}

/* Equal credentials are in the order of the file. */
static int
once_compare(const void *a, const void *b)
{
    const struct once *first = a;
    const struct once *second = b;
    int way = once_differs(first, second);

    if (way == 0)
        way = (first->line > second->line) - (first->line < second->line);
    if (way == 0)
        way =
            (first->column > second->column) - (first->column < second->column);
    return way;
}

/* Reports credentials that are given twice. */
static void
once_check(struct reader *reader)
{
    static const char *const whats[] = {
        [ONCE_NAME] = "the user is already in the file",
        [ONCE_UID] = "uid: already in the file",
        [ONCE_CERT] = "cert: already in the file",
    };
    struct once *once = reader->once;

    qsort(once, reader->once_count, sizeof(*once), once_compare);
    for (size_t i = 1; i < reader->once_count; i++)
        if (once_differs(&once[i - 1], &once[i]) == 0)
            fail_at(reader, once[i].line, once[i].column, whats[once[i].kind]);
}

static void
lines_take(struct reader *reader)
{
    while (reader->at < reader->end) {
        reader->line++;
        reader->line_start = reader->at;
        (void)line_take(reader);
        /* A lone CR before the line end is left over. */
        while (reader->at < reader->end && *reader->at != '\n')
            reader->at++;
        if (reader->at < reader->end)
            reader->at++;
    }
    if (reader->users->count > 0 || reader->mistakes.mistakes > 0)
        return;
    reader->line_start = reader->at;
    reader->line += reader->line == 0;
    fail(reader, reader->at, "the file has no users");
}

static size_t
words_of(struct text text)
{
    size_t words = 1;

    for (size_t i = 0; i < text.len; i++)
        words += is_blank(text.at[i]) || text.at[i] == '\n';
    return words;
}

/* Room for one user, rule and proof for each word. NULL: no memory. */
static struct users *
users_make(struct text text, size_t words)
{
    struct users *users = calloc(1, sizeof(*users));

    if (users == NULL)
        return NULL;
    users->text = malloc(text.len + 1);
    users->user = calloc(words, sizeof(*users->user));
    users->rule = calloc(words, sizeof(*users->rule));
    users->proof = calloc(words, sizeof(*users->proof));
    if (users->text == NULL || users->user == NULL || users->rule == NULL ||
        users->proof == NULL)
        users_destroy(&users);
    return users;
}

/* The key need not be secret: a writer of the file can grant any right without
 * a collision. */
static uint64_t
file_hash(struct text text)
{
    static const struct hash_key key = {
        {0x686f6c6466617374, 0x7573657273666c65}};

    return hash_bytes(&key, text.at, text.len);
}

struct users *
users_parse(const char *name, struct text text, char *error, size_t error_bytes)
{
    size_t words = words_of(text);
    struct users *users = users_make(text, words);
    struct once *once = calloc(words, sizeof(*once));

    if (users == NULL || once == NULL) {
        snprintf(error, error_bytes, "%s: out of memory", name);
        users_destroy(&users);
        free(once);
        return NULL;
    }
    if (text.len > 0)
        memcpy(users->text, text.at, text.len);
    struct reader reader = {
        .users = users,
        .once = once,
        .room = words,
        .mistakes = {.file = name, .error = error, .error_bytes = error_bytes},
        .at = users->text,
        .end = users->text + text.len,
    };
    error[0] = '\0';
    if (text_starts_with(text, TEXT("\xef\xbb\xbf"))) /* byte order mark */
        reader.at += 3;
    lines_take(&reader);
    once_check(&reader);
    free(once);
    if (reader.mistakes.mistakes > 0) {
        users_destroy(&users);
        return NULL;
    }
    qsort(users->user, users->count, sizeof(*users->user), user_compare);
    users->file = file_hash(text);
    return users;
}

struct users *
users_load(const char *path, bool running, struct users *before, char *error,
    size_t error_bytes)
{
    const char *what;
    size_t len;
    char *text = file_load(path, running, &len, &what);
    struct users *users = before;

    if (text == NULL) {
        snprintf(error, error_bytes, "%s: %s", path, what);
        return NULL;
    }
    if (before == NULL || before->file != file_hash(text_make(text, len)))
        users = users_parse(path, text_make(text, len), error, error_bytes);
    explicit_bzero(text, len);
    free(text);
    return users;
}
