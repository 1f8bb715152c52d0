/*
 * The rig of the store's tests; see store_rig.h.
 */
#include "tests/unit/store_rig.h"

#include "tests/unit/log_kept.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INFO_OF(cluster, role)                                       \
    "# Server\r\nredis_version:7.0.15\r\nrun_id:" SRIG_RUN           \
    "\r\nloading:0\r\nmaxmemory_policy:noeviction\r\nrole:" role     \
    "\r\nmaster_replid:iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii\r\n" \
    "cluster_enabled:" cluster "\r\n"

struct srig *
srig_create(enum store_topology topology, unsigned nodes)
{
    struct srig *rig = calloc(1, sizeof(*rig));

    ck_assert_ptr_nonnull(rig);
    log_set_level(LOG_ERROR);
    rig->now_us = 5000000;
    rig->settings = (struct store_settings){
        .topology = topology,
        .node_count = nodes,
        .key_prefix = "holdfast",
        .broker_id = "broker-1",
        .expiry_ms = 2000,
        .waiters_max = 100,
        .forget_after_ms = 86400000,
        .idle_after_ms = 120000,
        .connect_timeout_us = 1000000,
        .command_timeout_us = 2000000,
        .batch = 4,
        .in_flight = 2,
        .seed = 7,
    };
    for (unsigned i = 0; i < nodes; i++) {
        memcpy(rig->settings.nodes[i].host, "10.0.0.1", 9);
        rig->settings.nodes[i].port = (uint16_t)(7000 + i);
    }
    for (unsigned i = 0; topology == STORE_SENTINEL && i < nodes; i++) {
        memcpy(rig->settings.nodes[i].host, "10.0.0.2", 9);
        rig->settings.nodes[i].port = (uint16_t)(26379 + i);
        rig->names[i] = (struct srig_name){"10.0.0.1", "7000"};
    }
    memcpy(rig->settings.sentinel_master, "shop", 5);
    rig->info = topology == STORE_CLUSTER ? INFO_OF("1", "master")
                                          : INFO_OF("0", "master");
    rig->node_id = "node-id";
    rig->script_id = 'j';
    rig->client_id = 100;
    return rig;
}

void
srig_history(struct srig *rig, const char *role, char run, char id, char second)
{
    char ids[3][41] = {{run}, {id}, {second}};

    for (int i = 0; i < 3; i++)
        memset(ids[i], ids[i][0], 40);
    snprintf(rig->history, sizeof(rig->history),
        "# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\nrole:%s\r\n"
        "master_replid:%s\r\nmaster_replid2:%s\r\nloading:0\r\n"
        "cluster_enabled:%d\r\nconnected_slaves:%u\r\n",
        ids[0], role, ids[1], ids[2], rig->settings.topology == STORE_CLUSTER,
        rig->replicas);
    for (unsigned i = 0; i < rig->replicas; i++) {
        size_t used = strlen(rig->history);
        snprintf(rig->history + used, sizeof(rig->history) - used,
            "slave%u:ip=10.0.1.%u,port=7000,state=online,offset=%d,lag=0\r\n",
            i, rig->first + i, SRIG_OFFSET - (i >= rig->reached));
    }
    rig->info = rig->history;
    rig->script_id = id;
}

void
srig_credentials(struct srig *rig)
{
    memcpy(rig->settings.username, "me", 3);
    memcpy(rig->settings.password, "secret", 7);
}

/* Takes wishes and what is done. */
static void
take(struct srig *rig)
{
    struct store_wish wish;
    struct op *op;

    while (store_take_wish(rig->store, &wish)) {
        struct srig_conn *conn = &rig->conns[wish.conn.index];
        conn->serial = wish.conn.serial;
        conn->open = false;
        conn->connecting = wish.kind == WISH_CONNECT;
        conn->closes += wish.kind == WISH_CLOSE;
        if (wish.kind != WISH_CONNECT)
            continue;
        conn->connects++;
        memcpy(conn->host, wish.address->host, sizeof(conn->host));
        conn->port = wish.address->port;
    }
    while ((op = store_take_done(rig->store)) != NULL) {
        long index = op - rig->ops;
        if (index < 0 || index >= (long)rig->op_count ||
            ++rig->done[index] > 1 || !list_empty(&op->link))
            ck_abort_msg("operation %ld was given back twice", index);
        rig->done_count++;
    }
    store_check(rig->store);
}

