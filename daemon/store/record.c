/*
 * Encoding and decoding of what the scripts take and give; see record.h. All
 * numbers are little-endian, and what comes from Redis is never trusted.
 */
#include "daemon/store/record.h"

#include "daemon/base/assert.h"
#include "proto/request.h"

#define HEADER_BYTES   96
#define IDENTITY_BYTES 36
#define ACQUIRE_BYTES  44
#define STOOD_BYTES    16
#define RELEASE_BYTES  29
#define RENEW_BYTES    50
#define REPLY_BYTES    (8 + RECORD_ID_BYTES)
#define RESULT_BYTES   38
#define GRANT_BYTES    32
#define ABOUT_BYTES    8
#define KIND_BYTES     21
#define HEAD_BYTES     136
#define TICKET_BYTES   104
#define AUDIT_BYTES    20 /* before the cursor */
#define AUDITED_BYTES  21 /* likewise */
#define SIGHT_BYTES    20
#define CURSOR_DIGITS  20 /* at most */

/* Flags of acquire; of release; of renew. */
#define ACQUIRE_RETRY    1
#define ACQUIRE_NO_QUEUE 2
#define ACQUIRE_MOVES    4
#define ACQUIRE_TELL     8
#define ACQUIRE_STOOD    16
#define ACQUIRE_OVERDUE  32
#define ACQUIRE_WAITS    64
#define RELEASE_UNCLEAN  1
#define RELEASE_MOVES    2
#define RELEASE_REPEATS  4
#define RENEW_LOOK       1
#define RENEW_SETS_END   2
#define RENEW_MOVES      4
#define RENEW_TELL       8
#define RENEW_SHARES     16
#define RENEW_WATCH      32
#define RENEW_RAISES     64
#define RENEW_AGREED     128
#define RENEW_HOLDS      256
#define RENEW_OVERDUE    512

#define RESULT_HANDED    1
#define RESULT_MORE      2
#define RESULT_UNSETTLED 4

#define HEAD_SHARED    1
#define TICKET_GRANTED 2u
#define TICKET_CLAIMED 4u
#define TICKET_BROKEN  16u
#define MODE_SHARED    1

/* Little-endian numbers and doubles, as struct.pack('<...') has them. */

static char *
put_uint(char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        *at++ = (char)(value & 0xff);
        value >>= 8;
    }
    return at;
}

static char *
put_double(char *at, uint64_t value)
{
    double number = (double)value;
    uint64_t bits;

    memcpy(&bits, &number, sizeof(bits));
    return put_uint(at, bits, sizeof(bits));
}

static char *
put_bytes(char *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

static uint64_t
get_uint(const char *at, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = bytes; i > 0; i--)
        value = value << 8 | (uint8_t)at[i - 1];
    return value;
}

/* Negative and absurd numbers become 0. */
static uint64_t
get_double(const char *at)
{
    uint64_t bits = get_uint(at, sizeof(bits));
    double number;

    memcpy(&number, &bits, sizeof(number));
    return number >= 0 && number < 9007199254740992.0 ? (uint64_t)number : 0;
}

size_t
record_header_bytes(const struct record_header *header)
{
    return HEADER_BYTES + header->channel.len;
}

void
record_write_header(const struct record_header *header, char *out)
{
    char *at = out;

    at = put_uint(at, 1, 1);
    at = put_uint(at, header->number, 1);
    at = put_uint(at, header->lapse_ms, 2);
    at = put_bytes(at, header->broker, 8);
    at = put_double(at, header->fence_clock_us);
    at = put_double(at, header->forget_after_ms);
    at = put_double(at, header->expected_us);
    at = put_uint(at, header->waiters_max, 4);
    at = put_bytes(at, header->id, RECORD_ID_BYTES);
    at = put_uint(at, header->settles_ms, 4);
    at = put_uint(at, header->steady_ms, 4);
    at = put_uint(at, header->within_us, 4);
    at = put_uint(at, header->idle_after_ms, 4);
    require(at == out + HEADER_BYTES);
    put_bytes(at, header->channel.at, header->channel.len);
}

