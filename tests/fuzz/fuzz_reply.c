/*
 * The input is what Redis servers do to a store that has operations under way:
 * a row of acts, a byte each with bytes behind it (see acts[]). Acts submit
 * operations, let time pass, connect and lose links, answer the next command of
 * a link as a Redis does or wrongly, or put any bytes into it. All bytes go
 * through the reader that io uses, cut as the input says.
 *
 * Whatever comes:
 *
 * - store_check() holds, looked at after every few acts and at the end;
 * - each operation is given back exactly once, is not touched after that, and
 *   what its result refers to is there;
 * - left alone, with nobody answering, the store gives everything back and
 *   comes to rest, within a bound.
 */
#include "daemon/base/assert.h"
#include "daemon/base/log.h"
#include "daemon/io/redis.h"
#include "daemon/op/op.h"
#include "daemon/store/model/state.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OPS_MAX       64
#define REPLY_BYTES   (1u << 16)
#define STEPS_MAX     20000
#define ACTS_MAX      96
#define CHECK_EVERY   16 /* acts: a check walks over all slots */
#define START_US      5000000
#define NOBODY_US     15000000 /* of silence; more than any time-out */
#define IN_FLIGHT_MAX 4
#define REALTIME_US   UINT64_C(1700000000000000)
#define HEADER_BYTES  (8 + RECORD_ID_BYTES)

struct input {
    const uint8_t *at;
    const uint8_t *end;
};

struct rig_conn {
    bool connecting;
    struct store_conn id;
    struct reader *reader; /* owned; while it is open */
};

struct rig {
    struct input input;
    struct counters counters;
    struct store *store; /* ref: born's */
    bool cluster;
    uint64_t now_us;
    size_t part; /* bytes a read */
    struct rig_conn conns[STORE_CONNS];
    struct op *ops[OPS_MAX]; /* owned, while the store has them */
    struct op_audit audits[OPS_MAX];
    uint64_t sum; /* of all that results refer to */
    /* The command that was read last. */
    struct text words[8];
    size_t word_count;
    char reply[REPLY_BYTES];
    size_t reply_len;
};