void
srig_turn(struct srig *rig)
{
    store_flush(rig->store, rig->now_us, 1700000000000000u + rig->now_us);
    take(rig);
}

void
srig_start(struct srig *rig)
{
    rig->store = store_create(&rig->settings, &rig->counters, rig->now_us);
    ck_assert_ptr_nonnull(rig->store);
    srig_turn(rig);
}

void
srig_end(struct srig *rig)
{
    log_keep_no_more();
    store_destroy(&rig->store);
    ck_assert_ptr_null(rig->store);
    store_destroy(&rig->store);
    free(rig);
}

void
srig_pass(struct srig *rig, uint64_t ms)
{
    uint64_t end_us = rig->now_us + ms * 1000;

    for (;;) {
        uint64_t next_us = store_next_us(rig->store);
        if (next_us > end_us)
            break;
        rig->now_us = next_us > rig->now_us ? next_us : rig->now_us;
        srig_turn(rig);
        if (store_next_us(rig->store) <= rig->now_us)
            rig->now_us++;
    }
    rig->now_us = end_us > rig->now_us ? end_us : rig->now_us;
    srig_turn(rig);
}

struct op *
srig_draft(struct srig *rig, enum op_kind kind, uint16_t slot)
{
    ck_assert_uint_lt(rig->op_count, SRIG_OPS);
    struct op *op = &rig->ops[rig->op_count++];
    memset(op, 0, sizeof(*op));
    list_init(&op->link);
    op->kind = kind;
    op->name = TEXT("name");
    op->slot = slot;
    op->request = rig->op_count;
    op->lease_ms = 30000;
    op->hard_end_us = WHEEL_NEVER;
    op->over_us = WHEEL_NEVER;
    op->limit = 10;
    op->began_us = rig->now_us;
    op->deadline_us = rig->now_us + 5000000;
    if (kind == OP_PUBLISH) {
        op->words[0] = TEXT("broker-2");
        op->words[1] = TEXT("a message");
    }
    if (kind == OP_AUDIT) {
        op->audit = &rig->audits[op - rig->ops];
        *op->audit = (struct op_audit){.count = 100};
    }
    return op;
}

void
srig_submit(struct srig *rig, struct op *op)
{
    struct list ops;

    list_init(&ops);
    list_push_back(&ops, &op->link);
    store_submit(rig->store, rig->now_us, &ops);
}

void
srig_hurry(struct srig *rig, struct op *op)
{
    struct list hurried;

    list_init(&hurried);
    list_push_back(&hurried, &op->hurry_link);
    store_hurry(rig->store, rig->now_us, &hurried);
    ck_assert(list_empty(&hurried));
}

struct op *
srig_op(struct srig *rig, enum op_kind kind, uint16_t slot)
{
    struct op *op = srig_draft(rig, kind, slot);

    srig_submit(rig, op);
    return op;
}

struct op *
srig_ops(struct srig *rig, enum op_kind kind, uint16_t slot, unsigned count)
{
    struct op *ops = &rig->ops[rig->op_count];

    for (unsigned i = 0; i < count; i++)
        (void)srig_op(rig, kind, slot);
    return ops;
}

struct op *
srig_in_flight(struct srig *rig, uint32_t link, unsigned count)
{
    struct op *ops = srig_ops(rig, OP_ACQUIRE, 0, count);

    ck_assert_uint_ge(count, 8);
    srig_turn(rig);
    ck_assert_uint_eq(store_in_flight(rig->store), 2);
    srig_expect(rig, link, "EVALSHA 4");
    srig_expect(rig, link, "EVALSHA 4");
    srig_expect(rig, link, "");
    return ops;
}

bool
srig_done(const struct srig *rig, const struct op *op)
{
    return rig->done[op - rig->ops] > 0;
}

void
srig_status(const struct srig *rig, const struct op *op, enum op_status status)
{
    ck_assert_msg(srig_done(rig, op), "it was not given back");
    ck_assert_int_eq(op->result.status, status);
}

void
srig_statuses(const struct srig *rig, const struct op *ops, unsigned first,
    unsigned end, enum op_status status)
{
    for (unsigned i = first; i < end; i++)
        srig_status(rig, &ops[i], status);
}

