/*
 * Tests of daemon/core: users. Sessions before AUTH, rights, lists without
 * hidden entries, failures and their cost. Sessions that move, limits of users
 * and addresses, and another list of users.
 */
#include "conf/users.h"
#include "daemon/op/op.h"
#include "proto/request.h"
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *core_auth_suite(void);

#define SECRETS 4

/* Owned by the test that runs; see start() and change(). */
static struct users *users;

/* The file of users, in which $1 to $4 are the secrets "the secret 1" and so
 * on. */
static struct users *
users_of(const char *text)
{
    char file[2000];
    char error[200];
    size_t len = 0;

    for (; *text != '\0'; text++) {
        uint8_t salt[USER_SALT_BYTES] = {(uint8_t)text[1]};
        char secret[] = "the secret N";
        if (*text != '$') {
            file[len++] = *text;
            continue;
        }
        text++;
        secret[sizeof(secret) - 2] = *text;
        user_hash_text(salt, text_from(secret), file + len);
        len += USER_HASHED_BYTES - 1;
    }
    struct users *made =
        users_parse("users", text_make(file, len), error, sizeof(error));
    ck_assert_msg(made != NULL, "%s", error);
    return made;
}

#define THE_USERS                                       \
    "shop secret=$1 lock=stock/* lock=nightly\n"        \
    "desk secret=$2 lock=desk/* see=stock/1 break=it\n" \
    "ops secret=$3 uid=0 lock=* break=* admin\n"        \
    "eye uid=7 see=*\n"

static struct rig *
start_with(const char *text, uint32_t of_address, uint32_t of_user,
    uint32_t holds_of_user)
{
    struct rig *rig = rig_create();

    users = users_of(text);
    rig->settings.users = users;
    rig->settings.address_connections_max = of_address;
    rig->settings.user_connections_max = of_user;
    rig->settings.user_holds_max = holds_of_user;
    rig_start(rig);
    return rig;
}

/* With a time in which it has to be said who one is. */
static struct rig *
start_until(uint64_t ms)
{
    struct rig *rig = rig_create();

    users = users_of(THE_USERS);
    rig->settings.users = users;
    rig->settings.auth_us = ms * 1000;
    rig_start(rig);
    return rig;
}

static struct rig *
start(void)
{
    return start_with(THE_USERS, 0, 0, 0);
}

/* Another list of users. */
static void
change(struct rig *rig, const char *text)
{
    struct users *old = users;

    users = users_of(text);
    rig->settings.users = users;
    core_configure(rig->core, &rig->settings);
    users_destroy(&old);
    core_check(rig->core);
    rig_pass(rig, 2);
}

static void
end(struct rig *rig)
{
    rig_end(rig);
    users_destroy(&users);
}

/* A session of the user, from 10.0.0.1. */
static unsigned
session_of(struct rig *rig, const char *user, char secret)
{
    unsigned s = rig_open_tcp(rig);
    char line[80];

    snprintf(line, sizeof(line), "AUTH %s the%%20secret%%20%c", user, secret);
    rig_ask(rig, s, line, "- OK");
    return s;
}

static void
answer(struct rig *rig, unsigned s, const char *line, const char *reply)
{
    rig_ask(rig, s, line, reply);
}

/* --- before AUTH ---------------------------------------------------------- */

START_TEST(greeting)
{
    struct rig *rig = start();

    rig_open_tcp(rig);
    ck_assert_ptr_nonnull(strstr(rig->sessions[0].lines, " auth=required\n"));
    rig->user = users_of_uid(users, 0, &rig->mark);
    rig_open_tcp(rig);
    ck_assert_ptr_null(strstr(rig->sessions[1].lines, "auth="));
    answer(rig, 1, "LOCKS", "- OK n=0");
    end(rig);
}

END_TEST

/* The shortest request of a command, by its usage. */
static const char *
shortest(enum command command)
{
    static const char *const samples[][2] = {{"=D", "=1"}, {"=F", "=1"},
        {"=N", "=1"}, {"TAG", "1"}, {"session", "00000000"}};
    static char line[64];
    const char *usage = command_usage(command);
    const char *options = strstr(usage, " [");
    size_t len = options == NULL ? strlen(usage) : (size_t)(options - usage);

    snprintf(line, sizeof(line), "%.*s", (int)len, usage);
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        char *at = strstr(line, samples[i][0]);
        if (at != NULL) /* the end of the line */
            memcpy(at, samples[i][1], strlen(samples[i][1]) + 1);
    }
    return line;
}

START_TEST(nothing_before)
{
    static const bool served[COMMAND_COUNT] = {[COMMAND_HELLO] = true,
        [COMMAND_AUTH] = true,
        [COMMAND_PING] = true,
        [COMMAND_PONG] = true,
        [COMMAND_HELP] = true,
        [COMMAND_QUIT] = true};
    struct rig *rig = start();
    unsigned s = rig_open_tcp(rig);
    unsigned refused = 1;

    answer(rig, s, "HELLO resume=00000000000000000000000000000000 gen=2",
        "- ERR AUTH retry=0");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (served[i])
            continue;
        answer(rig, s, shortest((enum command)i), "- ERR AUTH retry=0");
        refused++;
    }
    rig_no_op(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_requests_unknown_user), refused);
    answer(rig, s, "PING", "- OK");
    rig_say(rig, s, "PONG 1");
    answer(rig, s, "HELLO name=n keep=1s",
        "- OK session=~ proto=1 server=~ keep_ms=1000");
    rig_say(rig, s, "HELP");
    for (int i = 0; i < COMMAND_COUNT; i++)
        rig_expect(rig, s, "- ITEM command=~");
    rig_expect(rig, s, "- OK n=~");
    answer(rig, s, "LOCKX", "- ERR UNKNOWN retry=0");
    answer(rig, s, "QUIT", "- OK");
    rig_expect(rig, s, "* BYE quit");
    end(rig);
}

