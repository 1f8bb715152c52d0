/*
 * Tests of daemon/store/queue/confirm.c: what is answered is not told before
 * replicas have it, where safety is strict.
 */
#include "daemon/op/op.h"
#include "tests/unit/log_kept.h"
#include "tests/unit/store_rig.h"

#include <stdio.h>
#include <string.h>

Suite *store_confirm_suite(void);

#define DATA 0
#define ACK  CONN_ACK /* the first node's */

/* INFO tells of so many, who have all that was written but for so many. */
static void
replicas(struct srig *rig, unsigned count, unsigned behind)
{
    rig->replicas = count;
    rig->reached = count - behind;
    srig_history(rig, "master", 'r', 'i', '0');
}

/* A single node with so many replicas, of which so many must confirm. */
static struct srig *
begin(unsigned count, uint32_t wanted)
{
    struct srig *rig = srig_create(STORE_SINGLE, 1);

    log_keep(LOG_INFO);
    rig->settings.strict = true;
    rig->settings.replicas = wanted;
    rig->first = 1;
    replicas(rig, count, 0);
    srig_start(rig);
    srig_settle(rig);
    ck_assert_int_eq(rig->conns[ACK].open, 1);
    return rig;
}

/* An operation whose script has answered with that. */
static struct op *
answered(struct srig *rig, enum op_kind kind, enum record_status status)
{
    struct op *op = srig_op(rig, kind, 0);

    srig_sends(rig, DATA, "EVALSHA 1");
    srig_results(rig, DATA, 1, status);
    return op;
}

/* The ack connection asks, and waits for so many. */
static void
asks(struct srig *rig, const char *online)
{
    char wait[40];

    snprintf(wait, sizeof(wait), "WAIT %s 1001", online);
    srig_sends(rig, ACK, "ROLE");
    srig_expect(rig, ACK, "PEXPIRE holdfast:witness 86400000");
    srig_expect(rig, ACK, wait);
    srig_expect(rig, ACK, "INFO replication");
    srig_expect(rig, ACK, "");
}

/* The log ends there. */
static void
told_role(struct srig *rig)
{
    const struct resp role[] = {
        {.type = RESP_STRING, .text = TEXT("master")},
        {.type = RESP_INTEGER, .integer = SRIG_OFFSET},
    };

    srig_reply_array(rig, ACK, role, 2);
}

/* The answers after that to the write: so many are said to have it. */
static void
told_the_rest(struct srig *rig, unsigned count)
{
    srig_number(rig, ACK, count);
    srig_bytes(rig, ACK, rig->info, strlen(rig->info));
}

static void
told(struct srig *rig, unsigned count)
{
    told_role(rig);
    srig_number(rig, ACK, 1);
    told_the_rest(rig, count);
}

SRIG_TEST(held_until_confirmed, begin(2, 0))
{
    static const enum op_kind kinds[] = {
        OP_ACQUIRE, OP_RENEW, OP_RENEW_DETACHED, OP_RESIZE, OP_RECLAIM};

    for (size_t i = 0; i < 5; i++) {
        struct op *op = answered(rig, kinds[i], RECORD_OK);
        uint64_t sent_us = rig->now_us;
        ck_assert(!srig_done(rig, op));
        asks(rig, "2");
        srig_pass(rig, 200);
        ck_assert(!srig_done(rig, op));
        told(rig, 2);
        srig_status(rig, op, OP_OK);
        ck_assert_uint_eq(op->result.fence, 22);
        ck_assert_uint_eq(op->result.sent_us, sent_us);
        ck_assert_uint_eq(op->sent_us, sent_us);
        ck_assert_uint_eq(op->answered_us, sent_us); /* by its node */
        ck_assert_uint_eq(store_in_flight(rig->store), 0);
    }
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_waits), 5);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unconfirmed), 0);
}