/* A number up to CR LF; NULL: there is none. */
static const char *
read_number(const char *at, const char *end, char kind, size_t *value)
{
    if (at == end)
        return NULL;
    ck_assert_int_eq(*at, kind);
    const char *eol = memchr(at, '\n', (size_t)(end - at));
    ck_assert_ptr_nonnull(eol);
    *value = strtoul(at + 1, NULL, 10);
    return eol + 1;
}

/* Whether what was read last writes the marker. */
static bool
is_marker(const struct srig *rig)
{
    return rig->word_count == 4 && text_equal(rig->words[0], TEXT("SET")) &&
           text_equal(rig->words[3], TEXT("GET"));
}

const char *
srig_next(struct srig *rig, uint32_t link)
{
    static char summary[1000];
    struct buffer *out = store_conn_output(rig->store, link);
    const char *at = buffer_data(out);
    const char *end = at + buffer_len(out);
    char *copy = rig->text;
    size_t count = 0;
    size_t len = 0;

    summary[0] = '\0';
    rig->word_count = 0;
    const char *next = read_number(at, end, '*', &count);
    if (next == NULL)
        return summary;
    ck_assert_uint_le(count, SRIG_WORDS);
    for (size_t i = 0; i < count; i++) {
        next = read_number(next, end, '$', &len);
        ck_assert_ptr_nonnull(next);
        ck_assert_uint_le(len + 2, (size_t)(end - next));
        memcpy(copy, next, len);
        rig->words[rig->word_count++] = text_make(copy, len);
        copy += len;
        next += len + 2;
    }
    buffer_consume(out, (size_t)(next - at));
    if (text_equal(rig->words[0], TEXT("SCRIPT")))
        return "LOAD";
    if (text_equal(rig->words[0], TEXT("EVALSHA"))) {
        size_t keys = strtoul(rig->words[2].at, NULL, 10);
        bool joined = text_equal(
            rig->words[1], text_make(scripts[SCRIPT_RENEW].sha1, 40));
        ck_assert_uint_eq(count, keys > 0     ? 4 + keys + (joined ? 1 : keys)
                                 : count == 4 ? 4u
                                              : 5u);
        snprintf(summary, sizeof(summary), "EVALSHA %zu", keys);
        return summary;
    }
    if (is_marker(rig)) { /* without the fence clock */
        ck_assert_uint_gt(rig->words[2].len, 82);
        snprintf(summary, sizeof(summary), "SET %.*s %.81s",
            (int)rig->words[1].len, rig->words[1].at, rig->words[2].at);
        return summary;
    }
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(summary);
        snprintf(summary + used, sizeof(summary) - used, "%s%.*s",
            i == 0 ? "" : " ", (int)rig->words[i].len, rig->words[i].at);
    }
    return summary;
}

void
srig_expect(struct srig *rig, uint32_t link, const char *command)
{
    ck_assert_str_eq(srig_next(rig, link), command);
}

void
srig_sends(struct srig *rig, uint32_t link, const char *command)
{
    srig_turn(rig);
    srig_expect(rig, link, command);
}

void
srig_reply(struct srig *rig, uint32_t link, const struct resp *reply)
{
    store_reply(rig->store, (struct store_conn){link, rig->conns[link].serial},
        rig->now_us, reply);
    take(rig);
}

void
srig_reply_array(
    struct srig *rig, uint32_t link, const struct resp *items, unsigned count)
{
    srig_reply(rig, link,
        &(struct resp){.type = RESP_ARRAY, .item = items, .count = count});
}

void
srig_error(struct srig *rig, uint32_t link, const char *error)
{
    srig_reply(rig, link,
        &(struct resp){.type = RESP_ERROR, .text = text_from(error)});
}

void
srig_message(
    struct srig *rig, uint32_t link, const char *channel, struct text payload)
{
    const struct resp items[] = {
        {.type = RESP_STRING, .text = TEXT("message")},
        {.type = RESP_STRING, .text = text_from(channel)},
        {.type = RESP_STRING, .text = payload},
    };

    srig_reply_array(rig, link, items, 3);
}