END_TEST

/* Without users there is nobody to be. */
SESSION_TEST(no_users)
{
    answer(rig, s, "AUTH shop the%20secret%201", "- ERR AUTH retry=0");
    answer(rig, s, "LOCKS", "- OK n=0");
}

START_TEST(words)
{
    struct rig *rig = start();
    unsigned s = rig_open_tcp(rig);

    answer(rig, s, "AUTH", "- ERR BADREQ retry=0");
    answer(rig, s, "AUTH shop", "- ERR BADREQ retry=0");
    answer(rig, s, "AUTH shop a b", "- ERR BADREQ retry=0");
    answer(rig, s, "AUTH shop name=a", "- ERR BADREQ retry=0");
    answer(rig, s,
        "AUTH 0123456789012345678901234567890123456789012345678901234567890123x"
        " a",
        "- ERR TOOLONG retry=0");
    answer(rig, s, "auth shop the%20secret%201", "- OK");
    end(rig);
}

END_TEST

/* --- rights --------------------------------------------------------------- */

/* How often a LOCK was, in all. */
static uint64_t
answered(struct rig *rig, enum namespace_counter result)
{
    struct core_namespace namespaces[NAMESPACES_MAX + 1];

    ck_assert_uint_eq(core_namespaces(rig->core, rig->now_us, namespaces), 1);
    return namespaces[0].counted->value[result];
}

START_TEST(locks)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    rig_lock(rig, s, "LOCK stock/7", 5);
    rig_lock(rig, s, "LOCK nightly", 6);
    answer(rig, s, "LOCK desk/7", "- ERR DENIED retry=0 right=lock");
    answer(rig, s, "LOCK nightly2", "- ERR DENIED retry=0 right=lock");
    answer(rig, s, "LOCK stock/8 desk/7 wait=0",
        "- ERR DENIED retry=0 right=lock name=desk/7");
    answer(rig, s, "RENEW desk/7 lease=1s", "- ERR DENIED retry=0 right=lock");
    answer(rig, s, "CLAIM desk/7 fence=1", "- ERR DENIED retry=0 right=lock");
    answer(rig, s, "NOTE desk/7 note=x", "- ERR DENIED retry=0 right=lock");
    answer(rig, s, "RESIZE desk/7 limit=2", "- ERR DENIED retry=0 right=lock");
    rig_no_op(rig);
    ck_assert_uint_eq(rig_count(rig, COUNTER_requests_denied), 7);
    ck_assert_uint_eq(answered(rig, NAMESPACE_denied), 3);
    rig_say(rig, s, "UNLOCK stock/7");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "- OK count=0");
    answer(rig, s, "UNLOCK desk/7", "- ERR NOTHELD retry=0");
    end(rig);
}

END_TEST

START_TEST(suspects)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "desk", '2');

    rig_say(rig, s, "SHOW stock/1");
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "- OK state=free holders=0 waiters=0");
    rig_say(rig, s, "SHOW it");
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "- OK state=free holders=0 waiters=0");
    answer(rig, s, "SHOW stock/2", "- ERR DENIED retry=0 right=see");
    answer(rig, s, "WATCH stock/2", "- ERR DENIED retry=0 right=see");
    answer(rig, s, "LOCK stock/1", "- ERR DENIED retry=0 right=lock");
    answer(rig, s, "BREAK stock/1", "- ERR DENIED retry=0 right=break");
    answer(rig, s, "STATS", "- ERR DENIED retry=0 right=admin");
    answer(rig, s, "AUDIT", "- ERR DENIED retry=0 right=admin");
    answer(rig, s, "DRAIN", "- ERR DENIED retry=0 right=admin");
    rig_no_op(rig);
    rig_say(rig, s, "BREAK it");
    rig_status(rig, rig_op(rig, OP_BREAK), OP_GONE);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "- OK holders=0");
    end(rig);
}

END_TEST

START_TEST(lists)
{
    struct rig *rig = start();
    unsigned shop = session_of(rig, "shop", '1');
    unsigned desk = session_of(rig, "desk", '2');
    unsigned ops = session_of(rig, "ops", '3');

    rig_lock(rig, shop, "LOCK stock/1", 5);
    rig_lock(rig, shop, "LOCK stock/2", 6);
    rig_lock(rig, desk, "LOCK desk/1", 7);
    rig_ask(rig, shop, "LOCKS",
        "- ITEM name=stock/1 state=held holders=1 waiters=0 "
        "session=~ fence=5 age_ms=0");
    rig_expect(rig, shop,
        "- ITEM name=stock/2 state=held holders=1 waiters=0 "
        "session=~ fence=6 age_ms=0");
    rig_expect(rig, shop, "- OK n=2");
    rig_ask(rig, desk, "LOCKS",
        "- ITEM name=stock/1 state=held holders=1 waiters=0 "
        "session=~ fence=5 age_ms=0");
    rig_expect(rig, desk,
        "- ITEM name=desk/1 state=held holders=1 waiters=0 "
        "session=~ fence=7 age_ms=0");
    rig_expect(rig, desk, "- OK n=2");
    rig_ask(
        rig, desk, "LOCKS prefix=stock/1", "- ITEM name=stock/1 ~ ~ ~ ~ ~ ~");
    rig_expect(rig, desk, "- OK n=1");
    rig_ask(rig, desk, "LOCKS prefix=stock/2", "- OK n=0");
    rig_ask(rig, desk, "LOCKS prefix=stock/12", "- OK n=0");
    rig_ask(rig, desk, "SESSIONS",
        "- ITEM session=~ user=desk peer=~ age_ms=~ idle_ms=~ holds=1 waits=0");
    rig_expect(rig, desk, "- OK n=1");
    rig_say(rig, ops, "SESSIONS");
    for (int i = 0; i < 3; i++)
        rig_expect(rig, ops,
            "- ITEM session=~ user=~ peer=~ age_ms=~ idle_ms=~ holds=~ "
            "waits=0");
    rig_expect(rig, ops, "- OK n=3");
    end(rig);
}