/* One WAIT for all that was answered before it, and for nothing after it. */
SRIG_TEST(one_for_many, begin(1, 0))
{
    struct op *first = answered(rig, OP_ACQUIRE, RECORD_OK);
    struct op *second = srig_op(rig, OP_RENEW, 0);

    asks(rig, "1");
    srig_expect(rig, DATA, "EVALSHA 1");
    srig_results(rig, DATA, 1, RECORD_OK);
    struct op *third = answered(rig, OP_RENEW, RECORD_OK);
    srig_sends(rig, ACK, "");
    told(rig, 1);
    srig_status(rig, first, OP_OK);
    ck_assert(!srig_done(rig, second) && !srig_done(rig, third));
    asks(rig, "1");
    told(rig, 1);
    srig_status(rig, second, OP_OK);
    srig_status(rig, third, OP_OK);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_waits), 2);
}

/* The write that WAIT waits for is not there, or not allowed: it is written
 * anew, in another slot. */
SRIG_TEST(not_written, begin(1, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);

    replicas(rig, 1, 1);
    asks(rig, "1");
    told_role(rig);
    srig_number(rig, ACK, 0);
    told_the_rest(rig, 1);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 2);
    srig_exchange(rig, ACK, "ROLE");
    srig_expect(rig, ACK, "SET holdfast:witness 1 PX 86400000");
    srig_error(rig, ACK, "NOPERM this user has no permissions");
    srig_expect(rig, ACK, "WAIT 1 1001");
    srig_number(rig, ACK, 1);
    srig_exchange(rig, ACK, "INFO replication");
    srig_pass(rig, 2);
    replicas(rig, 1, 0);
    asks(rig, "1");
    told(rig, 1);
    srig_status(rig, op, OP_OK);
    ck_assert_ptr_null(strstr(log_kept(), "redis_replicas_"));
}

/* It is said once, and nothing new is asked for until it is allowed. */
SRIG_TEST(refused, begin(1, 0))
{
    static const char said[] = "level=warn event=redis_replicas_unasked "
                               "node=10.0.0.1:7000 command=WAIT";
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);

    for (int i = 0; i < 2; i++) {
        asks(rig, "1");
        told_role(rig);
        srig_number(rig, ACK, 1);
        srig_error(rig, ACK, "NOPERM this user has no permissions");
        srig_bytes(rig, ACK, rig->info, strlen(rig->info));
        ck_assert(!store_ready(rig->store));
        srig_pass(rig, 499);
        srig_expect(rig, ACK, "");
        srig_pass(rig, 1);
    }
    const char *first = strstr(log_kept(), said);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(strstr(first + 1, said));
    ck_assert(!srig_done(rig, op));
    asks(rig, "1");
    told(rig, 1);
    srig_status(rig, op, OP_OK);
    ck_assert(store_ready(rig->store));
    ck_assert_ptr_nonnull(strstr(log_kept(),
        "level=info event=redis_replicas_back node=10.0.0.1:7000 replicas=1 "
        "needed=1"));
}

/* Too few have it: that is no OK; it is asked again. */
SRIG_TEST(shortfall, begin(2, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);

    /* WAIT was content too soon. */
    replicas(rig, 2, 1);
    asks(rig, "2");
    told(rig, 2);
    srig_pass(rig, 1);
    srig_expect(rig, ACK, "");
    srig_pass(rig, 1);
    ck_assert(store_ready(rig->store));
    /* It has waited in vain. */
    asks(rig, "2");
    told(rig, 1);
    ck_assert(!store_ready(rig->store));
    ck_assert_ptr_nonnull(strstr(log_kept(),
        "level=warn event=redis_replicas_behind node=10.0.0.1:7000 replicas=2 "
        "needed=2"));
    srig_pass(rig, 9);
    srig_expect(rig, ACK, "");
    srig_pass(rig, 1);
    ck_assert(!srig_done(rig, op));
    replicas(rig, 2, 0);
    asks(rig, "2");
    told(rig, 2);
    srig_status(rig, op, OP_OK);
    ck_assert(store_ready(rig->store));
}

/* Not within the time that a command may take: nobody knows. */
SRIG_TEST(never_confirmed, begin(1, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);
    uint64_t answered_us = rig->now_us;

    asks(rig, "1");
    srig_pass(rig, 1999);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 1);
    srig_status(rig, op, OP_UNKNOWN);
    ck_assert_uint_eq(op->result.fence, 0);
    ck_assert_uint_eq(op->answered_us, answered_us);
    ck_assert_uint_eq(store_in_flight(rig->store), 0);
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_unconfirmed), 1);
}

