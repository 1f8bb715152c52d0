/*
 * Changes of a reload, by the table of keys: those that are taken, and those
 * that need a restart. A bad file changes nothing.
 */
#include "conf/checks.h"

#include "conf/config.h"
#include "conf/keys.h"
#include "conf/value.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *changes_suite(void);

static struct config now;
static struct config next;
static struct config before;
static struct config_changes changes;
static char error[512];
static char file_name[40];
static char secret_name[40];

static void
write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void
make_file(char name[40])
{
    snprintf(name, 40, "/tmp/holdfast-changes-XXXXXX");
    int file = mkstemp(name);

    ck_assert_int_ge(file, 0);
    close(file);
}

static void
set_up(void)
{
    make_file(file_name);
    make_file(secret_name);
    config_init(&now);
}

static void
tear_down(void)
{
    unlink(file_name);
    unlink(secret_name);
}

/* The present configuration becomes that of the file, as at a start. */
static void
start_with(const char *text)
{
    write_text(file_name, text);
    ck_assert_msg(
        config_load(&now, file_name, error, sizeof(error)), "%s", error);
}

static bool
reload_with(const char *text)
{
    write_text(file_name, text);
    before = now;
    return config_reload(
        &now, file_name, NULL, NULL, &changes, error, sizeof(error));
}

static const char *
keys(enum change change)
{
    static char out[CHANGES_TEXT_BYTES];

    return changes_text(&changes, change, out, sizeof(out));
}

static bool
has_field(const struct key *key)
{
    return key->type != KEY_SECTION && key_items(key) == NULL;
}

/* TLS as such, or users as such, begin or end by that key: see
 * tls_as_such_is_left and users_as_such_are_left. */
static bool
is_of_all(const struct key *key)
{
    return strcmp(key->path, "redis.tls.ca") == 0 ||
           strcmp(key->path, "listen.tls_cert") == 0 ||
           strcmp(key->path, "auth.users_file") == 0;
}

START_TEST(each_key_is_taken_or_left)
{
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        enum change expected = key->reloadable ? CHANGE_TAKEN : CHANGE_LEFT;
        if (!has_field(key) || is_of_all(key))
            continue;
        config_init(&now);
        next = now;
        ((char *)&next)[key->offset] ^= 1;
        changes_find(&changes, &now, &next);
        for (size_t j = 0; j < key_count(); j++)
            ck_assert_int_eq(changes.of[j], j == i ? expected : CHANGE_NONE);
        changes_take(&changes, &now, &next);
        ck_assert_int_eq(
            memcmp(&now, &next, sizeof(now)) == 0, expected == CHANGE_TAKEN);
    }
}

END_TEST

START_TEST(all_names_fit)
{
    char out[CHANGES_TEXT_BYTES];

    for (size_t i = 0; i < key_count(); i++)
        changes.of[i] = has_field(key_at(i)) ? CHANGE_LEFT : CHANGE_NONE;
    changes_text(&changes, CHANGE_LEFT, out, sizeof(out));
    ck_assert_ptr_nonnull(strstr(out, ",log.level"));
}

END_TEST

START_TEST(a_file_is_taken_and_left_by_its_keys)
{
    start_with("limits: {holds: 10}\n");
    ck_assert_msg(
        reload_with("limits: {holds: 11, name: 99}\nlog: {level: debug}\n"),
        "%s", error);
    ck_assert_str_eq(keys(CHANGE_TAKEN), "limits.holds,log.level");
    ck_assert_str_eq(keys(CHANGE_LEFT), "limits.name");
    ck_assert_uint_eq(now.limit_holds, 11);
    ck_assert_uint_eq(now.limit_name, 255);
    ck_assert_str_eq(now.log_level, "debug");
    /* A change that needs a restart is reported at each reload. */
    ck_assert(reload_with("limits: {holds: 11, name: 99}\n"));
    ck_assert_str_eq(keys(CHANGE_TAKEN), "log.level");
    ck_assert_str_eq(keys(CHANGE_LEFT), "limits.name");
    ck_assert(reload_with("limits: {holds: 11}\n"));
    ck_assert(!changes_any(&changes, CHANGE_TAKEN));
    ck_assert(!changes_any(&changes, CHANGE_LEFT));
}

END_TEST