END_TEST

/* Slow and lost requests for names that the user may see. */
START_TEST(memories)
{
    struct rig *rig = start();
    unsigned shop = session_of(rig, "shop", '1');
    unsigned desk = session_of(rig, "desk", '2');

    rig_lock(rig, shop, "LOCK stock/2 lease=1s", 6);
    rig_lock(rig, shop, "LOCK stock/1 lease=1s", 5);
    rig_pass(rig, 1100);
    rig_expect(rig, shop, "* LOST stock/2 fence=6 reason=expired");
    rig_expect(rig, shop, "* LOST stock/1 fence=5 reason=expired");
    rig_ask(rig, desk, "SLOW kind=lost",
        "- ITEM kind=lost age_ms=~ name=stock/1 session=~ reason=expired "
        "fence=5 held_ms=~ late_us=~");
    rig_expect(rig, desk, "- OK n=1");
    rig_ask(rig, shop, "SLOW kind=lost limit=1",
        "- ITEM kind=lost age_ms=~ name=stock/1 session=~ reason=expired "
        "fence=5 held_ms=~ late_us=~");
    rig_expect(rig, shop, "- OK n=1");
    end(rig);
}

END_TEST

START_TEST(kills)
{
    struct rig *rig = start();
    unsigned shop = session_of(rig, "shop", '1');
    unsigned again = session_of(rig, "shop", '1');
    unsigned desk = session_of(rig, "desk", '2');
    unsigned ops = session_of(rig, "ops", '3');
    unsigned nobody = rig_open_tcp(rig);

    rig_kill(rig, desk, shop);
    rig_expect(rig, desk, "- ERR NOTHELD retry=0");
    rig_kill(rig, desk, nobody);
    rig_expect(rig, desk, "- ERR NOTHELD retry=0");
    rig_silent(rig, shop);
    rig_kill(rig, again, shop);
    rig_expect(rig, again, "- OK");
    rig_expect(rig, shop, "* BYE killed");
    rig_kill(rig, ops, again);
    rig_expect(rig, ops, "- OK");
    rig_expect(rig, again, "* BYE killed");
    rig_kill(rig, ops, nobody);
    rig_expect(rig, ops, "- OK");
    rig_expect(rig, nobody, "* BYE killed");
    end(rig);
}

END_TEST

/* A session that tries to resume another user's session keeps its own ID, and
 * is in nobody's way. */
START_TEST(kills_of_one_id)
{
    struct rig *rig = start();
    unsigned desk = session_of(rig, "desk", '2');
    unsigned shop = session_of(rig, "shop", '1');
    unsigned again = session_of(rig, "shop", '1');

    rig_resume(rig, shop, desk, 2, "");
    rig_expect(rig, desk, "- OK session=~ proto=1 server=~ gen=2");
    rig_kill(rig, again, shop);
    rig_expect(rig, again, "- OK");
    rig_expect(rig, shop, "* BYE killed");
    rig_silent(rig, desk);
    rig_kill(rig, again, shop);
    rig_expect(rig, again, "- ERR NOTHELD retry=0");
    end(rig);
}

END_TEST

/* --- failures ------------------------------------------------------------- */

START_TEST(failures_cost_time)
{
    static const uint64_t delays_ms[] = {
        250, 500, 1000, 2000, 4000, 8000, 8000};
    struct rig *rig = start();
    unsigned s = rig_open_tcp(rig);

    for (size_t i = 0; i < sizeof(delays_ms) / sizeof(delays_ms[0]); i++) {
        rig_say(rig, s,
            i % 2 == 0 ? "1 AUTH shop the%20secret%202"
                       : "1 AUTH shopp the%20secret%201");
        rig_pass(rig, delays_ms[i] - 10);
        rig_silent(rig, s);
        rig_pass(rig, 20);
        rig_expect(rig, s, "1 ERR AUTH retry=0");
    }
    ck_assert_uint_eq(rig_count(rig, COUNTER_auth_failed), 7);
    /* The right one does not wait, */
    answer(rig, s, "AUTH shop the%20secret%201", "- OK");
    /* nor is what failed before of any matter to another address. */
    rig->address[15] = 1;
    unsigned other = rig_open_tcp(rig);
    rig_say(rig, other, "1 AUTH shop x");
    rig_pass(rig, 260);
    rig_expect(rig, other, "1 ERR AUTH retry=0");
    end(rig);
}

END_TEST

/* Neither by connecting anew, nor by going away, but by time. */
START_TEST(failures_are_remembered)
{
    struct rig *rig = start();
    unsigned s;

    for (int i = 0; i < 3; i++) {
        s = rig_open_tcp(rig);
        rig_say(rig, s, "1 AUTH shop x");
        rig_event(rig, s, CORE_DROP);
    }
    s = rig_open_tcp(rig);
    rig_say(rig, s, "1 AUTH shop x");
    rig_pass(rig, 1990);
    rig_silent(rig, s);
    rig_pass(rig, 20);
    rig_expect(rig, s, "1 ERR AUTH retry=0");
    rig_event(rig, s, CORE_DROP);
    rig_pass(rig, 300000);
    s = rig_open_tcp(rig);
    rig_say(rig, s, "1 AUTH shop x");
    rig_pass(rig, 260);
    rig_expect(rig, s, "1 ERR AUTH retry=0");
    end(rig);
}