/* A length byte and the bytes, each; nothing at all where all are empty. */
static size_t
words_bytes(const struct op *op)
{
    size_t bytes = op->words[0].len + op->words[1].len + op->words[2].len;

    return bytes == 0 ? 0 : bytes + 3;
}

static char *
put_words(char *at, const struct op *op)
{
    if (words_bytes(op) == 0)
        return at;
    for (size_t i = 0; i < 3; i++) {
        at = put_uint(at, op->words[i].len, 1);
        at = put_bytes(at, op->words[i].at, op->words[i].len);
    }
    return at;
}

static size_t
cursor_digits(uint64_t cursor)
{
    char digits[CURSOR_DIGITS];

    return text_from_u64(digits, cursor);
}

enum script_id
record_script(enum op_kind kind)
{
    static const enum script_id ids[OP_KIND_COUNT] = {

#define OP(id, word, owner, done, script, ...) SCRIPT_##script,
#include "daemon/core/op.def"
    };

    return ids[kind];
}

size_t
record_op_bytes(const struct op *op)
{
    switch (record_script(op->kind)) {
    case SCRIPT_ACQUIRE:
        return IDENTITY_BYTES + ACQUIRE_BYTES + words_bytes(op) +
               (op->kind == OP_RECLAIM ? STOOD_BYTES : 0);
    case SCRIPT_RELEASE:
        return IDENTITY_BYTES + RELEASE_BYTES;
    case SCRIPT_RENEW:
        return IDENTITY_BYTES + RENEW_BYTES;
    case SCRIPT_INSPECT:
        return 4;
    case SCRIPT_BREAK:
        return 8;
    case SCRIPT_AUDIT:
        return AUDIT_BYTES + cursor_digits(op->audit->cursor);
    case SCRIPT_NONE:
        break;
    }
    require(false);
    return 0;
}

static char *
put_identity(char *at, const struct op *op)
{
    at = put_uint(at, op->generation, 4);
    at = put_bytes(at, op->session, sizeof(op->session));
    at = put_bytes(at, op->owner_hash, sizeof(op->owner_hash));
    return put_uint(at, op->request, 8);
}

uint64_t
record_hold_left_ms(const struct op *op, uint64_t now_us)
{
    if (op->hard_end_us == WHEEL_NEVER)
        return 0;
    return op->hard_end_us > now_us + 1000 ? (op->hard_end_us - now_us) / 1000
                                           : 1;
}

static char *
put_acquire(char *at, const struct op *op, uint64_t now_us, uint64_t latest_ms)
{
    bool stood = op->kind == OP_RECLAIM;

    at = put_identity(at, op);
    at = put_uint(at,
        (op->retry ? ACQUIRE_RETRY : 0) |
            (op->no_queue ? ACQUIRE_NO_QUEUE : 0) |
            (op->moves ? ACQUIRE_MOVES : 0) | (op->tell ? ACQUIRE_TELL : 0) |
            (stood ? ACQUIRE_STOOD : 0) |
            (op->retry && op->overdue ? ACQUIRE_OVERDUE : 0) |
            (op->tells_wait ? ACQUIRE_WAITS : 0),
        1);
    at = put_uint(at, op->ask.shared ? MODE_SHARED : 0, 1);
    at = put_uint(at, words_bytes(op), 2);
    at = put_uint(at, op->ask.permits, 4);
    at = put_uint(at, op->ask.permits_max, 4);
    at = put_uint(at, op->lease_ms, 4);
    at = put_uint(at, op->ask.delay_ms, 4);
    /* Of who waited it begins when he is granted it. */
    at = put_double(at, stood && op->fence > 0 ? record_hold_left_ms(op, now_us)
                                               : op->ask.hold_ms);
    at = put_double(at, latest_ms);
    at = put_double(at, op->seen);
    if (stood) {
        at = put_double(at, op->arrival);
        at = put_double(at, op->fence);
    }
    return put_words(at, op);
}