/* One has come since: it must have it as well. */
SRIG_TEST(more_replicas, begin(1, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);

    asks(rig, "1");
    replicas(rig, 2, 1);
    told(rig, 1);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 2);
    replicas(rig, 2, 0);
    asks(rig, "2");
    told(rig, 2);
    srig_status(rig, op, OP_OK);
}

/* WAIT is content, by whom it may be, and somebody is behind all the same. */
SRIG_TEST(behind_for_long, begin(1, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);
    unsigned rounds = 0;

    replicas(rig, 1, 1);
    while (store_ready(rig->store)) {
        ck_assert_uint_lt(rounds++, 60);
        asks(rig, "1");
        told(rig, 1);
        srig_pass(rig, 2);
    }
    ck_assert_uint_ge(rounds, 50);
    ck_assert_ptr_nonnull(strstr(log_kept(), "event=redis_replicas_behind"));
    srig_expect(rig, ACK, "");
    srig_pass(rig, 8);
    replicas(rig, 1, 0);
    asks(rig, "1");
    told(rig, 1);
    srig_status(rig, op, OP_OK);
}

/* The one that is missing may have been promoted; nobody stands for it. */
SRIG_TEST(another_replica, begin(2, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);

    asks(rig, "2");
    rig->first = 2; /* the third instead of the first */
    replicas(rig, 2, 0);
    told(rig, 2);
    ck_assert(!srig_done(rig, op));
    ck_assert(!store_ready(rig->store));
    ck_assert_ptr_nonnull(strstr(log_kept(),
        "level=warn event=redis_replicas_missing node=10.0.0.1:7000 replicas=2 "
        "needed=3 missing=\"10.0.1.1:7000\""));
    /* Not after another process has begun there, without its data. */
    srig_lose(rig, DATA);
    srig_history(rig, "master", 's', 'y', '0');
    srig_pass(rig, 3000);
    srig_settle(rig);
    ck_assert_int_eq(rig->store->conns[DATA].state, CONN_READY);
    ck_assert_int_eq(rig->store->conns[ACK].state, CONN_READY);
    ck_assert(!store_ready(rig->store));
    /* But when it has been a replica, those were another one's. */
    srig_history(rig, "slave", 's', 'y', '0');
    srig_pass(rig, 500);
    srig_settle(rig);
    srig_history(rig, "master", 's', 'z', 'y');
    srig_pass(rig, 500);
    srig_settle(rig);
    ck_assert(store_ready(rig->store));
}

/* A replica that takes over is asked for its role, though redis.settle is 0s
 * and nothing else is asked there that would tell. */
SRIG_TEST(promoted, srig_create(STORE_CLUSTER, 2))
{
    rig->settings.strict = true;
    rig->first = 1;
    rig->map_count = 1;
    rig->map[0] = (struct srig_range){0, 16383, "10.0.0.1", 7000};
    replicas(rig, 1, 0);
    srig_start(rig);
    srig_connect(rig, 0);
    srig_serve(rig, 0);
    srig_history(rig, "slave", 's', 'i', '0');
    srig_connect(rig, 1);
    srig_serve(rig, 1);
    srig_turn(rig);
    ck_assert_int_eq(rig->store->conns[1].state, CONN_READY);
    ck_assert_int_eq(rig->store->conns[ACK + 1].state, CONN_DOWN);
    rig->map[0].port = 7001;
    rig->store->map_wanted = true;
    replicas(rig, 1, 0);
    srig_history(rig, "master", 's', 'y', 'i');
    for (int s = 0; s < 10; s++) {
        srig_pass(rig, 1000);
        srig_settle(rig);
    }
    ck_assert_uint_eq(rig->store->slots[0], 1);
    ck_assert_int_eq(rig->store->conns[ACK + 1].state, CONN_READY);
}

/* Two with one address: nobody can tell who is missing. */
SRIG_TEST(alike, begin(1, 0))
{
    size_t len = strlen(rig->history);

    snprintf(rig->history + len, sizeof(rig->history) - len, "%s",
        "slave1:ip=10.0.1.1,port=7000,state=online,offset=100,lag=0\r\n");
    srig_pass(rig, 3000);
    srig_settle(rig);
    ck_assert(!store_ready(rig->store));
    ck_assert_ptr_nonnull(strstr(log_kept(), "event=redis_replicas_alike"));
}