END_TEST

START_TEST(failures_wait_in_bounded_number)
{
    struct rig *rig = start();
    unsigned last = 0;

    for (int i = 0; i < 64; i++) {
        last = rig_open_tcp(rig);
        rig_say(rig, last, "AUTH shop x");
    }
    rig_silent(rig, last);
    unsigned more = rig_open_tcp(rig);
    rig_ask(rig, more, "AUTH shop x", "- ERR LIMIT retry=1 limit=auth");
    ck_assert_uint_eq(rig_count(rig, COUNTER_limit_auth), 1);
    session_of(rig, "shop", '1'); /* the right secret does not wait */
    rig_event(rig, 0, CORE_DROP);
    rig_say(rig, more, "AUTH shop x");
    rig_say(rig, last, "QUIT");
    rig_silent(rig, last);
    rig_pass(rig, 8100);
    rig_expect(rig, last, "- ERR AUTH retry=0");
    rig_expect(rig, last, "- OK");
    rig_expect(rig, last, "* BYE quit");
    rig_expect(rig, more, "- ERR AUTH retry=0");
    end(rig);
}

END_TEST

/* Lines behind an AUTH that fails have their turn after the reply. */
START_TEST(nothing_overtakes_it)
{
    struct rig *rig = start();
    unsigned s = rig_open_tcp(rig);

    rig_say(rig, s, "1 AUTH shop x");
    rig_say(rig, s, "");
    rig_say(rig, s, "PONG 1");
    rig_say(rig, s, "2 PING");
    rig_say(rig, s, "3 LOCK stock/1");
    rig_say(rig, s, "4 AUTH shop the%20secret%201");
    rig_say(rig, s, "5 AUTH shop y");
    rig_say(rig, s, "1 PING");
    rig_say(rig, s, "6 LOCK stock/1");
    rig_say(rig, s, "7 QUIT");
    rig_say(rig, s, "8 PING");
    rig_silent(rig, s);
    rig_pass(rig, 260);
    rig_expect(rig, s, "1 ERR AUTH retry=0");
    rig_expect(rig, s, "2 OK");
    rig_expect(rig, s, "3 ERR AUTH retry=0");
    rig_expect(rig, s, "4 OK");
    rig_silent(rig, s);
    rig_no_op(rig);
    rig_pass(rig, 510);
    rig_expect(rig, s, "5 ERR AUTH retry=0");
    rig_expect(rig, s, "1 OK");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_expect(rig, s, "6 OK fence=5 ttl_ms=~ count=1");
    rig_expect(rig, s, "7 OK");
    rig_expect(rig, s, "* BYE quit");
    end(rig);
}

END_TEST

/* So is the end of input, unless that frees locks. */
START_TEST(nor_does_the_end)
{
    struct rig *rig = start();
    unsigned s = _i == 0 ? rig_open_tcp(rig) : session_of(rig, "shop", '1');

    if (_i == 1)
        rig_lock(rig, s, "LOCK stock/1", 5);
    rig_say(rig, s, "1 AUTH shop x");
    rig_say(rig, s, "2 PING");
    rig_event(rig, s, CORE_EOF);
    if (_i == 1) {
        rig_expect(rig, s, "2 ERR CANCELLED retry=1");
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    }
    rig_silent(rig, s);
    rig_pass(rig, 260);
    rig_expect(rig, s, "1 ERR AUTH retry=0");
    if (_i == 0)
        rig_expect(rig, s, "2 OK");
    rig_expect(rig, s, "* BYE eof");
    end(rig);
}

END_TEST

/* So has what waits while the broker stops. */
START_TEST(nor_does_a_stop)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    rig_say(rig, s, "1 AUTH shop x");
    rig_say(rig, s, "2 PING");
    rig_say(rig, s, "3 LOCK stock/1");
    rig_stop(rig);
    rig_pass(rig, 260);
    rig_expect(rig, s, "* DRAIN grace_ms=10000");
    rig_expect(rig, s, "1 ERR AUTH retry=0");
    rig_expect(rig, s, "2 OK");
    rig_expect(rig, s, "3 ERR DRAINING retry=1");
    rig_expect(rig, s, "* BYE drain");
    end(rig);
}

END_TEST

/* A line that had to wait may end its session. */
START_TEST(a_kill_has_its_turn)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');
    char line[40] = "2 KILL ";

    rig_id(rig, s, line + 7);
    rig_say(rig, s, "1 AUTH shop x");
    rig_say(rig, s, line);
    rig_say(rig, s, "3 PING");
    rig_pass(rig, 260);
    rig_expect(rig, s, "1 ERR AUTH retry=0");
    rig_expect(rig, s, "2 OK");
    rig_expect(rig, s, "* BYE killed");
    end(rig);
}

END_TEST

/* Some lines wait; those of a session that goes are forgotten. */
START_TEST(what_waits_behind_it_is_bounded)
{
    struct rig *rig = start();
    unsigned s = rig_open_tcp(rig);
    char line[20];

    rig_say(rig, s, "1 AUTH shop x");
    for (int i = 2; i < 34; i++) {
        snprintf(line, sizeof(line), "%d PING", i);
        rig_say(rig, s, line);
    }
    rig_silent(rig, s);
    rig_ask(rig, s, "34 PING", "34 ERR LIMIT retry=1 limit=auth");
    if (_i == 0) {
        rig_pass(rig, 260);
        rig_expect(rig, s, "1 ERR AUTH retry=0");
        for (int i = 2; i < 34; i++) {
            snprintf(line, sizeof(line), "%d OK", i);
            rig_expect(rig, s, line);
        }
    } else {
        rig_event(rig, s, CORE_DROP);
    }
    end(rig);
}