static char *
put_release(char *at, const struct op *op)
{
    at = put_identity(at, op);
    at = put_uint(at, op->place, 4);
    at = put_double(at, op->arrival);
    at = put_double(at, op->fence);
    at = put_double(at, op->seen);
    return put_uint(at,
        (op->unclean ? RELEASE_UNCLEAN : 0) | (op->moves ? RELEASE_MOVES : 0) |
            (op->repeats ? RELEASE_REPEATS : 0),
        1);
}

/* RENEW_HOLDS is about a ticket that is taken over; without it a renewal has no
 * flags, as the short cut of the script wants it. */
static char *
put_renew(char *at, const struct op *op, uint64_t now_us, uint64_t latest_ms)
{
    at = put_identity(at, op);
    at = put_uint(at, op->place, 4);
    at = put_double(at, op->arrival);
    at = put_double(at, op->fence);
    at = put_uint(at,
        (op->kind == OP_LOOK ? RENEW_LOOK : 0) |
            (op->sets_end ? RENEW_SETS_END : 0) |
            (op->moves ? RENEW_MOVES : 0) | (op->tell ? RENEW_TELL : 0) |
            (op->shares ? RENEW_SHARES : 0) | (op->watch ? RENEW_WATCH : 0) |
            (op->raises ? RENEW_RAISES : 0) | (op->agreed ? RENEW_AGREED : 0) |
            (op->moves && op->holds ? RENEW_HOLDS : 0) |
            (op->kind == OP_RENEW && op->overdue ? RENEW_OVERDUE : 0),
        2);
    at = put_uint(at, op->lease_ms, 4);
    at = put_double(at, record_hold_left_ms(op, now_us));
    at = put_double(at, latest_ms);
    return put_double(at, op->seen);
}

static char *
put_audit(char *at, const struct op_audit *audit)
{
    at = put_uint(at, audit->count, 4);
    at = put_double(at, audit->hold_ms);
    at = put_double(at, audit->wait_ms);
    return at + text_from_u64(at, audit->cursor);
}

void
record_write_op(
    const struct op *op, uint64_t now_us, uint64_t latest_ms, char *out)
{
    char *at = out;

    switch (record_script(op->kind)) {
    case SCRIPT_ACQUIRE:
        at = put_acquire(at, op, now_us, latest_ms);
        break;
    case SCRIPT_RELEASE:
        at = put_release(at, op);
        break;
    case SCRIPT_RENEW:
        at = put_renew(at, op, now_us, latest_ms);
        break;
    case SCRIPT_INSPECT:
        at = put_uint(at, op->limit, 4);
        break;
    case SCRIPT_BREAK:
        at = put_double(at, op->fence);
        break;
    case SCRIPT_AUDIT:
        at = put_audit(at, op->audit);
        break;
    case SCRIPT_NONE:
        break;
    }
    require(at == out + record_op_bytes(op));
}

static const char *
take(struct record_reader *reader, size_t bytes)
{
    const char *at = reader->at;

    if ((size_t)(reader->end - at) < bytes)
        return NULL;
    reader->at += bytes;
    return at;
}

bool
record_read_reply(
    struct record_reader *reader, struct text reply, struct record_reply *out)
{
    reader->at = reply.at;
    reader->end = reply.at + reply.len;
    const char *at = take(reader, REPLY_BYTES);
    if (at == NULL)
        return false;
    out->time_us = get_double(at);
    memcpy(out->id, at + 8, RECORD_ID_BYTES);
    out->id[RECORD_ID_BYTES] = '\0';
    return true;
}

struct text
record_reply_id(struct text reply)
{
    if (reply.len < REPLY_BYTES || get_double(reply.at) == 0)
        return TEXT("");
    return text_make(reply.at + 8, RECORD_ID_BYTES);
}