/* A client without a port is no replica (redis-cli --rdb). Nor is one that is
 * being synchronized for the first time. */
SRIG_TEST(no_replicas, begin(1, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);
    size_t len = strlen(rig->history);

    snprintf(rig->history + len, sizeof(rig->history) - len, "%s",
        "slave1:ip=10.0.1.8,port=0,state=online,offset=0,lag=0\r\n"
        "slave2:ip=10.0.1.9,port=7000,state=wait_bgsave,offset=0,lag=0\r\n");
    asks(rig, "1");
    told(rig, 1);
    srig_status(rig, op, OP_OK);
}

/* A write under another history may be gone. */
SRIG_TEST(another_history, begin(1, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);

    asks(rig, "1");
    srig_history(rig, "master", 'r', 'y', 'i');
    told(rig, 1);
    srig_pass(rig, 2);
    ck_assert(!srig_done(rig, op));
}

SRIG_TEST(connections_lost, begin(1, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);

    /* The ack connection: another one is asked. */
    asks(rig, "1");
    srig_lose(rig, ACK);
    ck_assert(!srig_done(rig, op));
    while (!rig->conns[ACK].connecting)
        srig_pass(rig, 1);
    srig_connect(rig, ACK);
    srig_serve(rig, ACK);
    asks(rig, "1");
    told(rig, 1);
    srig_status(rig, op, OP_OK);
    /* That which has answered: nobody knows. */
    op = answered(rig, OP_ACQUIRE, RECORD_OK);
    uint64_t answered_us = rig->now_us;
    asks(rig, "1");
    srig_pass(rig, 200);
    ck_assert(!srig_done(rig, op));
    srig_lose(rig, DATA);
    srig_status(rig, op, OP_UNKNOWN);
    ck_assert_uint_eq(op->answered_us, answered_us);
    ck_assert_uint_eq(rig->conns[ACK].closes, 0);
    srig_turn(rig);
    ck_assert_uint_eq(rig->conns[ACK].closes, 1);
    ck_assert(!store_ready(rig->store));
}

/* Answers without a grant are told at once. */
SRIG_TEST(told_at_once, begin(1, 0))
{
    static const enum record_status none[] = {RECORD_WAITING, RECORD_BUSY,
        RECORD_FULL, RECORD_GONE, RECORD_CONFLICT, RECORD_MOVED};

    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        ck_assert(srig_done(rig, answered(rig, OP_ACQUIRE, none[i])));
    ck_assert(srig_done(rig, answered(rig, OP_RENEW, RECORD_WAITING)));
    ck_assert(srig_done(rig, answered(rig, OP_RELEASE, RECORD_OK)));
    ck_assert(srig_done(rig, answered(rig, OP_LOOK, RECORD_OK)));
    srig_sends(rig, ACK, "");
    ck_assert_uint_eq(srig_count(rig, COUNTER_redis_waits), 0);
    /* One of several is enough. */
    struct op *ops = srig_ops(rig, OP_ACQUIRE, 0, 2);
    srig_sends(rig, DATA, "EVALSHA 2");
    char bytes[200];
    size_t len = srig_encode(rig, bytes, 2, RECORD_BUSY);
    bytes[len - 38] = RECORD_OK;
    srig_bytes(rig, DATA, bytes, len);
    ck_assert(!srig_done(rig, ops) && !srig_done(rig, ops + 1));
    asks(rig, "1");
    told(rig, 1);
    srig_status(rig, ops, OP_BUSY);
    srig_status(rig, ops + 1, OP_OK);
}