END_TEST

/* Many addresses, of which none has anybody connected, are forgotten. */
START_TEST(failures_of_many)
{
    struct rig *rig = start();

    for (unsigned i = 0; i < 5000; i++) {
        rig->address[14] = (uint8_t)(i >> 8);
        rig->address[15] = (uint8_t)i;
        if (i == 0)
            rig_open_tcp(rig);
        else
            rig_reopen(rig, 0);
        rig_say(rig, 0, "1 AUTH shop x");
        rig_event(rig, 0, CORE_DROP);
    }
    ck_assert_uint_eq(rig_count(rig, COUNTER_auth_failed), 5000);
    /* The last one is remembered, */
    rig_reopen(rig, 0);
    rig_say(rig, 0, "1 AUTH shop x");
    rig_pass(rig, 490);
    rig_silent(rig, 0);
    rig_pass(rig, 20);
    rig_expect(rig, 0, "1 ERR AUTH retry=0");
    rig_event(rig, 0, CORE_DROP);
    /* and the first one is not. */
    rig->address[14] = rig->address[15] = 0;
    rig_reopen(rig, 0);
    rig_say(rig, 0, "1 AUTH shop x");
    rig_pass(rig, 260);
    rig_expect(rig, 0, "1 ERR AUTH retry=0");
    end(rig);
}

END_TEST

/* --- a session and its user ----------------------------------------------- */

START_TEST(another_user)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    answer(rig, s, "AUTH desk the%20secret%202", "- OK");
    rig_lock(rig, s, "LOCK desk/1", 5);
    answer(rig, s, "AUTH shop the%20secret%201", "- ERR CONFLICT retry=0");
    answer(rig, s, "AUTH desk the%20secret%202", "- OK");
    answer(rig, s, "LOCK stock/1", "- ERR DENIED retry=0 right=lock");
    /* One that fails changes nothing. */
    rig_say(rig, s, "1 AUTH shop x");
    rig_pass(rig, 300);
    rig_expect(rig, s, "1 ERR AUTH retry=0");
    rig_say(rig, s, "UNLOCK desk/1");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "- OK count=0");
    answer(rig, s, "AUTH shop the%20secret%201", "- OK");
    end(rig);
}

END_TEST

/* A request that is not over still belongs to the user that asked for it. */
START_TEST(another_user_while_something_is_asked)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    rig_say(rig, s, "1 SHOW stock/1");
    answer(rig, s, "AUTH desk the%20secret%202", "- ERR CONFLICT retry=0");
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "1 OK state=free holders=0 waiters=0");
    rig_say(rig, s, "WATCH stock/2");
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "- OK");
    rig_expect(rig, s, "* FREE stock/2");
    answer(rig, s, "AUTH desk the%20secret%202", "- ERR CONFLICT retry=0");
    answer(rig, s, "UNWATCH stock/2", "- OK");
    answer(rig, s, "AUTH desk the%20secret%202", "- OK");
    end(rig);
}

END_TEST

START_TEST(the_same_user_resumes)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');
    char id[33];
    char line[200];

    answer(rig, s, "HELLO keep=10s",
        "- OK session=~ proto=1 server=~ keep_ms=10000");
    rig_say(rig, s, "LOCK stock/1");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint8_t session[16];
    memcpy(session, op->session, sizeof(session));
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "- OK fence=5 ttl_ms=~ count=1");
    unsigned next = session_of(rig, "shop", '1');
    rig_resume(rig, s, next, 2, " keep=10s");
    rig_id(rig, s, id);
    snprintf(line, sizeof(line),
        "- OK session=%s proto=1 server=~ keep_ms=10000 gen=2", id);
    rig_expect(rig, next, line);
    rig_expect(rig, s, "* BYE resumed");
    rig_say(rig, next, "CLAIM stock/1 fence=5");
    ck_assert_mem_eq(rig_op(rig, OP_RENEW)->session, session, sizeof(session));
    end(rig);
}

END_TEST

/* The ID is not enough: nothing is taken over, here or in Redis. */
START_TEST(another_user_resumes_nothing)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    answer(rig, s, "HELLO keep=10s",
        "- OK session=~ proto=1 server=~ keep_ms=10000");
    rig_say(rig, s, "LOCK nightly");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    uint8_t session[16];
    memcpy(session, op->session, sizeof(session));
    rig_granted(rig, op, 5);
    rig_expect(rig, s, "- OK fence=5 ttl_ms=~ count=1");
    unsigned ops = session_of(rig, "ops", '3');
    rig_resume(rig, s, ops, 2, "");
    rig_expect(rig, ops, "- OK session=~ proto=1 server=~ gen=2");
    rig_silent(rig, s);
    /* Nor does another user get what was resumed. */
    answer(rig, ops, "AUTH desk the%20secret%202", "- ERR CONFLICT retry=0");
    rig_say(rig, ops, "CLAIM nightly fence=5");
    op = rig_op(rig, OP_RENEW);
    ck_assert_mem_ne(op->session, session, sizeof(session));
    ck_assert_mem_ne(op->session, rig->sessions[s].id, sizeof(session));
    end(rig);
}

END_TEST

/* --- limits --------------------------------------------------------------- */