bool
record_grants(struct text reply, uint32_t count, bool ok_grants)
{
    if (reply.len != REPLY_BYTES + (size_t)count * RESULT_BYTES)
        return true; /* there are grants, or words */
    for (uint32_t i = 0; ok_grants && i < count; i++)
        if (reply.at[REPLY_BYTES + i * RESULT_BYTES] == RECORD_OK)
            return true;
    return false;
}

static void
read_grant(const char *at, struct op_grant *grant)
{
    grant->request = get_uint(at, 8);
    grant->fence = get_double(at + 8);
    grant->arrival = get_double(at + 16);
    grant->ttl_ms = (uint32_t)get_uint(at + 24, 4);
    grant->place = (uint32_t)get_uint(at + 28, 4);
}

static enum op_status
status_of(enum record_status status)
{
    switch (status) {
    case RECORD_OK:
        return OP_OK;
    case RECORD_WAITING:
        return OP_WAITING;
    case RECORD_BUSY:
        return OP_BUSY;
    case RECORD_FULL:
        return OP_FULL;
    case RECORD_GONE:
        return OP_GONE;
    case RECORD_CONFLICT:
        return OP_CONFLICT;
    case RECORD_BROKEN:
        return OP_BROKEN;
    case RECORD_MOVED:
        return OP_MOVED;
    case RECORD_MISSING:
        return OP_MISSING;
    case RECORD_GRACE:
        return OP_UNSETTLED;
    case RECORD_LATE:
    case RECORD_CHANGED:
        return OP_UNSENT;
    case RECORD_NEWER:
    case RECORD_CORRUPT:
        break;
    }
    return OP_REFUSED;
}

/* Owner, client's name and note. Where they are none all are empty. */
static bool
read_words(const char *at, size_t len, struct text *const words[3])
{
    size_t used = 0;

    for (size_t i = 0; i < 3; i++)
        *words[i] = TEXT("");
    for (size_t i = 0; i < 3 && len > 0; i++) {
        if (used >= len || (uint8_t)at[used] > len - used - 1) {
            for (size_t j = 0; j < i; j++)
                *words[j] = TEXT("");
            return false;
        }
        *words[i] = text_make(at + used + 1, (uint8_t)at[used]);
        used += 1 + words[i]->len;
    }
    return true;
}

/* Of what kind a ticket is that was taken over. */
static bool
read_kind(const char *at, size_t len, struct op_result *result)
{
    struct text owner;
    struct text client;
    struct text *const words[] = {&owner, &client, &result->note};

    if (len < KIND_BYTES)
        return false;
    result->ask.shared = at[0] == MODE_SHARED;
    result->ask.permits = (uint32_t)get_uint(at + 1, 4);
    result->ask.permits_max = (uint32_t)get_uint(at + 5, 4);
    result->ask.delay_ms = (uint32_t)get_uint(at + 9, 4);
    result->ask.hold_ms = get_double(at + 13);
    return read_words(at + KIND_BYTES, len - KIND_BYTES, words);
}

/* It matters less than the status: without words it will do. */
static void
read_about(const char *at, size_t len, struct op_result *result)
{
    struct text *const words[] = {
        &result->holder_owner, &result->holder_client, &result->holder_note};

    if (len < ABOUT_BYTES)
        return;
    result->told = true;
    result->typical_ms = (uint32_t)get_uint(at, 4);
    result->holder_age_ms = (uint32_t)get_uint(at + 4, 4);
    (void)read_words(at + ABOUT_BYTES, len - ABOUT_BYTES, words);
}

static bool
read_result(struct record_reader *reader, struct op *op,
    enum record_status *status, struct op_grant *grants, uint32_t room)
{
    struct op_result *result = &op->result;
    const char *at = take(reader, RESULT_BYTES);