/* A release that hands the lock over to a waiter of ours. */
SRIG_TEST(handed_over, begin(1, 0))
{
    struct op *op = srig_op(rig, OP_RELEASE, 0);
    char bytes[300];

    srig_sends(rig, DATA, "EVALSHA 1");
    size_t len = srig_encode(rig, bytes, 1, RECORD_OK);
    bytes[len - 36] = 1; /* a grant follows */
    memset(bytes + len, 0, BYTES_GRANT);
    bytes[len] = 7;
    srig_bytes(rig, DATA, bytes, len + BYTES_GRANT);
    ck_assert(!srig_done(rig, op));
    asks(rig, "1");
    told(rig, 1);
    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(op->result.grant_count, 1);
    ck_assert_uint_eq(op->result.grants[0].request, 7);
}

/* Nothing is asked for that could not be confirmed. */
SRIG_TEST(replicas_missing, begin(2, 0))
{
    struct op *acquire;

    ck_assert(store_ready(rig->store));
    replicas(rig, 1, 0);
    srig_pass(rig, 3000);
    srig_settle(rig);
    ck_assert(!store_ready(rig->store));
    ck_assert_ptr_null(store_refusal(rig->store)); /* it was there */
    acquire = srig_op(rig, OP_ACQUIRE, 0);
    acquire->deadline_us = rig->now_us + 1500000;
    struct op *renew = srig_op(rig, OP_RENEW, 0);
    struct op *release = answered(rig, OP_RELEASE, RECORD_OK);
    srig_status(rig, release, OP_OK);
    srig_sends(rig, DATA, "");
    /* Twice a second it is looked whether they are back. */
    srig_pass(rig, 500);
    asks(rig, "1");
    told(rig, 1);
    replicas(rig, 2, 0);
    srig_pass(rig, 500);
    asks(rig, "1");
    told(rig, 2);
    ck_assert(store_ready(rig->store));
    srig_sends(rig, DATA, "EVALSHA 1");
    srig_expect(rig, DATA, "EVALSHA 1");
    ck_assert(!srig_done(rig, acquire) && !srig_done(rig, renew));
    ck_assert_ptr_nonnull(strstr(log_kept(),
        "level=info event=redis_replicas_back node=10.0.0.1:7000 replicas=2"));
}

SRIG_TEST(asked_for_in_vain, begin(1, 2))
{
    ck_assert(!store_ready(rig->store));
    struct op *op = srig_op(rig, OP_ACQUIRE, 0);
    srig_pass(rig, 4990);
    ck_assert(!srig_done(rig, op));
    srig_pass(rig, 100);
    srig_status(rig, op, OP_UNSENT);
    ck_assert_ptr_null(store_refusal(rig->store)); /* there is one */
}

/* A cluster whose one node has one replica online, of so many. */
static struct srig *
begin_cluster(unsigned members)
{
    struct srig *rig = srig_create(STORE_CLUSTER, 1);

    log_keep(LOG_INFO);
    rig->settings.strict = true;
    rig->first = 1;
    rig->members = members;
    rig->map[0] = (struct srig_range){0, 16383, "10.0.0.1", 7000};
    rig->map_count = 1;
    replicas(rig, 1, 0);
    srig_start(rig);
    srig_settle(rig);
    return rig;
}

static void
look_again(struct srig *rig)
{
    srig_pass(rig, 3000);
    srig_settle(rig);
}

/* The cluster knows of those that a new broker has never seen. */
SRIG_TEST(members, begin_cluster(2))
{
    ck_assert(!store_ready(rig->store));
    ck_assert_ptr_nonnull(strstr(log_kept(),
        "level=warn event=redis_replicas_missing node=10.0.0.1:7000 replicas=1 "
        "needed=2"));
    replicas(rig, 2, 0);
    look_again(rig);
    ck_assert(store_ready(rig->store));
    /* One that joins is waited for once it is online. */
    rig->members = 3;
    look_again(rig);
    ck_assert(store_ready(rig->store));
    replicas(rig, 3, 0);
    look_again(rig);
    replicas(rig, 2, 0);
    look_again(rig);
    ck_assert(!store_ready(rig->store));
    /* One that has gone for good no more. */
    rig->members = 2;
    look_again(rig);
    ck_assert(store_ready(rig->store));
    replicas(rig, 1, 0);
    look_again(rig);
    ck_assert(!store_ready(rig->store));
}