START_TEST(connections_of_an_address)
{
    struct rig *rig = start_with(THE_USERS, 2, 0, 0);
    unsigned one = rig_open_tcp(rig);

    rig_open_tcp(rig);
    struct core_event event = {.kind = CORE_OPEN, .open = {.peer = ""}};
    rig_step(rig, &event);
    ck_assert(handle_equal(event.session, HANDLE_NONE));
    ck_assert_uint_eq(rig_count(rig, COUNTER_limit_address), 1);
    rig->address[0] = 1;
    rig_open_tcp(rig);
    rig->address[0] = 0;
    rig_event(rig, one, CORE_DROP);
    rig_open_tcp(rig);
    end(rig);
}

END_TEST

/* Those that have ended and are there still are bounded by themselves. */
START_TEST(lingering_of_an_address)
{
    struct rig *rig = start_with(THE_USERS, 2, 0, 0);
    const uint8_t other[16] = {9};
    struct peer_address *addresses[4];
    struct peer_address *none;

    rig_open_tcp(rig);
    rig_open_tcp(rig);
    ck_assert(core_linger(rig->core, rig->address, &addresses[0]));
    ck_assert(core_linger(rig->core, rig->address, &addresses[1]));
    ck_assert(!core_linger(rig->core, rig->address, &none));
    ck_assert_ptr_null(none);
    ck_assert(core_linger(rig->core, other, &addresses[2]));
    core_linger_end(rig->core, &addresses[0]);
    ck_assert_ptr_null(addresses[0]);
    ck_assert(core_linger(rig->core, rig->address, &addresses[0]));
    rig_event(rig, 0, CORE_DROP);
    rig_event(rig, 1, CORE_DROP);
    core_check(rig->core);
    for (int i = 0; i < 3; i++)
        core_linger_end(rig->core, &addresses[i]);
    core_check(rig->core);
    /* Without a limit they are not counted. */
    rig->settings.address_connections_max = 0;
    core_configure(rig->core, &rig->settings);
    for (int i = 0; i < 4; i++) {
        ck_assert(core_linger(rig->core, rig->address, &addresses[i]));
        ck_assert_ptr_null(addresses[i]);
        core_linger_end(rig->core, &addresses[i]);
    }
    end(rig);
}

END_TEST

START_TEST(connections_of_a_user)
{
    struct rig *rig = start_with(THE_USERS, 0, 2, 0);
    unsigned one = session_of(rig, "ops", '3');
    unsigned two = session_of(rig, "ops", '3');
    unsigned three = rig_open_tcp(rig);

    answer(rig, two, "AUTH ops the%20secret%203", "- OK");
    answer(rig, three, "AUTH ops the%20secret%203",
        "- ERR LIMIT retry=1 limit=user_connections");
    answer(rig, three, "LOCKS", "- ERR AUTH retry=0");
    struct core_event event = {.kind = CORE_OPEN, .open = {.peer = ""}};
    event.open.user = users_of_uid(users, 0, &event.open.mark);
    rig_step(rig, &event);
    ck_assert(handle_equal(event.session, HANDLE_NONE));
    ck_assert_uint_eq(rig_count(rig, COUNTER_limit_user_connections), 2);
    /* One that is kept has no connection. */
    answer(rig, one, "HELLO keep=60s",
        "- OK session=~ proto=1 server=~ keep_ms=60000");
    rig_lock(rig, one, "LOCK a", 5);
    rig_event(rig, one, CORE_DROP);
    answer(rig, three, "AUTH ops the%20secret%203", "- OK");
    end(rig);
}

END_TEST

START_TEST(holds_of_a_user)
{
    struct rig *rig = start_with(THE_USERS, 0, 0, 2);
    unsigned one = session_of(rig, "shop", '1');
    unsigned two = session_of(rig, "shop", '1');
    unsigned desk = session_of(rig, "desk", '2');

    rig_lock(rig, one, "LOCK stock/1", 5);
    rig_wait(rig, two, "2 LOCK stock/2");
    answer(rig, one, "LOCK stock/3", "- ERR LIMIT retry=1 limit=user_holds");
    ck_assert_uint_eq(rig_count(rig, COUNTER_limit_user_holds), 1);
    answer(rig, one, "LOCK stock/1", "- OK fence=5 ttl_ms=~ count=2");
    rig_lock(rig, desk, "LOCK desk/1", 6);
    rig_event(rig, two, CORE_DROP);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_lock(rig, one, "LOCK stock/3", 7);
    end(rig);
}

END_TEST

/* --- other users ---------------------------------------------------------- */

START_TEST(who_is_no_more_goes)
{
    struct rig *rig = start();
    unsigned shop = session_of(rig, "shop", '1');
    unsigned desk = session_of(rig, "desk", '2');
    unsigned ops = session_of(rig, "ops", '3');
    unsigned nobody = rig_open_tcp(rig);

    answer(rig, shop, "HELLO keep=60s",
        "- OK session=~ proto=1 server=~ keep_ms=60000");
    rig_lock(rig, shop, "LOCK stock/1", 5);
    change(rig, "desk secret=$4 lock=*\nops secret=$3 secret=$4 lock=*\n");
    rig_expect(rig, shop, "* BYE auth keep=0");
    ck_assert(rig->sessions[shop].closed);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, desk, "* BYE auth");
    rig_silent(rig, ops);
    rig_silent(rig, nobody);
    answer(rig, ops, "STATS", "- ERR DENIED retry=0 right=admin");
    answer(rig, nobody, "AUTH desk the%20secret%204", "- OK");
    ck_assert_uint_eq(rig_count(rig, COUNTER_closed_auth), 2);
    change(rig, "desk secret=$4 lock=*\nops secret=$4 lock=*\n");
    rig_expect(rig, ops, "* BYE auth");
    rig_silent(rig, nobody);
    end(rig);
}