    if (at == NULL || (uint8_t)at[0] > RECORD_GRACE)
        return false;
    *status = (enum record_status)at[0];
    result->status = status_of(*status);
    result->handed = ((uint8_t)at[1] & RESULT_HANDED) != 0;
    result->more = ((uint8_t)at[1] & RESULT_MORE) != 0;
    result->unsettled = ((uint8_t)at[1] & RESULT_UNSETTLED) != 0;
    result->grant_count = (uint32_t)get_uint(at + 2, 2);
    size_t about = get_uint(at + 4, 2);
    result->place = (uint32_t)get_uint(at + 6, 4);
    result->arrival = get_double(at + 10);
    result->fence = get_double(at + 18);
    result->ttl_ms = (uint32_t)get_uint(at + 26, 4);
    result->again_ms = (uint32_t)get_uint(at + 30, 4);
    result->ahead = (uint32_t)get_uint(at + 34, 4);
    if (*status == RECORD_BUSY) {
        result->delay_ms = result->ttl_ms;
        result->ttl_ms = 0;
    }
    if (*status == RECORD_OK && op->kind == OP_RENEW) {
        result->hold_ms = result->again_ms;
        result->again_ms = 0;
    }
    result->grants = grants;
    if (result->grant_count > room)
        return false;
    for (uint32_t i = 0; i < result->grant_count; i++) {
        at = take(reader, GRANT_BYTES);
        if (at == NULL)
            return false;
        read_grant(at, &grants[i]);
    }
    if (about == 0)
        return true;
    at = take(reader, about);
    if (at == NULL)
        return false;
    if (op->kind != OP_RENEW || (!op->moves && *status != RECORD_OK)) {
        read_about(at, about, result);
    } else if (!read_kind(at, about, result)) {
        *status = RECORD_CORRUPT;
        result->status = status_of(RECORD_CORRUPT);
    }
    return true;
}

bool
record_read_result(struct record_reader *reader, struct op *op,
    enum record_status *status, struct op_grant *grants, uint32_t room)
{
    bool sense = read_result(reader, op, status, grants, room);

    op->result.senseless = sense && *status == RECORD_CORRUPT;
    return sense;
}

/* As lua/audit.lua has it: a hold that is claimed, not broken, and has a lease
 * of which less than half is left, which is no part of a lease= alone. */
static bool
is_late(const char *at, uint64_t time_ms)
{
    unsigned flags = (uint8_t)at[0] & (TICKET_CLAIMED | TICKET_BROKEN);
    uint64_t ends = get_double(at + 24);
    uint64_t hold = get_double(at + 32);

    return flags == TICKET_CLAIMED &&
           ends < time_ms + get_uint(at + 40, 4) / 2 &&
           (hold == 0 || ends < hold);
}

static bool
read_ticket(
    const char *at, size_t width, uint64_t time_ms, struct op_ticket *ticket)
{
    uint64_t ends = get_double(at + 24);
    uint64_t since = get_double(at + 88);
    size_t words = get_uint(at + 2, 2);
    struct text *const texts[] = {
        &ticket->owner, &ticket->client, &ticket->note};

    ticket->granted = ((uint8_t)at[0] & TICKET_GRANTED) != 0;
    ticket->broken = ((uint8_t)at[0] & TICKET_BROKEN) != 0;
    ticket->shared = at[1] == MODE_SHARED;
    ticket->late = is_late(at, time_ms);
    ticket->permits = (uint32_t)get_uint(at + 4, 4);
    ticket->generation = (uint32_t)get_uint(at + 44, 4);
    memcpy(ticket->owner_hash, at + 64, sizeof(ticket->owner_hash));
    ticket->request = get_uint(at + 72, 8);
    ticket->fence = get_double(at + 16);
    ticket->ttl_ms = ends > time_ms ? ends - time_ms : 0;
    ticket->since_us = since;
    ticket->age_ms = time_ms > since / 1000 ? time_ms - since / 1000 : 0;
    memcpy(ticket->session, at + 48, sizeof(ticket->session));
    memcpy(ticket->broker, at + 80, 8);
    ticket->broker[8] = '\0';
    if (words > width - TICKET_BYTES)
        return false;
    return read_words(at + TICKET_BYTES, words, texts);
}