static void
answer_map(struct srig *rig, uint32_t link)
{
    struct resp ranges[8];
    struct resp fields[8][3];
    struct resp masters[8][4];
    struct resp told[8][4];

    memset(ranges, 0, sizeof(ranges));
    memset(fields, 0, sizeof(fields));
    memset(masters, 0, sizeof(masters));
    for (unsigned i = 0; i < rig->map_count; i++) {
        const struct srig_range *range = &rig->map[i];
        masters[i][1] =
            (struct resp){.type = RESP_INTEGER, .integer = range->port};
        if (range->host != NULL)
            masters[i][0] = (struct resp){
                .type = RESP_STRING, .text = text_from(range->host)};
        fields[i][0] =
            (struct resp){.type = RESP_INTEGER, .integer = range->first};
        fields[i][1] =
            (struct resp){.type = RESP_INTEGER, .integer = range->last};
        masters[i][2] =
            (struct resp){.type = RESP_STRING, .text = text_from(rig->node_id)};
        const char *beside[] = {
            "ip", rig->beside[i].ip, "hostname", rig->beside[i].name};
        for (unsigned j = 0; j < 4; j++)
            told[i][j] = (struct resp){.type = RESP_STRING,
                .text = text_from(beside[j] == NULL ? "" : beside[j])};
        masters[i][3] =
            (struct resp){.type = RESP_ARRAY, .item = told[i], .count = 4};
        fields[i][2] =
            (struct resp){.type = RESP_ARRAY, .item = masters[i], .count = 4};
        ranges[i] =
            (struct resp){.type = RESP_ARRAY, .item = fields[i], .count = 3};
    }
    srig_reply_array(rig, link, ranges, rig->map_count);
}

uint64_t
srig_time_us(const struct srig *rig)
{
    return 1700000000000000u + rig->now_us + (uint64_t)rig->clock_us;
}

static void
answer_time(struct srig *rig, uint32_t link)
{
    char seconds[24];
    char micros[24];
    uint64_t us = srig_time_us(rig);
    size_t seconds_len = text_from_u64(seconds, us / 1000000);
    size_t micros_len = text_from_u64(micros, us % 1000000);
    struct resp items[] = {
        {.type = RESP_STRING, .text = text_make(seconds, seconds_len)},
        {.type = RESP_STRING, .text = text_make(micros, micros_len)},
    };

    srig_reply_array(rig, link, items, 2);
}

static void
answer_name(struct srig *rig, uint32_t link)
{
    ck_assert_uint_lt(link, rig->settings.node_count);
    const struct srig_name *name = &rig->names[link];
    struct resp nil = {.type = RESP_NIL};

    if (name->host == NULL) {
        srig_reply(rig, link, &nil);
        return;
    }
    struct resp items[] = {
        {.type = RESP_STRING, .text = text_from(name->host)},
        {.type = RESP_STRING, .text = text_from(name->port)},
    };
    srig_reply_array(rig, link, items, 2);
}

/* GET or SET. */
static void
answer_marker(struct srig *rig, uint32_t link)
{
    char was[sizeof(rig->marker)];
    struct resp reply = {
        .type = rig->marker[0] == '\0' ? RESP_NIL : RESP_STRING};

    memcpy(was, rig->marker, sizeof(was));
    reply.text = text_from(was);
    if (is_marker(rig)) {
        ck_assert_uint_lt(rig->words[2].len, sizeof(rig->marker));
        memcpy(rig->marker, rig->words[2].at, rig->words[2].len);
        rig->marker[rig->words[2].len] = '\0';
    }
    srig_reply(rig, link, &reply);
}

void
srig_number(struct srig *rig, uint32_t link, int64_t number)
{
    srig_reply(
        rig, link, &(struct resp){.type = RESP_INTEGER, .integer = number});
}

static void
answer_role(struct srig *rig, uint32_t link)
{
    struct resp items[] = {
        {.type = RESP_STRING, .text = TEXT("master")},
        {.type = RESP_INTEGER, .integer = SRIG_OFFSET},
        {.type = RESP_ARRAY},
    };

    srig_reply_array(rig, link, items, 3);
}