START_TEST(a_bad_file_changes_nothing)
{
    char expected[96];

    start_with("limits: {holds: 10}\n");
    ck_assert(!reload_with("limits: {waiters: 7}\nlog: {level: loud}\n"));
    snprintf(expected, sizeof(expected), "%s:2:14: log.level: ", file_name);
    ck_assert_msg(strncmp(error, expected, strlen(expected)) == 0, "%s", error);
    ck_assert_mem_eq(&now, &before, sizeof(now));
    unlink(file_name);
    ck_assert(!config_reload(
        &now, file_name, NULL, NULL, &changes, error, sizeof(error)));
    ck_assert_mem_eq(&now, &before, sizeof(now));
}

END_TEST

START_TEST(a_pipe_is_not_waited_for)
{
    ck_assert_int_eq(unlink(file_name), 0);
    ck_assert_int_eq(mkfifo(file_name, 0600), 0);
    ck_assert(!config_reload(
        &now, file_name, NULL, NULL, &changes, error, sizeof(error)));
    ck_assert_ptr_nonnull(strstr(error, ": not a regular file"));
}

END_TEST

START_TEST(what_stays_must_fit_what_is_taken)
{
    char expected[96];

    start_with("lease: {default: 30s}\n");
    ck_assert(
        !reload_with("lease: {default: 60s}\nredis: {command_timeout: 15s}\n"));
    snprintf(expected, sizeof(expected),
        "%s:2:9: redis.command_timeout: 15s must be less", file_name);
    ck_assert_msg(strncmp(error, expected, strlen(expected)) == 0, "%s", error);
    ck_assert_mem_eq(&now, &before, sizeof(now));
}

END_TEST

START_TEST(a_default_follows_what_is_in_force)
{
    start_with("lease: {default: 2s}\n");
    ck_assert_uint_eq(now.command_timeout_ms, 500);
    ck_assert_msg(reload_with("lease: {default: 30s}\n"), "%s", error);
    ck_assert_str_eq(keys(CHANGE_TAKEN), "");
    ck_assert_str_eq(keys(CHANGE_LEFT), "redis.settle,lease.default");
    ck_assert_mem_eq(&now, &before, sizeof(now));
    ck_assert(reload_with("redis: {command_timeout: 300ms}\n"));
    ck_assert_uint_eq(now.command_timeout_ms, 300);
    ck_assert(reload_with(""));
    ck_assert_uint_eq(now.command_timeout_ms, 500);
    start_with("audit: {break_after: 48h}\nnamespaces: [{prefix: a/}]\n");
    ck_assert(
        reload_with("audit: {break_after: 1h}\nnamespaces: [{prefix: a/}]\n"));
    ck_assert_str_eq(keys(CHANGE_TAKEN), "");
    ck_assert_str_eq(keys(CHANGE_LEFT), "audit.break_after");
}

END_TEST

START_TEST(a_password_is_read_again)
{
    char text[96];

    snprintf(text, sizeof(text), "redis: {password_file: %s}\n", secret_name);
    write_text(secret_name, "one\n");
    start_with(text);
    write_text(secret_name, "two\n");
    ck_assert_msg(reload_with(text), "%s", error);
    ck_assert_str_eq(keys(CHANGE_TAKEN), "redis.password_file");
    ck_assert_str_eq(now.redis_password, "two");
    write_text(secret_name, "");
    ck_assert(!reload_with(text));
    ck_assert_str_eq(now.redis_password, "two");
}

END_TEST

START_TEST(tls_as_such_is_left)
{
    start_with("");
    ck_assert_msg(
        reload_with("redis: {tls: {ca: /ca.pem, verify: ca}}\n"), "%s", error);
    ck_assert_str_eq(keys(CHANGE_LEFT), "redis.tls.ca,redis.tls.verify");
    ck_assert_str_eq(now.tls_ca, "");
    start_with("redis: {tls: {ca: /ca.pem}}\n");
    ck_assert(reload_with("redis: {tls: {ca: /other.pem}}\n"));
    ck_assert_str_eq(keys(CHANGE_TAKEN), "redis.tls.ca");
    ck_assert_str_eq(now.tls_ca, "/other.pem");
    ck_assert(reload_with(""));
    ck_assert_str_eq(keys(CHANGE_LEFT), "redis.tls.ca");
    ck_assert_str_eq(now.tls_ca, "/other.pem");
}

END_TEST