END_TEST

/* A session without AUTH in time goes. An AUTH that has failed and is not
 * answered yet is answered then. */
START_TEST(who_is_not_known_in_time_goes)
{
    struct rig *rig = start_until(30000);
    unsigned shop = session_of(rig, "shop", '1');
    unsigned silent = rig_open_tcp(rig);
    unsigned wrong = rig_open_tcp(rig);
    unsigned late = rig_open_tcp(rig);

    answer(rig, silent, "HELLO heartbeat=1h",
        "- OK session=~ proto=1 server=~ heartbeat_ms=3600000");
    rig_pass(rig, 29990);
    rig_say(rig, wrong, "7 AUTH shop wrong");
    rig_silent(rig, wrong);
    answer(rig, late, "AUTH desk the%20secret%202", "- OK");
    rig_silent(rig, silent);
    rig_pass(rig, 20);
    rig_expect(rig, silent, "* BYE auth");
    rig_expect(rig, wrong, "7 ERR AUTH retry=0");
    rig_expect(rig, wrong, "* BYE auth");
    ck_assert(rig->sessions[silent].closed && rig->sessions[wrong].closed);
    rig_pass(rig, 60000);
    rig_silent(rig, late);
    rig_silent(rig, shop);
    ck_assert_uint_eq(rig_count(rig, COUNTER_closed_auth), 2);
    end(rig);
}

END_TEST

/* A reload has taken the user away, and its time has not come yet. */
START_TEST(auth_again_before_the_expulsion)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');
    struct users *old = users;

    users = users_of("shop secret=$4 lock=*\n");
    rig->settings.users = users;
    core_configure(rig->core, &rig->settings);
    users_destroy(&old);
    answer(rig, s, "AUTH shop the%20secret%204", "- OK");
    rig_say(rig, s, "QUIT");
    rig_pass(rig, 2);
    end(rig);
}

END_TEST

/* QUIT gives back what keep= would keep, however the connection ends. */
START_TEST(quit_then_expelled)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "ops", '3');

    answer(rig, s, "HELLO keep=60s",
        "- OK session=~ proto=1 server=~ keep_ms=60000");
    rig_say(rig, s, "1 LOCK b");
    struct op *op = rig_op(rig, OP_ACQUIRE);
    rig_say(rig, s, "QUIT");
    struct core_event event = {.kind = CORE_EXPEL, .expel = EXPEL_OUTPUT};
    event.session = rig->sessions[s].handle;
    rig_step(rig, &event);
    rig_granted(rig, op, 5);
    rig_pass(rig, 1000);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    end(rig);
}

END_TEST

/* Redis' record is damaged: nobody holds by it, and the broker goes on. */
START_TEST(grant_without_a_fence)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "ops", '3');

    rig_say(rig, s, "1 LOCK b");
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 0);
    end(rig);
}

END_TEST

/* The time to do it in may change, or there may be none. */
START_TEST(another_time_for_auth)
{
    struct rig *rig = start_until(0);
    unsigned ever = rig_open_tcp(rig);

    rig_pass(rig, 3600000);
    rig_silent(rig, ever);
    rig->settings.auth_us = 5000000;
    core_configure(rig->core, &rig->settings);
    rig_pass(rig, 2);
    rig_expect(rig, ever, "* BYE auth");
    unsigned soon = rig_open_tcp(rig);
    unsigned late = rig_open_tcp(rig);
    answer(rig, late, "AUTH desk the%20secret%202", "- OK");
    rig_pass(rig, 4000);
    rig->settings.auth_us = 10000000;
    core_configure(rig->core, &rig->settings);
    rig_pass(rig, 5000);
    rig_silent(rig, soon);
    rig_pass(rig, 1100);
    rig_expect(rig, soon, "* BYE auth");
    rig_silent(rig, late);
    end(rig);
}

END_TEST

/* The last proof of a session counts. */
START_TEST(another_secret_of_the_same_user)
{
    struct rig *rig = start_with("ops secret=$3 secret=$4 lock=*\n", 0, 0, 0);
    unsigned s = session_of(rig, "ops", '3');

    answer(rig, s, "AUTH ops the%20secret%204", "- OK");
    change(rig, "ops secret=$4 lock=*\n");
    answer(rig, s, "LOCKS", "- OK n=0");
    end(rig);
}

END_TEST

/* One that is kept, and has no connection: what it holds is given back. */
START_TEST(who_is_no_more_is_not_kept)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    answer(rig, s, "HELLO keep=60s",
        "- OK session=~ proto=1 server=~ keep_ms=60000");
    rig_lock(rig, s, "LOCK stock/1", 5);
    rig_event(rig, s, CORE_DROP);
    rig_no_op(rig);
    change(rig, THE_USERS);
    rig_no_op(rig);
    change(rig, "ops secret=$3 lock=*");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    end(rig);
}

END_TEST