/* Answers a question of an ack connection; false: it is something else. */
static bool
answer_ack(struct srig *rig, uint32_t link)
{
    static const struct resp members[8];
    struct text verb = rig->words[0];

    if (text_equal(verb, TEXT("ROLE")))
        answer_role(rig, link);
    else if (text_equal(verb, TEXT("CLUSTER")) && rig->word_count == 3)
        srig_reply_array(rig, link, members, rig->members);
    else if (text_equal(verb, TEXT("CLUSTER")) &&
             text_equal(rig->words[1], TEXT("MYID")))
        srig_bytes(rig, link, SRIG_RUN, 40);
    else if (text_equal(verb, TEXT("PEXPIRE")))
        srig_number(rig, link, 1);
    else if (text_equal(verb, TEXT("WAIT")))
        srig_number(rig, link, rig->reached);
    else
        return false;
    return true;
}

/* Sentinels, and the nodes of a quorum, are processes of their own. */
static void
answer_info(struct srig *rig, uint32_t link)
{
    uint16_t node = rig->store->conns[link].node;
    bool sentinel = rig->settings.topology == STORE_SENTINEL &&
                    node < rig->settings.node_count;
    char info[sizeof(rig->history)];
    char *run = NULL;

    snprintf(info, sizeof(info), "%s", rig->info);
    if (sentinel || rig->settings.topology == STORE_QUORUM)
        run = strstr(info, "run_id:");
    if (run != NULL)
        run[7] = (char)('A' + (node < rig->one_run ? 0 : node));
    srig_reply(rig, link,
        &(struct resp){.type = RESP_STRING, .text = text_from(info)});
}

void
srig_answer(struct srig *rig, uint32_t link)
{
    struct text verb = rig->words[0];
    struct text second = rig->word_count > 1 ? rig->words[1] : TEXT("");
    struct resp subscribed[] = {
        {.type = RESP_STRING, .text = TEXT("subscribe")},
        {.type = RESP_STRING, .text = second},
        {.type = RESP_INTEGER, .integer = 1},
    };

    if (answer_ack(rig, link))
        return;
    if (text_equal(verb, TEXT("INFO")))
        answer_info(rig, link);
    else if (text_equal(second, TEXT("ID")))
        srig_reply(rig, link,
            &(struct resp){.type = RESP_INTEGER, .integer = rig->client_id++});
    else if (text_equal(verb, TEXT("PUBLISH")))
        srig_reply(rig, link, &(struct resp){.type = RESP_INTEGER});
    else if (text_equal(verb, TEXT("TIME")))
        answer_time(rig, link);
    else if (text_equal(verb, TEXT("CLUSTER")))
        answer_map(rig, link);
    else if (text_equal(verb, TEXT("SENTINEL")))
        answer_name(rig, link);
    else if (text_equal(verb, TEXT("GET")) || is_marker(rig))
        answer_marker(rig, link);
    else if (text_equal(verb, TEXT("SUBSCRIBE")))
        srig_reply_array(rig, link, subscribed, 3);
    else
        srig_reply(
            rig, link, &(struct resp){.type = RESP_STATUS, .text = TEXT("OK")});
}

void
srig_exchange(struct srig *rig, uint32_t link, const char *command)
{
    srig_expect(rig, link, command);
    srig_answer(rig, link);
}

void
srig_introduce(struct srig *rig, uint32_t link)
{
    srig_exchange(rig, link, "INFO");
    srig_exchange(rig, link, "CLIENT ID");
    srig_expect(rig, link, "TIME");
    srig_expect(rig, link, "");
    rig->words[0] = TEXT("TIME");
    srig_answer(rig, link);
}

void
srig_greet(struct srig *rig, uint32_t link)
{
    srig_exchange(rig, link, "AUTH me secret");
    srig_introduce(rig, link);
    srig_exchange(rig, link, "CLIENT SETNAME holdfastd");
    for (int i = 0; i < SCRIPTS_AT_ONCE; i++) {
        ck_assert(!store_ready(rig->store));
        srig_expect(rig, link, "LOAD");
        ck_assert(text_equal(
            rig->words[2], text_make(scripts[i].body, scripts[i].body_len)));
        srig_answer(rig, link);
    }
    srig_expect(rig, link, "");
    ck_assert(store_ready(rig->store));
}

char *
srig_put(char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *at++ = (char)(value >> 8 * i & 0xff);
    return at;
}

static char *
put_number(char *at, double number)
{
    memcpy(at, &number, sizeof(number));
    return at + sizeof(number);
}