/* The write while slots move. */
SRIG_TEST(slots, begin_cluster(1))
{
    struct op *op;

    for (uint16_t slot = 0; slot < 2; slot++) {
        op = answered(rig, OP_ACQUIRE, RECORD_OK);
        srig_turn(rig);
        srig_exchange(rig, ACK, "ROLE");
        (void)srig_next(rig, ACK);
        ck_assert(text_equal(rig->words[0], TEXT("PEXPIRE")));
        ck_assert_uint_eq(slot_of_key(rig->words[1]), slot);
        if (slot == 0)
            srig_error(rig, ACK, "ASK 0 10.0.0.1:7001");
        else
            srig_answer(rig, ACK);
        while (srig_next(rig, ACK)[0] != '\0')
            srig_answer(rig, ACK);
        srig_status(rig, op, OP_OK);
        srig_pass(rig, 500);
        srig_settle(rig);
    }
}

static const char *const hopes[] = {"", "repl_backlog_active:1\r\n",
    "slave0:ip=10.0.1.1,port=7000,state=wait_bgsave,offset=0,lag=0\r\n"};

/* Nor was there ever one, nor will there be one soon. */
SRIG_TEST(no_replica_at_all, srig_create(STORE_SINGLE, 1))
{
    rig->settings.strict = true;
    replicas(rig, 0, 0);
    size_t len = strlen(rig->history);
    snprintf(rig->history + len, sizeof(rig->history) - len, "%s%s", hopes[_i],
        _i == 1 ? "" : "repl_backlog_active:0\r\n");
    srig_start(rig);
    srig_settle(rig);
    uint64_t begin_us = rig->now_us;
    while (rig->now_us < begin_us + 6000000) {
        ck_assert(!store_ready(rig->store));
        if (rig->now_us < begin_us + 4300000) /* it may come */
            ck_assert_ptr_null(store_refusal(rig->store));
        srig_pass(rig, 100);
        srig_settle(rig);
    }
    ck_assert_int_eq(store_refusal(rig->store) != NULL, _i == 0);
}

/* Another process is there: what the old one has answered is not confirmed by
 * what the new one says. */
SRIG_TEST(another_process, begin(1, 0))
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);

    srig_lose(rig, ACK);
    srig_history(rig, "master", 's', 'i', '0');
    while (!rig->conns[ACK].connecting)
        srig_pass(rig, 1);
    srig_connect(rig, ACK);
    srig_serve(rig, ACK);
    asks(rig, "1");
    told(rig, 1);
    srig_pass(rig, 100);
    srig_expect(rig, ACK, "");
    srig_pass(rig, 2000);
    srig_status(rig, op, OP_UNKNOWN);
}

SRIG_TEST(fenced_asks_nobody, srig_single())
{
    struct op *op = answered(rig, OP_ACQUIRE, RECORD_OK);

    srig_status(rig, op, OP_OK);
    ck_assert_uint_eq(rig->conns[ACK].connects, 0);
    ck_assert_ptr_null(store_refusal(rig->store));
}

Suite *
store_confirm_suite(void)
{
    Suite *suite = suite_create("store_confirm");
    TCase *tests = tcase_create("store_confirm");

    tcase_add_test(tests, held_until_confirmed);
    tcase_add_test(tests, one_for_many);
    tcase_add_test(tests, not_written);
    tcase_add_test(tests, refused);
    tcase_add_test(tests, shortfall);
    tcase_add_test(tests, never_confirmed);
    tcase_add_test(tests, more_replicas);
    tcase_add_test(tests, another_replica);
    tcase_add_test(tests, behind_for_long);
    tcase_add_test(tests, promoted);
    tcase_add_test(tests, alike);
    tcase_add_test(tests, members);
    tcase_add_test(tests, no_replicas);
    tcase_add_test(tests, slots);
    tcase_add_test(tests, another_history);
    tcase_add_test(tests, connections_lost);
    tcase_add_test(tests, told_at_once);
    tcase_add_test(tests, handed_over);
    tcase_add_test(tests, replicas_missing);
    tcase_add_test(tests, asked_for_in_vain);
    tcase_add_loop_test(tests, no_replica_at_all, 0, 3);
    tcase_add_test(tests, another_process);
    tcase_add_test(tests, fenced_asks_nobody);
    suite_add_tcase(suite, tests);
    return suite;
}
