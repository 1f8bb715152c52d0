/*
 * The input is a file of users. For each input:
 *
 * - a refusal is one printable line, with a place that is in the file;
 * - users are sorted, within their limits, and each is found by its name, and
 *   by each of its uids and certificates;
 * - rights are those of a plain reading of the rules;
 * - nobody is known by the empty secret, or by what stands in the file.
 */
#include "conf/users.h"
#include "daemon/base/assert.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char error[8192];

/* Returns its end. */
static char *
check_line(char *at, size_t lines, size_t size)
{
    static const char more[] = "f: more mistakes follow";

    if (strncmp(at, more, strlen(more)) == 0)
        return at + strlen(at);
    require(strncmp(at, "f:", 2) == 0);
    size_t line = strtoul(at + 2, &at, 10);
    require(line >= 1 && line <= lines);
    require(at[0] == ':' && at[1] >= '1' && at[1] <= '9');
    require(strtoul(at + 1, &at, 10) <= size + 1);
    require(at[0] == ':' && at[1] == ' ' && at[2] != '\0');
    for (; *at != '\0' && *at != '\n'; at++)
        require(*at >= 0x20 && *at <= 0x7e);
    return at;
}

static void
check_error(const char *data, size_t size)
{
    size_t lines = 1;
    char *at;

    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    for (at = error; *at != '\0'; at += *at == '\n')
        at = check_line(at, lines, size);
}

/* The same as user_may(), rule by rule. */
static bool
plainly_may(const struct users *users, const struct user *user,
    enum right right, struct text name)
{
    if (right == RIGHT_ADMIN || (right == RIGHT_SEE && user->admin))
        return user->admin;
    for (uint32_t i = 0; i < user->rule_count; i++) {
        const struct user_rule *rule = &users->rule[user->rule_first + i];
        bool same = name.len >= rule->name.len &&
                    (rule->beginning || name.len == rule->name.len) &&
                    memcmp(name.at, rule->name.at, rule->name.len) == 0;
        if (same && (right == RIGHT_SEE || rule->rights == right))
            return true;
    }
    return false;
}

static void
check_rights(const struct users *users, const struct user *user)
{
    for (uint32_t i = 0; i < user->rule_count; i++) {
        struct text name = users->rule[user->rule_first + i].name;
        require(name.len <= USER_PATTERN_MAX);
        for (size_t cut = 0; cut < 2 && cut <= name.len; cut++)
            for (int right = RIGHT_LOCK; right <= RIGHT_ADMIN; right *= 2) {
                struct text part = text_make(name.at, name.len - cut);
                require(user_may(users, user, (enum right)right, part) ==
                        plainly_may(users, user, (enum right)right, part));
            }
    }
}

static void
check_user(const struct users *users, struct user *user)
{
    uint32_t mark;

    require(user->name.len >= 1 && user->name.len <= USER_NAME_MAX);
    require(user->proof_count >= 1 && user->proof_count <= USERS_PROOFS_MAX);
    require(user->rule_count <= USERS_RULES_MAX);
    require(users_find(users, user->name) == user);
    require(users_of_secret(users, user->name, TEXT(""), &mark) == NULL);
    for (uint32_t i = 0; i < user->proof_count; i++) {
        const struct user_proof *proof = &users->proof[user->proof_first + i];
        if (proof->kind == PROOF_UID) {
            require(users_of_uid(users, proof->uid, &mark) == user);
            require(user_has_mark(users, user, mark));
            continue;
        }
        if (proof->kind == PROOF_CERT) {
            require(proof->cert.len >= 1 && proof->cert.len <= USER_CERT_MAX);
            require(users_of_cert(users, proof->cert, &mark) == user);
            require(user_has_mark(users, user, mark));
            require(
                users_of_secret(users, user->name, proof->cert, &mark) == NULL);
            continue;
        }
        require(users_of_secret(users, user->name,
                    text_make((const char *)proof->digest, SHA256_BYTES),
                    &mark) == NULL);
    }
    check_rights(users, user);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* With nothing around it, so that the sanitizer sees a byte too many. */
    char *text = malloc(size == 0 ? 1 : size);

    require(text != NULL);
    memcpy(text, data, size);
    struct users *users =
        users_parse("f", text_make(text, size), error, sizeof(error));
    if (users == NULL)
        check_error(text, size);
    else
        require(users->count >= 1 && users->count <= USERS_MAX);
    for (uint32_t i = 0; users != NULL && i < users->count; i++) {
        if (i > 0)
            require(
                text_compare(users->user[i - 1].name, users->user[i].name) < 0);
        check_user(users, &users->user[i]);
    }
    users_destroy(&users);
    free(text);
    return 0;
}