/* The answer is whole, and what it shows of the record makes no sense. */
static bool
record_refuse(struct op_result *result)
{
    result->status = status_of(RECORD_CORRUPT);
    result->senseless = true;
    return true;
}

bool
record_read_tickets(struct record_reader *reader, struct op *op,
    uint64_t time_us, struct op_ticket *tickets, uint32_t room)
{
    struct op_result *result = &op->result;
    const char *count = take(reader, 4);
    const char *head = take(reader, HEAD_BYTES);

    if (count == NULL || head == NULL)
        return false;
    uint32_t n = (uint32_t)get_uint(count, 4);
    size_t width = get_uint(head + 2, 2);
    uint32_t live = (uint32_t)get_uint(head + 32, 4);
    uint32_t granted = (uint32_t)get_uint(head + 36, 4);
    result->shared = (head[1] & HEAD_SHARED) != 0;
    result->limit = (uint32_t)get_uint(head + 4, 4);
    result->used = (uint32_t)get_uint(head + 44, 4);
    result->typical_ms = (uint32_t)get_uint(head + 52, 4);
    uint64_t delay_until_ms = get_double(head + 72);
    if (delay_until_ms > time_us / 1000)
        result->delay_ms = delay_until_ms - time_us / 1000;
    if (n > room || (size_t)(reader->end - reader->at) < n * width)
        return false;
    if (width < TICKET_BYTES || granted > live)
        return record_refuse(result);
    result->holders = granted;
    result->waiters = live - granted;
    result->tickets = tickets;
    for (uint32_t i = 0; i < n; i++) {
        struct op_ticket *ticket = &tickets[result->ticket_count];
        const char *at = take(reader, width);
        if (!read_ticket(at, width, time_us / 1000, ticket))
            return record_refuse(result);
        ticket->late = ticket->late && result->again_ms == 0;
        /* What is over has not been struck out yet, but is none any more; but
         * where nobody can say whether it is. */
        uint32_t *counted =
            ticket->granted ? &result->holders : &result->waiters;
        if (ticket->ttl_ms == 0 && result->again_ms == 0)
            *counted -= *counted > 0;
        else
            result->ticket_count++;
    }
    return true;
}

static bool
read_sight(struct record_reader *reader, struct op_sight *sight)
{
    const char *at = take(reader, SIGHT_BYTES);

    if (at == NULL || (uint8_t)at[1] >= WRONG_COUNT)
        return false;
    size_t len = get_uint(at + 2, 2);
    sight->flags = (uint8_t)at[0];
    sight->wrong = (enum sight_wrong)at[1];
    sight->hold_ms = get_double(at + 4);
    sight->wait_ms = get_double(at + 12);
    at = take(reader, len);
    sight->name = text_make(at, len);
    return at != NULL && len <= PROTO_NAME_MAX;
}

bool
record_read_sights(struct record_reader *reader, struct op_audit *audit,
    struct op_sight *sights, uint32_t room)
{
    const char *at = take(reader, AUDITED_BYTES);

    if (at == NULL)
        return false;
    uint32_t n = (uint32_t)get_uint(at + 12, 4);
    size_t digits = (uint8_t)at[20];
    audit->records = (uint32_t)get_uint(at, 4);
    audit->holds = (uint32_t)get_uint(at + 4, 4);
    audit->waits = (uint32_t)get_uint(at + 8, 4);
    audit->left = (uint32_t)get_uint(at + 16, 4);
    at = take(reader, digits);
    if (at == NULL || n > room ||
        !text_to_u64(text_make(at, digits), UINT64_MAX, &audit->cursor))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!read_sight(reader, &sights[i]))
            return false;
    audit->sights = sights;
    audit->sight_count = n;
    return true;
}