size_t
srig_encode(
    struct srig *rig, char *out, unsigned count, enum record_status status)
{
    char *at = put_number(out, (double)srig_time_us(rig));

    memset(at, rig->script_id, RECORD_ID_BYTES);
    at += RECORD_ID_BYTES;
    for (unsigned i = 0; i < count; i++) {
        at = srig_put(at, (uint64_t)status, 1);
        at = srig_put(at, 0, 5);
        at = srig_put(at, 3, 4);
        at = put_number(at, 11);
        at = put_number(at, status == RECORD_OK ? 22 : 0);
        at = srig_put(at, 30000, 4);
        at = srig_put(at, 400, 4);
        at = srig_put(at, 5, 4);
    }
    return (size_t)(at - out);
}

void
srig_bytes(struct srig *rig, uint32_t link, const char *bytes, size_t len)
{
    srig_reply(rig, link,
        &(struct resp){.type = RESP_STRING, .text = text_make(bytes, len)});
}

void
srig_results(
    struct srig *rig, uint32_t link, unsigned count, enum record_status status)
{
    char bytes[64 * 40 + 100];

    ck_assert_uint_le(count, 64);
    size_t len = srig_encode(rig, bytes, count, status);
    srig_bytes(rig, link, bytes, len);
}

void
srig_serve(struct srig *rig, uint32_t link)
{
    while (rig->conns[link].open && !rig->conns[link].silent &&
           srig_next(rig, link)[0] != '\0') {
        ck_assert(!text_equal(rig->words[0], TEXT("EVALSHA")));
        srig_answer(rig, link);
    }
}

void
srig_connect(struct srig *rig, uint32_t link)
{
    ck_assert(rig->conns[link].connecting);
    rig->conns[link].connecting = false;
    rig->conns[link].open = true;
    store_connected(rig->store,
        (struct store_conn){link, rig->conns[link].serial}, rig->now_us);
    take(rig);
}

void
srig_lose(struct srig *rig, uint32_t link)
{
    rig->conns[link].open = false;
    rig->conns[link].connecting = false;
    store_closed(rig->store, (struct store_conn){link, rig->conns[link].serial},
        rig->now_us, HEALTH_CLOSED, "lost");
    take(rig);
}

void
srig_settle(struct srig *rig)
{
    for (int round = 0; round < 4; round++) {
        srig_turn(rig);
        for (uint32_t i = 0; i < CONN_COUNT; i++) {
            if (rig->conns[i].connecting && !rig->conns[i].silent)
                srig_connect(rig, i);
            if (rig->conns[i].open)
                srig_serve(rig, i);
        }
        srig_pass(rig, 151);
    }
}

struct srig *
srig_single(void)
{
    struct srig *rig = srig_create(STORE_SINGLE, 1);

    srig_start(rig);
    srig_settle(rig);
    ck_assert(store_ready(rig->store));
    return rig;
}

struct srig *
srig_cluster(void)
{
    struct srig *rig = srig_create(STORE_CLUSTER, 3);

    for (unsigned i = 0; i < 3; i++)
        rig->map[i] = (struct srig_range){.first = i * 5000,
            .last = i == 2 ? 16383 : i * 5000 + 4999,
            .host = "10.0.0.1",
            .port = 7000 + i};
    rig->map_count = 3;
    srig_start(rig);
    srig_settle(rig);
    ck_assert(store_ready(rig->store));
    return rig;
}

struct srig *
srig_sentinel(void)
{
    struct srig *rig = srig_create(STORE_SENTINEL, 3);

    srig_start(rig);
    srig_settle(rig);
    ck_assert(store_ready(rig->store));
    return rig;
}

struct srig *
srig_quorum(unsigned nodes)
{
    struct srig *rig = srig_create(STORE_QUORUM, nodes);

    srig_start(rig);
    srig_settle(rig);
    for (unsigned i = 0; i < nodes; i++) {
        ck_assert_int_eq(rig->store->conns[i].state, CONN_READY);
        ck_assert_int_eq(rig->store->conns[CONN_ACK + i].state, CONN_READY);
    }
    ck_assert(store_ready(rig->store));
    return rig;
}

uint64_t
srig_count(const struct srig *rig, enum counter counter)
{
    return rig->counters.value[counter];
}