START_TEST(rights_that_are_lost)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    rig_lock(rig, s, "LOCK nightly", 5);
    rig_wait(rig, s, "1 LOCK stock/1");
    rig_wait(rig, s, "2 LOCK stock/2 owner=o");
    rig_wait(rig, s, "3 LOCK stock/2 stock/3");
    rig_wait(rig, s, "4 LOCK stock/2 tree=1 owner=p"); /* for `stock` */
    change(rig, "shop secret=$1 lock=stock/2 lock=stock/1x");
    rig_expect(rig, s, "1 ERR DENIED retry=0 right=lock");
    rig_expect(rig, s, "3 ERR DENIED retry=0 right=lock name=stock/3");
    ck_assert_uint_eq(rig_count(rig, COUNTER_requests_denied), 2);
    ck_assert_uint_eq(answered(rig, NAMESPACE_denied), 2);
    ck_assert_uint_eq(answered(rig, NAMESPACE_failed), 0);
    rig_silent(rig, s);
    /* Holds stay. */
    rig_ask(rig, s, "HELD", "- ITEM name=nightly fence=5 ttl_ms=~ count=1");
    rig_expect(rig, s, "- OK n=1");
    answer(rig, s, "LOCK nightly", "- ERR DENIED retry=0 right=lock");
    while (rig->op_count > 0)
        rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_say(rig, s, "UNLOCK nightly");
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "- OK count=0");
    end(rig);
}

END_TEST

/* A request that is ended already is counted once, and names a lock also where
 * the right is back before its ERR. */
START_TEST(rights_that_are_lost_and_back)
{
    static const char *const lines[] = {"shop secret=$1 lock=stock/2",
        "shop secret=$1 lock=stock/3", "shop secret=$1 lock=*"};
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    rig_say(rig, s, "1 LOCK stock/1 stock/4");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        change(rig, lines[i]);
    rig_silent(rig, s);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    rig_expect(rig, s, "1 ERR DENIED retry=0 right=lock name=stock/1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_requests_denied), 1);
    end(rig);
}

END_TEST

/* Redis is asked for the lock, and does not answer for a command's time-out. */
START_TEST(rights_that_are_lost_meanwhile)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    rig_say(rig, s, "1 LOCK stock/1");
    change(rig, "shop secret=$1 lock=stock/2");
    rig_pass(rig, 1900);
    rig_silent(rig, s);
    rig_pass(rig, 200);
    rig_expect(rig, s, "1 ERR INDOUBT retry=1");
    ck_assert_uint_eq(rig_count(rig, COUNTER_requests_denied), 1);
    rig_granted(rig, rig_op(rig, OP_ACQUIRE), 5);
    rig_status(rig, rig_op(rig, OP_RELEASE), OP_OK);
    end(rig);
}

END_TEST

START_TEST(watches_that_are_lost)
{
    struct rig *rig = start();
    unsigned s = session_of(rig, "shop", '1');

    rig_say(rig, s, "WATCH stock/1");
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    rig_status(rig, rig_op(rig, OP_INSPECT), OP_GONE);
    rig_expect(rig, s, "- OK");
    rig_expect(rig, s, "* FREE stock/1");
    rig_say(rig, s, "1 WATCH stock/2 members=1");
    rig_status(rig, rig_op(rig, OP_LOOK), OP_OK);
    change(rig, "shop secret=$1 lock=stock/*");
    rig_silent(rig, s);
    change(rig, "shop secret=$1 lock=nightly");
    rig_expect(rig, s, "1 ERR CANCELLED retry=1");
    rig_silent(rig, s);
    answer(rig, s, "UNWATCH stock/1", "- ERR NOTHELD retry=0");
    answer(rig, s, "UNWATCH stock/2", "- ERR NOTHELD retry=0");
    end(rig);
}

END_TEST

Suite *
core_auth_suite(void)
{
    Suite *suite = suite_create("core_auth");
    TCase *cases = tcase_create("core_auth");

    tcase_add_test(cases, greeting);
    tcase_add_test(cases, nothing_before);
    tcase_add_test(cases, auth_again_before_the_expulsion);
    tcase_add_test(cases, quit_then_expelled);
    tcase_add_test(cases, grant_without_a_fence);
    tcase_add_test(cases, no_users);
    tcase_add_test(cases, words);
    tcase_add_test(cases, locks);
    tcase_add_test(cases, suspects);
    tcase_add_test(cases, lists);
    tcase_add_test(cases, memories);
    tcase_add_test(cases, kills);
    tcase_add_test(cases, kills_of_one_id);
    tcase_add_test(cases, failures_cost_time);
    tcase_add_test(cases, failures_are_remembered);
    tcase_add_test(cases, failures_wait_in_bounded_number);
    tcase_add_test(cases, nothing_overtakes_it);
    tcase_add_loop_test(cases, nor_does_the_end, 0, 2);
    tcase_add_test(cases, nor_does_a_stop);
    tcase_add_test(cases, a_kill_has_its_turn);
    tcase_add_loop_test(cases, what_waits_behind_it_is_bounded, 0, 2);
    tcase_add_test(cases, failures_of_many);
    tcase_add_test(cases, another_user);
    tcase_add_test(cases, another_user_while_something_is_asked);
    tcase_add_test(cases, the_same_user_resumes);
    tcase_add_test(cases, another_user_resumes_nothing);
    tcase_add_test(cases, connections_of_an_address);
    tcase_add_test(cases, lingering_of_an_address);
    tcase_add_test(cases, connections_of_a_user);
    tcase_add_test(cases, holds_of_a_user);
    tcase_add_test(cases, who_is_not_known_in_time_goes);
    tcase_add_test(cases, another_time_for_auth);
    tcase_add_test(cases, who_is_no_more_goes);
    tcase_add_test(cases, another_secret_of_the_same_user);
    tcase_add_test(cases, who_is_no_more_is_not_kept);
    tcase_add_test(cases, rights_that_are_lost);
    tcase_add_test(cases, rights_that_are_lost_and_back);
    tcase_add_test(cases, rights_that_are_lost_meanwhile);
    tcase_add_test(cases, watches_that_are_lost);
    suite_add_tcase(suite, cases);
    return suite;
}