/* As are the sockets for it. */
START_TEST(tls_of_clients_as_such_is_left)
{
    start_with("");
    ck_assert_msg(reload_with("listen: {tls_cert: /c, tls_key: /k, "
                              "tls: '127.0.0.1:4655'}\n"),
        "%s", error);
    ck_assert_str_eq(
        keys(CHANGE_LEFT), "listen.tls,listen.tls_cert,listen.tls_key");
    ck_assert_str_eq(now.listen_tls_cert, "");
    start_with("listen: {tls_cert: /c, tls_key: /k}\n");
    ck_assert(reload_with("listen: {tls_cert: /d, tls_key: /k, "
                          "tls_client_ca: /a, tls_client_cert: required}\n"));
    ck_assert_str_eq(keys(CHANGE_TAKEN),
        "listen.tls_cert,listen.tls_client_ca,listen.tls_client_cert");
    ck_assert_str_eq(now.listen_tls_client_ca, "/a");
    ck_assert(reload_with(""));
    ck_assert_str_eq(keys(CHANGE_LEFT),
        "listen.tls_cert,listen.tls_key,listen.tls_client_ca,"
        "listen.tls_client_cert");
    ck_assert_str_eq(now.listen_tls_cert, "/d");
    ck_assert(reload_with("listen: {tls_cert: /d, tls_key: /k}\n"));
    ck_assert_str_eq(
        keys(CHANGE_TAKEN), "listen.tls_client_ca,listen.tls_client_cert");
    ck_assert_str_eq(now.listen_tls_client_ca, "");
}

END_TEST

/* A password for encrypted connections is not sent over others. */
START_TEST(passwords_wait_with_tls)
{
    char text[400];

    write_text(secret_name, "old\n");
    snprintf(text, sizeof(text), "redis: {username: one, password_file: %s}\n",
        secret_name);
    start_with(text);
    write_text(secret_name, "new\n");
    snprintf(text, sizeof(text),
        "redis: {username: two, password_file: %s, tls: {ca: /ca.pem}}\n",
        secret_name);
    ck_assert_msg(reload_with(text), "%s", error);
    ck_assert_str_eq(keys(CHANGE_TAKEN), "");
    ck_assert_str_eq(
        keys(CHANGE_LEFT), "redis.username,redis.password_file,redis.tls.ca");
    ck_assert_mem_eq(&now, &before, sizeof(now));
    ck_assert_str_eq(now.redis_password, "old");
}

END_TEST

START_TEST(users_as_such_are_left)
{
    start_with("");
    ck_assert_msg(reload_with("auth: {users_file: /users}\n"), "%s", error);
    ck_assert_str_eq(keys(CHANGE_LEFT), "auth.users_file");
    ck_assert_str_eq(now.users_file, "");
    start_with("auth: {users_file: /users}\n");
    ck_assert(reload_with("auth: {users_file: /others}\n"));
    ck_assert_str_eq(keys(CHANGE_TAKEN), "auth.users_file");
    ck_assert_str_eq(now.users_file, "/others");
    ck_assert(reload_with(""));
    ck_assert_str_eq(keys(CHANGE_LEFT), "auth.users_file");
    ck_assert_str_eq(now.users_file, "/others");
}

END_TEST

START_TEST(namespaces_come_and_go)
{
    start_with("namespaces: [{prefix: a/}, {prefix: b/}]\n");
    ck_assert_msg(reload_with("namespaces: [{prefix: b/}]\n"), "%s", error);
    ck_assert_str_eq(keys(CHANGE_TAKEN), "namespaces");
    ck_assert_uint_eq(now.namespace_count, 1);
    ck_assert_str_eq(now.namespaces[0].prefix, "b/");
}

END_TEST

Suite *
changes_suite(void)
{
    Suite *suite = suite_create("changes");
    TCase *cases = tcase_create("changes");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, each_key_is_taken_or_left);
    tcase_add_test(cases, all_names_fit);
    tcase_add_test(cases, a_file_is_taken_and_left_by_its_keys);
    tcase_add_test(cases, a_bad_file_changes_nothing);
    tcase_add_test(cases, a_pipe_is_not_waited_for);
    tcase_add_test(cases, what_stays_must_fit_what_is_taken);
    tcase_add_test(cases, a_default_follows_what_is_in_force);
    tcase_add_test(cases, a_password_is_read_again);
    tcase_add_test(cases, tls_as_such_is_left);
    tcase_add_test(cases, tls_of_clients_as_such_is_left);
    tcase_add_test(cases, passwords_wait_with_tls);
    tcase_add_test(cases, users_as_such_are_left);
    tcase_add_test(cases, namespaces_come_and_go);
    suite_add_tcase(suite, cases);
    return suite;
}