static uint8_t
input_byte(struct input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

static uint32_t
input_number(struct input *input)
{
    uint32_t high = input_byte(input);

    return high << 8 | input_byte(input);
}

/* --- the store's wishes and results --------------------------------------- */

static void
sum_text(struct rig *rig, struct text text)
{
    require(text.len <= 255);
    for (size_t i = 0; i < text.len; i++)
        rig->sum += (uint8_t)text.at[i];
}

static void
check_result(struct rig *rig, const struct op *op)
{
    const struct op_result *result = &op->result;

    require(result->status <= OP_REFUSED);
    if (result->told) {
        sum_text(rig, result->holder_client);
        sum_text(rig, result->holder_owner);
        sum_text(rig, result->holder_note);
    }
    if (op->kind == OP_RENEW && op->moves && result->status == OP_OK)
        sum_text(rig, result->note);
    for (uint32_t i = 0; i < result->grant_count; i++)
        rig->sum += result->grants[i].request + result->grants[i].fence;
    for (uint32_t i = 0; i < result->ticket_count; i++) {
        const struct op_ticket *ticket = &result->tickets[i];
        require(op->kind == OP_INSPECT && strlen(ticket->broker) <= 8);
        sum_text(rig, ticket->owner);
        sum_text(rig, ticket->client);
        sum_text(rig, ticket->note);
    }
    require(result->status == OP_OK || result->ticket_count == 0 ||
            result->status == OP_REFUSED);
}

static void
take_done(struct rig *rig)
{
    struct op *op;
    struct store_hint hint;
    struct op_members members;
    struct text news;

    while ((op = store_take_done(rig->store)) != NULL) {
        uint32_t index = op->place;
        require(index < OPS_MAX && rig->ops[index] == op);
        require(list_empty(&op->link));
        check_result(rig, op);
        rig->ops[index] = NULL;
        free(op);
    }
    while (store_take_hint(rig->store, &hint))
        rig->sum += hint.request + hint.fence + hint.broken;
    while (store_take_news(rig->store, &news)) {
        for (size_t i = 0; i < news.len; i++)
            rig->sum += (uint8_t)news.at[i];
        if (!store_read_members(rig->store, news, &members))
            continue;
        for (uint32_t i = 0; i < members.ticket_count; i++)
            sum_text(rig, members.tickets[i].note);
    }
    (void)store_take_unheard(rig->store);
}

static void
carry_out(struct rig *rig)
{
    struct store_wish wish;

    while (store_take_wish(rig->store, &wish)) {
        struct rig_conn *conn = &rig->conns[wish.conn.index];
        reader_destroy(&conn->reader);
        conn->id = wish.conn;
        conn->connecting = wish.kind == WISH_CONNECT;
        require(!conn->connecting || wish.address->port > 0);
    }
}

static void
turn(struct rig *rig)
{
    store_flush(rig->store, rig->now_us, REALTIME_US + rig->now_us);
    take_done(rig);
    carry_out(rig);
}

/* --- links ---------------------------------------------------------------- */

/* The n-th link, counted round, that is open (or connecting); NULL: none. */
static struct rig_conn *
conn_nth(struct rig *rig, bool open, unsigned n)
{
    struct rig_conn *found[STORE_CONNS] = {NULL};
    unsigned count = 0;

    for (uint32_t i = 0; i < STORE_CONNS; i++) {
        struct rig_conn *conn = &rig->conns[i];
        if (open ? conn->reader != NULL : conn->connecting)
            found[count++] = conn;
    }
    return count == 0 ? NULL : found[n % count];
}

static void
conn_connect(struct rig *rig, struct rig_conn *conn)
{
    conn->connecting = false;
    conn->reader = reader_create();
    require(conn->reader != NULL);
    store_connected(rig->store, conn->id, rig->now_us);
    take_done(rig);
}

static void
conn_lose(struct rig *rig, struct rig_conn *conn, const char *why)
{
    conn->connecting = false;
    reader_destroy(&conn->reader);
    store_closed(rig->store, conn->id, rig->now_us, HEALTH_CLOSED, why);
    take_done(rig);
}

/* A copy of a tree, each part with nothing around it. */
static void
resp_copy(const struct resp *from, struct resp *to)
{
    *to = *from;
    if (from->type == RESP_ARRAY) {
        struct resp *items = malloc(from->count * sizeof(*items) + 1);
        require(items != NULL);
        for (size_t i = 0; i < from->count; i++)
            resp_copy(&from->item[i], &items[i]);
        to->item = items;
    } else if (from->text.at != NULL) {
        char *text = malloc(from->text.len == 0 ? 1 : from->text.len);
        require(text != NULL);
        memcpy(text, from->text.at, from->text.len);
        to->text.at = text;
    }
}

static void
resp_free(const struct resp *value)
{
    for (size_t i = 0; i < value->count; i++)
        resp_free(&value->item[i]);
    free((void *)(uintptr_t)value->item);
    free((void *)(uintptr_t)value->text.at);
}

/* As io does it: whole replies to the store, its results used at once. */
static void
conn_feed(struct rig *rig, struct rig_conn *conn, const char *bytes, size_t len)
{
    const struct resp *reply;
    enum reader_status status = READER_MORE;

    for (size_t at = 0; at < len && status == READER_MORE;) {
        size_t part = len - at < rig->part ? len - at : rig->part;
        /* With nothing around it, so that the sanitizer sees a byte more. */
        char *copy = malloc(part);
        require(copy != NULL);
        memcpy(copy, bytes + at, part);
        bool fed = reader_feed(conn->reader, copy, part);
        require(fed);
        free(copy);
        at += part;
        while ((status = reader_next(conn->reader, &reply)) == READER_REPLY) {
            struct resp alone;
            resp_copy(reply, &alone);
            store_reply(rig->store, conn->id, rig->now_us, &alone);
            take_done(rig);
            resp_free(&alone);
        }
    }
    if (status == READER_BROKEN)
        conn_lose(rig, conn, "no RESP");
}

/* --- replies -------------------------------------------------------------- */

static void say(struct rig *rig, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void
say(struct rig *rig, const char *format, ...)
{
    size_t room = sizeof(rig->reply) - rig->reply_len;
    va_list arguments;

    va_start(arguments, format);
    int len = vsnprintf(rig->reply + rig->reply_len, room, format, arguments);
    va_end(arguments);
    require(len >= 0 && (size_t)len < room);
    rig->reply_len += (size_t)len;
}

static void
say_bytes(struct rig *rig, const void *bytes, size_t len)
{
    require(len <= sizeof(rig->reply) - rig->reply_len);
    memcpy(rig->reply + rig->reply_len, bytes, len);
    rig->reply_len += len;
}

static void
say_bulk(struct rig *rig, const char *bytes, size_t len)
{
    say(rig, "$%zu\r\n", len);
    say_bytes(rig, bytes, len);
    say(rig, "\r\n");
}

static void
say_info(struct rig *rig, uint8_t variant)
{
    char text[400];
    int len = snprintf(text, sizeof(text),
        "redis_version:%s\r\nrun_id:%040d\r\nloading:%d\r\n"
        "maxmemory_policy:%s\r\nrole:%s\r\nmaster_replid:%040d\r\n"
        "cluster_enabled:%d\r\n",
        variant == 1 ? "6.2.1" : "7.0.15", variant / 8, variant == 2,
        variant == 3 ? "volatile-lru" : "noeviction",
        variant == 4 ? "slave" : "master", variant / 16,
        variant == 5 ? !rig->cluster : rig->cluster);

    require(len > 0 && (size_t)len < sizeof(text));
    say_bulk(rig, text, (size_t)len);
}

static void
say_slots(struct rig *rig, uint8_t variant)
{
    static const char *const hosts[] = {
        "$8\r\n10.0.0.1", "$4\r\nhost", "$-1", "$0\r\n", "$1\r\n?"};
    static const char *const odd[] = {"*0\r\n", "*1\r\n:5\r\n",
        "*1\r\n*2\r\n:0\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\nh\r\n",
        "*1\r\n*3\r\n:9\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\nh\r\n:70000\r\n",
        "*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n$1\r\nh\r\n:1\r\n", "+OK\r\n"};
    const char *host = hosts[variant / 8 < 5 ? variant / 8 : 0];
    int last = variant % 4 == 1 ? 16000 : 16383;
    int ports = 3 - variant % 3;

    if (variant >= 248) {
        say(rig, "%s", odd[variant - 248]);
        return;
    }
    if (variant % 8 == 7) { /* one node has it all */
        say(rig, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n%s\r\n:%d\r\n", host,
            7000 + variant);
        return;
    }
    say(rig, "*3\r\n");
    for (int i = 0; i < 3; i++) {
        say(rig, "*4\r\n:%d\r\n:%d\r\n", i * 5000,
            i == 2 ? last : i * 5000 + 4999);
        for (int copy = 0; copy < 2; copy++)
            say(rig, "*3\r\n%s\r\n:%d\r\n$2\r\nid\r\n", host,
                7000 + i % ports + copy * 100);
    }
}

/* The master's address, by a Sentinel. */
static void
say_master(struct rig *rig, uint8_t variant)
{
    static const char *const odd[] = {"*-1\r\n", "$-1\r\n", "*0\r\n",
        "*2\r\n$0\r\n\r\n$4\r\n7000\r\n", "*2\r\n$1\r\nh\r\n$1\r\n0\r\n",
        "*2\r\n$1\r\nh\r\n$5\r\n65536\r\n", "*2\r\n$1\r\nh\r\n:7000\r\n",
        "*2\r\n$8\r\n10.0.0.1\r\n$4\r\n7001\r\n"};

    if (variant >= 248)
        say(rig, "%s", odd[variant - 248]);
    else
        say(rig, "*2\r\n$8\r\n10.0.0.%d\r\n$4\r\n7100\r\n",
            2 + variant / 8 % 3);
}

/* A number or a double, little-endian, as the scripts have them. */
static char *
put_number(char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *at++ = (char)(value >> 8 * i & 0xff);
    return at;
}

static char *
put_double(char *at, double number)
{
    memcpy(at, &number, sizeof(number));
    return at + sizeof(number);
}

/* The holder in the way: how long holds last, its age, and three words. */
static char *
put_about(char *at)
{
    at = put_number(at, 100, 4);
    at = put_number(at, 20, 4);
    memcpy(at, "\1w\4shop\0", 8);
    return at + 8;
}

/* The kind of a hold that was taken over. */
static char *
put_kind(char *at)
{
    at = put_number(at, 1, 1);
    at = put_number(at, 2, 4);
    at = put_number(at, 3, 4);
    return put_number(at, 1000, 4);
}

static char *
put_result(struct rig *rig, char *at)
{
    uint8_t status = input_byte(&rig->input);
    uint8_t how = input_byte(&rig->input);
    uint8_t grants = status / 16;
    static const size_t abouts[] = {0, 16, 13, 0};
    size_t about = abouts[how / 4 % 4];

    at = put_number(at, status % 16, 1);
    at = put_number(at, how % 4, 1);
    at = put_number(at, grants, 2);
    at = put_number(at, about, 2);
    at = put_number(at, 3, 4);
    at = put_double(at, 11);
    at = put_double(at, 22);
    at = put_number(at, 30000, 4);
    at = put_number(at, 400, 4);
    at = put_number(at, 5, 4);
    for (uint8_t i = 0; i < grants; i++) {
        at = put_number(at, i, 8);
        at = put_double(at, 23);
        at = put_double(at, 12);
        at = put_number(at, 30000, 4);
        at = put_number(at, i, 4);
    }
    return about == 16 ? put_about(at) : about == 13 ? put_kind(at) : at;
}

static char *
put_tickets(struct rig *rig, char *at)
{
    uint8_t count = input_byte(&rig->input) % 8;
    uint8_t words = 1 + input_byte(&rig->input) % 16;
    size_t width = BYTES_TICKET + 3 + 3 * (size_t)words;

    at = put_number(at, count, 4);
    memset(at, 0, BYTES_HEAD);
    put_number(at + AT_HEAD_WIDTH, width, 2);
    put_number(at + AT_HEAD_LIVE, count, 4);
    put_number(at + AT_HEAD_GRANTED, count / 2, 4);
    at += BYTES_HEAD;
    for (uint8_t i = 0; i < count; i++) {
        memset(at, 'w', width);
        put_number(at + AT_TICKET_FLAGS, i < count / 2 ? 2 : 0, 1);
        put_number(at + AT_TICKET_WORDS, 3 + 3 * (size_t)words, 2);
        put_double(at + AT_TICKET_FENCE, 22);
        put_double(at + AT_TICKET_ENDS, 1.7e12 + 20000);
        put_double(at + AT_TICKET_SINCE, 1.7e12);
        for (size_t word = 0; word < 3; word++)
            put_number(at + BYTES_TICKET + word * (words + 1), words, 1);
        at += width;
    }
    return at;
}

/* The answer of a script. The input may change and cut it. */
static void
say_results(struct rig *rig, size_t count, bool inspect)
{
    static char bytes[REPLY_BYTES / 2];
    struct input *input = &rig->input;
    char *at = put_double(bytes, (double)(REALTIME_US + rig->now_us));

    memset(at, 'j', RECORD_ID_BYTES);
    at += RECORD_ID_BYTES;
    for (size_t i = 0; i < count && i < 16; i++)
        at = put_result(rig, at);
    if (inspect)
        at = put_tickets(rig, at);
    size_t len = (size_t)(at - bytes);
    for (uint8_t changes = input_byte(input) % 8; changes > 0; changes--) {
        size_t place = input_number(input) % len;
        bytes[place] = (char)input_byte(input);
    }
    uint8_t cut = input_byte(input);
    if (cut > 128)
        len -= cut - 128u < len ? cut - 128u : len;
    say_bulk(rig, bytes, len);
}

/* --- commands ------------------------------------------------------------- */

static size_t
number_at(const char **at, const char *end)
{
    char *after;

    require(*at < end);
    size_t number = strtoul(*at + 1, &after, 10);
    require(after[0] == '\r' && after[1] == '\n');
    *at = after + 2;
    return number;
}

/* Takes the next command out of the link's output; false: there is none. */
static bool
command_next(struct rig *rig, const struct rig_conn *conn)
{
    struct buffer *out = store_conn_output(rig->store, conn->id.index);
    const char *at = buffer_data(out);
    const char *end = at + buffer_len(out);

    if (at == end)
        return false;
    size_t count = number_at(&at, end);
    rig->word_count = count;
    for (size_t i = 0; i < count; i++) {
        size_t len = number_at(&at, end);
        require(len + 2 <= (size_t)(end - at));
        if (i < sizeof(rig->words) / sizeof(rig->words[0]))
            rig->words[i] = text_make(at, len);
        at += len + 2;
    }
    return true;
}

static void
command_consume(struct rig *rig, const struct rig_conn *conn)
{
    struct buffer *out = store_conn_output(rig->store, conn->id.index);
    const char *at = buffer_data(out);
    const char *end = at + buffer_len(out);
    size_t count = number_at(&at, end);

    for (size_t i = 0; i < count; i++) {
        size_t len = number_at(&at, end);
        at += len + 2;
    }
    buffer_consume(out, (size_t)(at - buffer_data(out)));
}

static bool
word_is(const struct rig *rig, size_t index, const char *word)
{
    return index < rig->word_count &&
           text_equal(rig->words[index], text_from(word));
}

/* Writes what a Redis answers to the command that was read. */
static void
command_answer(struct rig *rig, uint8_t variant)
{
    if (word_is(rig, 0, "EVALSHA"))
        say_results(rig, (rig->word_count - 4) / 2,
            word_is(rig, 1, scripts[SCRIPT_INSPECT].sha1));
    else if (word_is(rig, 0, "INFO"))
        say_info(rig, variant);
    else if (word_is(rig, 0, "TIME"))
        say(rig, "*2\r\n$10\r\n1700000000\r\n$6\r\n%06d\r\n", variant);
    else if (word_is(rig, 0, "CLUSTER"))
        say_slots(rig, variant);
    else if (word_is(rig, 0, "SENTINEL"))
        say_master(rig, variant);
    else if (word_is(rig, 1, "ID"))
        say(rig, ":%d\r\n", variant + 1);
    else if (word_is(rig, 0, "SUBSCRIBE"))
        say(rig, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    else
        say(rig, "+OK\r\n");
}

/* Answers the link's next command; false: it has none. */
static bool
serve(struct rig *rig, struct rig_conn *conn, uint8_t variant)
{
    if (conn->reader == NULL || !command_next(rig, conn))
        return false;
    rig->reply_len = 0;
    command_answer(rig, variant);
    command_consume(rig, conn);
    conn_feed(rig, conn, rig->reply, rig->reply_len);
    return true;
}

/* --- acts ----------------------------------------------------------------- */

static void
act_submit(struct rig *rig)
{
    static const uint16_t slots[] = {0, 5000, 12182, SLOT_COUNT - 1};
    uint8_t what = input_byte(&rig->input);
    uint32_t index = 0;
    struct list list;

    while (index < OPS_MAX && rig->ops[index] != NULL)
        index++;
    if (index == OPS_MAX)
        return;
    struct op *op = calloc(1, sizeof(*op));
    require(op != NULL);
    list_init(&op->link);
    op->kind = (enum op_kind)(what % OP_KIND_COUNT);
    op->slot = slots[what / 8 % 4];
    op->name = TEXT("name");
    op->request = index + 1;
    op->place = index;
    op->lease_ms = 30000;
    op->hard_end_us = WHEEL_NEVER;
    op->limit = 10;
    op->deadline_us = rig->now_us + (what >= 128 ? 0 : 3000000);
    op->words[0] = TEXT("");
    op->words[1] = TEXT("");
    op->words[2] = what / 32 % 2 == 1 ? TEXT("a note") : TEXT("");
    op->ask.permits = 1;
    op->tell = op->moves = what / 32 % 2 == 1;
    op->unclean = op->watch = what / 64 % 2 == 1;
    if (op->kind == OP_PUBLISH) {
        op->words[0] = TEXT("broker-2");
        op->words[1] = TEXT("Dword");
    }
    if (op->kind == OP_AUDIT) {
        op->audit = &rig->audits[index];
        *op->audit = (struct op_audit){
            .count = 10, .mark_ms = what >= 128 ? 1000 : 0, .cursor = what};
    }
    rig->ops[index] = op;
    list_init(&list);
    list_push_back(&list, &op->link);
    store_submit(rig->store, rig->now_us, &list);
}

static void
act_turn(struct rig *rig)
{
    rig->now_us += (uint64_t)input_byte(&rig->input) * 1000;
    turn(rig);
}

static void
act_pass(struct rig *rig)
{
    uint64_t end_us = rig->now_us + (uint64_t)input_byte(&rig->input) * 50000;
    uint64_t next_us;
    int steps = 0;

    while ((next_us = store_next_us(rig->store)) <= end_us) {
        rig->now_us = next_us > rig->now_us ? next_us : rig->now_us + 1;
        turn(rig);
        require(++steps < STEPS_MAX);
    }
    rig->now_us = end_us > rig->now_us ? end_us : rig->now_us;
    turn(rig);
}

static void
act_connect(struct rig *rig)
{
    struct rig_conn *conn = conn_nth(rig, false, input_byte(&rig->input));

    if (conn != NULL)
        conn_connect(rig, conn);
}

static void
act_lose(struct rig *rig)
{
    uint8_t n = input_byte(&rig->input);
    struct rig_conn *conn = conn_nth(rig, n < 128, n);

    if (conn != NULL)
        conn_lose(rig, conn, "lost");
}

static void
act_serve(struct rig *rig)
{
    struct rig_conn *conn = conn_nth(rig, true, input_byte(&rig->input));
    uint8_t variant = input_byte(&rig->input);

    if (conn != NULL)
        (void)serve(rig, conn, variant);
}

static void
act_error(struct rig *rig)
{
    static const char *const errors[] = {"MOVED 5000 10.0.0.1:7001",
        "MOVED 0 :7002", "MOVED 12182 new:%u", "ASK 5000 10.0.0.1:7002",
        "ASK 0 other:%u", "TRYAGAIN x", "NOSCRIPT x", "LOADING x",
        "CLUSTERDOWN x", "READONLY x", "ERR x", "MOVED 5 nocolon",
        "MOVED 16384 a:1", "ASK 1 a:0", "MOVED 0 ?:7000", "NOAUTH x"};
    struct rig_conn *conn = conn_nth(rig, true, input_byte(&rig->input));
    uint8_t which = input_byte(&rig->input);
    const char *error = errors[which % 16];
    const char *percent = strchr(error, '%');

    if (conn == NULL || !command_next(rig, conn))
        return;
    command_consume(rig, conn);
    rig->reply_len = 0;
    if (percent != NULL)
        say(rig, "-%.*s%u\r\n", (int)(percent - error), error,
            7000u + which / 16);
    else
        say(rig, "-%s\r\n", error);
    conn_feed(rig, conn, rig->reply, rig->reply_len);
}

static void
act_bytes(struct rig *rig)
{
    struct input *input = &rig->input;
    struct rig_conn *conn = conn_nth(rig, true, input_byte(input));
    size_t len = input_byte(input);

    if (len > (size_t)(input->end - input->at))
        len = (size_t)(input->end - input->at);
    if (conn != NULL)
        conn_feed(rig, conn, (const char *)input->at, len);
    input->at += len;
}

/* A hint, that a hold was broken, or news: of a watched lock, a probe, or of
 * members. */
static void
act_publish(struct rig *rig)
{
    static const char kinds[] = "GBWDVKP?";
    struct rig_conn *conn = &rig->conns[CONN_SUBSCRIBER];
    char payload[256] = "";
    uint8_t how = input_byte(&rig->input);
    size_t len = how % 8 < 2 ? 17 : how;

    payload[0] = kinds[how % 8];
    put_number(payload + 1, input_byte(&rig->input), 8);
    put_double(payload + 9, (double)input_number(&rig->input));
    len -= input_byte(&rig->input) % 2;
    for (size_t i = 1; payload[0] == 'P' && i < sizeof(payload); i++)
        payload[i] = (char)input_byte(&rig->input);
    if (conn->reader == NULL)
        return;
    rig->reply_len = 0;
    say(rig, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n");
    say_bulk(rig, payload, len < sizeof(payload) ? len : sizeof(payload));
    conn_feed(rig, conn, rig->reply, rig->reply_len);
}

/* Everything is connected and greeted: from here it gets interesting. */
static void
act_settle(struct rig *rig)
{
    for (int round = 0; round < 4; round++) {
        turn(rig);
        for (uint32_t i = 0; i < STORE_CONNS; i++) {
            struct rig_conn *conn = &rig->conns[i];
            int answers = 0;
            if (conn->connecting)
                conn_connect(rig, conn);
            while (answers++ < 20 && serve(rig, conn, 0))
                continue;
        }
        rig->now_us += 60000;
    }
}

static void
act_part(struct rig *rig)
{
    rig->part = 1 + (size_t)input_byte(&rig->input) * 8;
}

static void (*const acts[])(struct rig *rig) = {act_submit, act_turn, act_pass,
    act_connect, act_lose, act_serve, act_error, act_bytes, act_publish,
    act_settle, act_part};

/* --- a run ---------------------------------------------------------------- */

/*
 * A store takes over a hundred megabytes, so there is one for each topology,
 * put back to how it was created before each run.
 */
struct born {
    struct store *store;
    char state[offsetof(struct store, hints)];
};

static void
born_create(struct born *born, enum store_topology topology)
{
    static struct store_settings settings;

    settings = (struct store_settings){
        .topology = topology,
        .node_count = topology == STORE_SINGLE ? 1 : 3,
        .sentinel_master = "mymaster",
        .sentinel_password = "other",
        .key_prefix = "holdfast",
        .broker_id = "broker-1",
        .expiry_ms = 2000,
        .waiters_max = 100,
        .forget_after_ms = 86400000,
        .idle_after_ms = 120000,
        .connect_timeout_us = 1000000,
        .command_timeout_us = 2000000,
        .in_flight = IN_FLIGHT_MAX,
        .seed = 7,
    };
    for (uint32_t i = 0; i < settings.node_count; i++) {
        memcpy(settings.nodes[i].host, "10.0.0.1", 9);
        settings.nodes[i].port = (uint16_t)(7000 + i);
    }
    born->store = store_create(&settings, NULL, START_US);
    require(born->store != NULL);
    memcpy(born->state, born->store, sizeof(born->state));
}

static void
rig_init(struct rig *rig, const uint8_t *data, size_t size)
{
    static struct born born[3];
    uint8_t how;

    memset(rig, 0, sizeof(*rig));
    rig->input = (struct input){data, data + size};
    how = input_byte(&rig->input);
    rig->cluster = how % 2 == 1;
    rig->now_us = START_US;
    rig->part = REPLY_BYTES;
    enum store_topology topology = rig->cluster        ? STORE_CLUSTER
                                   : how / 32 % 2 == 1 ? STORE_SENTINEL
                                                       : STORE_SINGLE;
    struct born *mine = &born[topology];
    if (mine->store == NULL)
        born_create(mine, topology);
    struct store *store = mine->store;
    uint32_t calls = store->calls.capacity;
    slab_fini(&store->calls);
    memcpy(store, mine->state, sizeof(mine->state));
    store->hint_count = store->news_count = 0;
    store->news_len = 0;
    bool room = slab_init(&store->calls, sizeof(struct call), calls);
    require(room);
    store->counters = &rig->counters;
    store->settings.batch = 1 + how / 2 % 4;
    store->settings.in_flight = 1 + how / 8 % IN_FLIGHT_MAX;
    if (how >= 128)
        memcpy(store->settings.password, "secret", 7);
    if (how >= 192)
        memcpy(store->settings.username, "user", 5);
    rig->store = store;
}

/* Nobody answers any more, and time passes. */
static void
leave_alone(struct rig *rig)
{
    uint64_t end_us = rig->now_us + NOBODY_US;
    int steps = 0;

    while (rig->now_us < end_us) {
        uint64_t next_us = store_next_us(rig->store);
        rig->now_us = next_us > rig->now_us ? next_us : rig->now_us + 1;
        turn(rig);
        for (uint32_t i = 0; i < STORE_CONNS; i++)
            if (rig->conns[i].connecting)
                conn_lose(rig, &rig->conns[i], "refused");
        require(++steps < STEPS_MAX);
    }
    for (uint32_t i = 0; i < OPS_MAX; i++)
        require(rig->ops[i] == NULL);
    require(store_in_flight(rig->store) == 0);
}

/* So that the lines are written, at least. */
static void
log_nothing(enum log_level level, const char *line, size_t len)
{
    require(level <= LOG_DEBUG && strlen(line) == len);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rig rig;

    log_init(log_nothing, LOG_DEBUG);
    rig_init(&rig, data, size);
    turn(&rig);
    for (unsigned act = 1; act <= ACTS_MAX && rig.input.at < rig.input.end;
         act++) {
        acts[input_byte(&rig.input) % (sizeof(acts) / sizeof(acts[0]))](&rig);
        if (act % CHECK_EVERY == 0)
            store_check(rig.store);
    }
    store_check(rig.store);
    leave_alone(&rig);
    store_check(rig.store);
    for (uint32_t i = 0; i < STORE_CONNS; i++)
        reader_destroy(&rig.conns[i].reader);
    return 0;
}
