/*
 * Encoding and decoding of what the scripts take and give; see record.h. All
 * numbers are little-endian, and what comes from Redis is never trusted.
 */
#include "daemon/store/wire/record.h"

#include "daemon/base/assert.h"
#include "daemon/op/op_audit.h"
#include "proto/request.h"

#define CURSOR_DIGITS 20 /* at most */

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
#define RELEASE_BY_FENCE 8
#define RELEASE_EARLIER  16
#define RELEASE_SPARES   32
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
#define RENEW_WAITERS    1024
#define RENEW_DETACHES   2048
#define RENEW_BY_FENCE   4096
#define RENEW_WORDS      8192
#define RENEW_HOLDERS    16384
#define RENEW_RESIZES    32768

#define RESULT_HANDED    1
#define RESULT_MORE      2
#define RESULT_UNSETTLED 4
#define RESULT_BEYOND    8
#define RESULT_WAITED    16

#define HEAD_SHARED     1
#define HEAD_UPGRADABLE 64
#define TICKET_GRANTED  2u
#define TICKET_CLAIMED  4u
#define TICKET_BROKEN   16u
#define MODE_DETACHED   2u
#define MODE_PART       32u
#define INTENTS_VERSION 3

/* Little-endian numbers and doubles, as struct.pack('<...') has them, in the
 * fields of record.def. */

#define SIZE(record, field) \
    ((size_t)(LAST_##record##_##field + 1 - AT_##record##_##field))
#define UINT(at, record, field) \
    get_uint((at) + AT_##record##_##field, SIZE(record, field))
#define DOUBLE(at, record, field) get_double((at) + AT_##record##_##field)
#define PUT_UINT(at, record, field, value) \
    put_uint((at) + AT_##record##_##field, (value), SIZE(record, field))
#define PUT_DOUBLE(at, record, field, value) \
    put_double((at) + AT_##record##_##field, (value))
#define PUT_BYTES(at, record, field, bytes) \
    memcpy((at) + AT_##record##_##field, (bytes), SIZE(record, field))

static void
put_uint(char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        *at++ = (char)(value & 0xff);
        value >>= 8;
    }
}

static void
put_double(char *at, uint64_t value)
{
    double number = (double)value;
    uint64_t bits;

    memcpy(&bits, &number, sizeof(bits));
    put_uint(at, bits, sizeof(bits));
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
    return BYTES_HEADER + header->channel.len;
}

void
record_write_header(const struct record_header *header, char *out)
{
    PUT_UINT(out, HEADER, VERSION, 1);
    PUT_UINT(out, HEADER, NUMBER, header->number);
    PUT_UINT(out, HEADER, LAPSE, header->expiry_ms);
    PUT_BYTES(out, HEADER, BROKER, header->broker);
    PUT_DOUBLE(out, HEADER, FENCE_CLOCK, header->fence_clock_us);
    PUT_DOUBLE(out, HEADER, FORGET_AFTER, header->forget_after_ms);
    PUT_DOUBLE(out, HEADER, EXPECTED, header->expected_us);
    PUT_UINT(out, HEADER, WAITERS_MAX, header->waiters_max);
    PUT_BYTES(out, HEADER, ID, header->id);
    PUT_UINT(out, HEADER, SETTLES_IN, header->settles_ms);
    PUT_UINT(out, HEADER, STEADY_IN, header->steady_ms);
    PUT_UINT(out, HEADER, WITHIN, header->within_us);
    PUT_UINT(out, HEADER, IDLE_AFTER, header->idle_after_ms);
    memcpy(out + BYTES_HEADER, header->channel.at, header->channel.len);
}

/* A length byte and the bytes, each. */
static size_t
all_words_bytes(const struct op *op)
{
    return op->words[0].len + op->words[1].len + op->words[2].len + 3;
}

/* Nothing at all where all are empty. */
static size_t
words_bytes(const struct op *op)
{
    return all_words_bytes(op) == 3 ? 0 : all_words_bytes(op);
}

static char *
put_words(char *at, const struct op *op)
{
    for (size_t i = 0; i < 3; i++) {
        require(op->words[i].len <= UINT8_MAX);
        *at++ = (char)op->words[i].len;
        memcpy(at, op->words[i].at, op->words[i].len);
        at += op->words[i].len;
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
#include "daemon/op/op.def"
#include "daemon/op/op.h"
    };

    require(kind < OP_KIND_COUNT);
    return ids[kind];
}

size_t
record_op_bytes(const struct op *op)
{
    switch (record_script(op->kind)) {
    case SCRIPT_ACQUIRE:
        return BYTES_IDENTITY + BYTES_ACQUIRE + words_bytes(op) +
               (op->kind == OP_RECLAIM ? BYTES_STOOD_AT : 0);
    case SCRIPT_RELEASE:
        return BYTES_IDENTITY + BYTES_RELEASE;
    case SCRIPT_RENEW:
        return BYTES_IDENTITY + BYTES_RENEW +
               (op->notes ? all_words_bytes(op) : 0);
    case SCRIPT_INSPECT:
        return BYTES_INSPECT;
    case SCRIPT_BREAK:
        return BYTES_BREAK;
    case SCRIPT_AUDIT:
        return BYTES_AUDIT + cursor_digits(op->audit->cursor);
    case SCRIPT_NONE:
        break;
    }
    require(false);
    return 0;
}

static char *
put_identity(char *at, const struct op *op)
{
    PUT_UINT(at, IDENTITY, GENERATION, op->generation);
    PUT_BYTES(at, IDENTITY, SESSION, op->session);
    PUT_BYTES(at, IDENTITY, OWNER, op->owner_hash);
    PUT_UINT(at, IDENTITY, REQUEST, op->request);
    return at + BYTES_IDENTITY;
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
    PUT_UINT(at, ACQUIRE, FLAGS,
        (op->retry ? ACQUIRE_RETRY : 0) |
            (op->no_queue ? ACQUIRE_NO_QUEUE : 0) |
            (op->moves ? ACQUIRE_MOVES : 0) | (op->tell ? ACQUIRE_TELL : 0) |
            (stood ? ACQUIRE_STOOD : 0) |
            (op->retry && op->overdue ? ACQUIRE_OVERDUE : 0) |
            (op->tells_wait ? ACQUIRE_WAITS : 0));
    PUT_UINT(at, ACQUIRE, MODE,
        (unsigned)op->ask.mode + (op->ask.part ? MODE_PART : 0));
    PUT_UINT(at, ACQUIRE, WORDS_BYTES, words_bytes(op));
    PUT_UINT(at, ACQUIRE, PERMITS, op->ask.permits);
    PUT_UINT(at, ACQUIRE, LIMIT, op->ask.permits_max);
    PUT_UINT(at, ACQUIRE, LEASE, op->lease_ms);
    PUT_UINT(at, ACQUIRE, DELAY, op->ask.delay_ms);
    /* A waiter's hold begins at its grant. */
    PUT_DOUBLE(at, ACQUIRE, HOLD,
        stood && op->fence > 0 ? record_hold_left_ms(op, now_us)
                               : op->ask.hold_ms);
    PUT_DOUBLE(at, ACQUIRE, LATEST, latest_ms);
    PUT_DOUBLE(at, ACQUIRE, SEEN, op->seen);
    at += BYTES_ACQUIRE;
    if (stood) {
        PUT_DOUBLE(at, STOOD_AT, ARRIVAL, op->arrival);
        PUT_DOUBLE(at, STOOD_AT, FENCE, op->fence);
        at += BYTES_STOOD_AT;
    }
    return words_bytes(op) > 0 ? put_words(at, op) : at;
}

static char *
put_release(char *at, const struct op *op)
{
    at = put_identity(at, op);
    PUT_UINT(at, RELEASE, PLACE, op->place);
    PUT_DOUBLE(at, RELEASE, ARRIVAL, op->arrival);
    PUT_DOUBLE(at, RELEASE, FENCE, op->fence);
    PUT_DOUBLE(at, RELEASE, SEEN, op->seen);
    PUT_UINT(at, RELEASE, FLAGS,
        (op->unclean ? RELEASE_UNCLEAN : 0) | (op->moves ? RELEASE_MOVES : 0) |
            (op->repeats ? RELEASE_REPEATS : 0) |
            (op->by_fence ? RELEASE_BY_FENCE : 0) |
            (op->earlier ? RELEASE_EARLIER : 0) |
            (op->spares ? RELEASE_SPARES : 0));
    PUT_UINT(at, RELEASE, DELAY, op->delay_ms);
    return at + BYTES_RELEASE;
}

/* RENEW_HOLDS is of a taken ticket: the script's short cut wants no flags. */
static char *
put_renew(char *at, const struct op *op, uint64_t now_us, uint64_t latest_ms)
{
    at = put_identity(at, op);
    PUT_UINT(at, RENEW, PLACE, op->place);
    PUT_DOUBLE(at, RENEW, ARRIVAL, op->arrival);
    PUT_DOUBLE(at, RENEW, FENCE, op->fence);
    PUT_UINT(at, RENEW, FLAGS,
        (op->kind == OP_LOOK ? RENEW_LOOK : 0) |
            (op->sets_end ? RENEW_SETS_END : 0) |
            (op->moves ? RENEW_MOVES : 0) | (op->tell ? RENEW_TELL : 0) |
            (op->shares ? RENEW_SHARES : 0) | (op->watch ? RENEW_WATCH : 0) |
            (op->raises ? RENEW_RAISES : 0) | (op->agreed ? RENEW_AGREED : 0) |
            (op->moves && op->holds ? RENEW_HOLDS : 0) |
            (op->kind == OP_RENEW && op->overdue ? RENEW_OVERDUE : 0) |
            (op->waits ? RENEW_WAITERS : 0) |
            (op->members ? RENEW_HOLDERS : 0) |
            (op->detaches ? RENEW_DETACHES : 0) |
            (op->by_fence ? RENEW_BY_FENCE : 0) |
            (op->kind == OP_RESIZE ? RENEW_RESIZES : 0) |
            (op->notes ? RENEW_WORDS : 0));
    PUT_UINT(at, RENEW, LEASE, op->lease_ms);
    PUT_DOUBLE(at, RENEW, HOLD, record_hold_left_ms(op, now_us));
    PUT_UINT(at, RENEW, KEEPS, op->keeps);
    PUT_DOUBLE(at, RENEW, LATEST, latest_ms);
    PUT_DOUBLE(at, RENEW, SEEN, op->seen);
    at += BYTES_RENEW;
    return op->notes ? put_words(at, op) : at;
}

static char *
put_audit(char *at, const struct op_audit *audit)
{
    PUT_UINT(at, AUDIT, COUNT, audit->count);
    PUT_DOUBLE(at, AUDIT, HOLD, audit->hold_ms);
    PUT_DOUBLE(at, AUDIT, WAIT, audit->wait_ms);
    at += BYTES_AUDIT;
    return at + text_from_u64(at, audit->cursor);
}

char *
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
        PUT_UINT(at, INSPECT, LIMIT, op->limit);
        PUT_DOUBLE(at, INSPECT, AFTER, op->after);
        at += BYTES_INSPECT;
        break;
    case SCRIPT_BREAK:
        PUT_DOUBLE(at, BREAK, FENCE, op->fence);
        at += BYTES_BREAK;
        break;
    case SCRIPT_AUDIT:
        at = put_audit(at, op->audit);
        break;
    case SCRIPT_NONE:
        break;
    }
    require(at == out + record_op_bytes(op));
    return at;
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
    const char *at = take(reader, BYTES_REPLY);
    if (at == NULL)
        return false;
    out->time_us = DOUBLE(at, REPLY, TIME);
    memcpy(out->id, at + AT_REPLY_ID, RECORD_ID_BYTES);
    out->id[RECORD_ID_BYTES] = '\0';
    return true;
}

struct text
record_reply_id(struct text reply)
{
    if (reply.len < BYTES_REPLY || DOUBLE(reply.at, REPLY, TIME) == 0)
        return TEXT("");
    return text_make(reply.at + AT_REPLY_ID, RECORD_ID_BYTES);
}

bool
record_grants(struct text reply, uint32_t count, bool ok_grants)
{
    if (reply.len != BYTES_REPLY + (size_t)count * BYTES_RESULT)
        return true; /* there are grants, or words */
    for (uint32_t i = 0; ok_grants && i < count; i++)
        if (reply.at[BYTES_REPLY + AT_RESULT_STATUS + i * BYTES_RESULT] ==
            RECORD_OK)
            return true;
    return false;
}

static void
read_grant(const char *at, struct op_grant *grant)
{
    grant->request = UINT(at, GRANT, REQUEST);
    grant->fence = DOUBLE(at, GRANT, FENCE);
    grant->arrival = DOUBLE(at, GRANT, ARRIVAL);
    grant->ttl_ms = (uint32_t)UINT(at, GRANT, TTL);
    grant->place = (uint32_t)UINT(at, GRANT, PLACE);
    grant->limit = (uint32_t)UINT(at, GRANT, LIMIT);
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

/* Owner, client's name and note; all empty if there are none. */
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

/* A damaged record may have any byte: all others are exclusive. */
static enum mode
mode_of(uint64_t byte)
{
    enum mode mode = (enum mode)(byte & ~(uint64_t)(MODE_DETACHED | MODE_PART));

    return mode_shares(mode) || mode == MODE_UPGRADE || mode == MODE_INTENT
               ? mode
               : MODE_EXCLUSIVE;
}

/* The kind of a ticket that was taken over. */
static bool
read_kind(const char *at, size_t len, struct op_result *result)
{
    struct text owner;
    struct text client;
    struct text *const words[] = {&owner, &client, &result->note};

    if (len < BYTES_KIND)
        return false;
    result->ask.mode = mode_of(UINT(at, KIND, MODE));
    result->ask.part = (UINT(at, KIND, MODE) & MODE_PART) != 0;
    result->ask.permits = (uint32_t)UINT(at, KIND, PERMITS);
    result->ask.permits_max = (uint32_t)UINT(at, KIND, LIMIT);
    result->ask.delay_ms = (uint32_t)UINT(at, KIND, DELAY);
    result->ask.hold_ms = DOUBLE(at, KIND, HOLD);
    return read_words(at + BYTES_KIND, len - BYTES_KIND, words);
}

/* It matters less than the status: without words it will do. */
static void
read_about(const char *at, size_t len, struct op_result *result)
{
    struct text *const words[] = {
        &result->holder_owner, &result->holder_client, &result->holder_note};

    if (len < BYTES_ABOUT)
        return;
    result->told = true;
    result->typical_ms = (uint32_t)UINT(at, ABOUT, TYPICAL);
    result->holder_age_ms = (uint32_t)UINT(at, ABOUT, AGE);
    (void)read_words(at + BYTES_ABOUT, len - BYTES_ABOUT, words);
}

static bool
read_result(struct record_reader *reader, struct op *op,
    enum record_status *status, struct op_grant *grants, uint32_t room)
{
    struct op_result *result = &op->result;
    const char *at = take(reader, BYTES_RESULT);

    if (at == NULL || UINT(at, RESULT, STATUS) > RECORD_GRACE)
        return false;
    *status = (enum record_status)UINT(at, RESULT, STATUS);
    result->status = status_of(*status);
    result->handed = (UINT(at, RESULT, FLAGS) & RESULT_HANDED) != 0;
    result->more = (UINT(at, RESULT, FLAGS) & RESULT_MORE) != 0;
    result->unsettled = (UINT(at, RESULT, FLAGS) & RESULT_UNSETTLED) != 0;
    result->beyond = (UINT(at, RESULT, FLAGS) & RESULT_BEYOND) != 0;
    result->waited_for = (UINT(at, RESULT, FLAGS) & RESULT_WAITED) != 0;
    result->grant_count = (uint32_t)UINT(at, RESULT, GRANTS);
    size_t about = UINT(at, RESULT, ABOUT);
    result->place = (uint32_t)UINT(at, RESULT, PLACE);
    result->arrival = DOUBLE(at, RESULT, ARRIVAL);
    result->fence = DOUBLE(at, RESULT, FENCE);
    result->ttl_ms = (uint32_t)UINT(at, RESULT, TTL);
    result->again_ms = (uint32_t)UINT(at, RESULT, AGAIN);
    result->ahead = (uint32_t)UINT(at, RESULT, AHEAD);
    if (*status == RECORD_BUSY) {
        result->delay_ms = result->ttl_ms;
        result->ttl_ms = 0;
    }
    if (op->kind == OP_RESIZE)
        result->used = result->place;
    if (*status == RECORD_OK && record_script(op->kind) == SCRIPT_RENEW &&
        op->kind != OP_LOOK) {
        result->hold_ms = result->again_ms;
        result->again_ms = 0;
    }
    result->grants = grants;
    if (result->grant_count > room)
        return false;
    for (uint32_t i = 0; i < result->grant_count; i++) {
        at = take(reader, BYTES_GRANT);
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
    unsigned flags =
        (unsigned)UINT(at, TICKET, FLAGS) & (TICKET_CLAIMED | TICKET_BROKEN);
    uint64_t ends = DOUBLE(at, TICKET, ENDS);
    uint64_t hold = DOUBLE(at, TICKET, HOLD);

    return flags == TICKET_CLAIMED &&
           ends < time_ms + UINT(at, TICKET, LEASE) / 2 &&
           (hold == 0 || ends < hold);
}

/* The rest of a lease=, which begins when the broker claims the grant. */
static void
read_lease(const char *at, uint64_t time_ms, struct op_ticket *ticket)
{
    uint64_t hold = DOUBLE(at, TICKET, HOLD);

    ticket->leased = ticket->granted && hold > 0;
    if (!ticket->leased)
        ticket->lease_ms = 0;
    else if ((UINT(at, TICKET, FLAGS) & TICKET_CLAIMED) == 0)
        ticket->lease_ms = hold;
    else
        ticket->lease_ms = hold > time_ms ? hold - time_ms : 0;
}

static bool
read_ticket(
    const char *at, size_t width, uint64_t time_ms, struct op_ticket *ticket)
{
    const char *whose = at + AT_TICKET_IDENTITY;
    uint64_t ends = DOUBLE(at, TICKET, ENDS);
    uint64_t since = DOUBLE(at, TICKET, SINCE);
    size_t words = UINT(at, TICKET, WORDS);
    struct text *const texts[] = {
        &ticket->owner, &ticket->client, &ticket->note};

    ticket->granted = (UINT(at, TICKET, FLAGS) & TICKET_GRANTED) != 0;
    ticket->broken = (UINT(at, TICKET, FLAGS) & TICKET_BROKEN) != 0;
    ticket->mode = mode_of(UINT(at, TICKET, MODE));
    ticket->detached = (UINT(at, TICKET, MODE) & MODE_DETACHED) != 0;
    ticket->part = (UINT(at, TICKET, MODE) & MODE_PART) != 0;
    ticket->late = is_late(at, time_ms);
    ticket->permits = (uint32_t)UINT(at, TICKET, PERMITS);
    ticket->generation = (uint32_t)UINT(whose, IDENTITY, GENERATION);
    memcpy(ticket->owner_hash, whose + AT_IDENTITY_OWNER,
        sizeof(ticket->owner_hash));
    if (ticket->mode == MODE_UPGRADE)
        ticket->owner_hash[0] ^= OWNER_UPGRADE;
    ticket->request = UINT(whose, IDENTITY, REQUEST);
    ticket->fence = DOUBLE(at, TICKET, FENCE);
    ticket->arrival = DOUBLE(at, TICKET, ARRIVAL);
    ticket->ttl_ms = ends > time_ms ? ends - time_ms : 0;
    read_lease(at, time_ms, ticket);
    ticket->since_us = since;
    ticket->age_ms = time_ms > since / 1000 ? time_ms - since / 1000 : 0;
    memcpy(
        ticket->session, whose + AT_IDENTITY_SESSION, sizeof(ticket->session));
    memcpy(ticket->broker, at + AT_TICKET_BROKER, BYTES_c8);
    ticket->broker[8] = '\0';
    if (words > width - BYTES_TICKET)
        return false;
    return read_words(at + BYTES_TICKET, words, texts);
}

/* The answer is whole, and what it shows of the record makes no sense. */
static bool
record_refuse(struct op_result *result)
{
    result->status = status_of(RECORD_CORRUPT);
    result->senseless = true;
    return true;
}

/* The mode of the holders together, and the limit of a semaphore. */
static void
read_head_kind(const char *head, struct op_result *result)
{
    uint32_t limit = (uint32_t)UINT(head, HEAD, LIMIT);
    bool intents = UINT(head, HEAD, VERSION) == INTENTS_VERSION && limit > 0;

    if ((UINT(head, HEAD, FLAGS) & HEAD_UPGRADABLE) != 0)
        result->mode = MODE_UPGRADABLE;
    else if ((UINT(head, HEAD, FLAGS) & HEAD_SHARED) != 0)
        result->mode = MODE_SHARED;
    else if (intents)
        result->mode = limit >> 16 > 0 ? MODE_INTENT : MODE_INTENT_SHARED;
    result->limit = intents ? 0 : limit;
}

bool
record_read_tickets(struct record_reader *reader, struct op *op,
    uint64_t time_us, struct op_ticket *tickets, uint32_t room)
{
    struct op_result *result = &op->result;
    const char *count = take(reader, BYTES_INSPECTED);
    const char *head = take(reader, BYTES_HEAD);

    if (count == NULL || head == NULL)
        return false;
    uint32_t n = (uint32_t)UINT(count, INSPECTED, TICKETS);
    size_t width = UINT(head, HEAD, WIDTH);
    uint32_t live = (uint32_t)UINT(head, HEAD, LIVE);
    uint32_t granted = (uint32_t)UINT(head, HEAD, GRANTED);
    read_head_kind(head, result);
    result->used = (uint32_t)UINT(head, HEAD, USED);
    result->typical_ms = (uint32_t)UINT(head, HEAD, TYPICAL);
    uint64_t delay_until_ms = DOUBLE(head, HEAD, DELAY);
    if (delay_until_ms > time_us / 1000)
        result->delay_ms = delay_until_ms - time_us / 1000;
    if (n > room || (size_t)(reader->end - reader->at) < n * width)
        return false;
    if (width < BYTES_TICKET || granted > live)
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
        if (ticket->granted && ticket->mode == MODE_UPGRADE)
            result->mode = MODE_UPGRADE;
        /* An ended ticket that is not struck out yet counts no more, unless
         * nobody can say whether it has ended. */
        uint32_t *counted =
            ticket->granted ? &result->holders : &result->waiters;
        if (ticket->ttl_ms == 0 && result->again_ms == 0)
            *counted -= *counted > 0;
        else
            result->ticket_count++;
    }
    return true;
}

bool
record_read_members(struct text message, struct op_members *out,
    struct op_ticket *tickets, uint32_t room)
{
    struct record_reader reader = {message.at, message.at + message.len};
    const char *at = take(&reader, BYTES_MEMBERS);

    if (at == NULL || UINT(at, MEMBERS, KIND) >= MEMBERS_KINDS)
        return false;
    out->kind = (enum members_kind)UINT(at, MEMBERS, KIND);
    out->count = (uint32_t)UINT(at, MEMBERS, COUNT);
    out->sum = (uint32_t)UINT(at, MEMBERS, SUM);
    out->history = (uint32_t)UINT(at, MEMBERS, HISTORY);
    out->fence = DOUBLE(at, MEMBERS, FENCE);
    out->after = DOUBLE(at, MEMBERS, AFTER);
    out->ticket_count = (uint32_t)UINT(at, MEMBERS, TICKETS);
    out->tickets = tickets;
    size_t len = UINT(at, MEMBERS, KEY);
    out->key = text_make(take(&reader, len), len);
    if (out->key.at == NULL || out->ticket_count > room ||
        (out->kind < MEMBERS_PAGE && out->ticket_count != 1))
        return false;
    for (uint32_t i = 0; i < out->ticket_count; i++) {
        at = take(&reader, BYTES_TICKET);
        size_t words = at != NULL ? UINT(at, TICKET, WORDS) : 0;
        if (at == NULL || take(&reader, words) == NULL ||
            !read_ticket(at, BYTES_TICKET + words, 0, &tickets[i]) ||
            tickets[i].arrival == 0)
            return false;
    }
    return true;
}

static bool
read_suspect(struct record_reader *reader, struct op_suspect *suspect)
{
    const char *at = take(reader, BYTES_SUSPECT);

    if (at == NULL || UINT(at, SUSPECT, WRONG) >= WRONG_COUNT)
        return false;
    size_t len = UINT(at, SUSPECT, NAME);
    suspect->flags = (unsigned)UINT(at, SUSPECT, FLAGS);
    suspect->wrong = (enum suspect_wrong)UINT(at, SUSPECT, WRONG);
    suspect->hold_ms = DOUBLE(at, SUSPECT, HELD);
    suspect->wait_ms = DOUBLE(at, SUSPECT, WAITED);
    at = take(reader, len);
    suspect->name = text_make(at, len);
    return at != NULL && len <= PROTO_NAME_MAX;
}

bool
record_read_suspects(struct record_reader *reader, struct op_audit *audit,
    struct op_suspect *suspects, uint32_t room)
{
    const char *at = take(reader, BYTES_AUDITED);

    if (at == NULL)
        return false;
    uint32_t n = (uint32_t)UINT(at, AUDITED, SUSPECTS);
    size_t digits = UINT(at, AUDITED, DIGITS);
    audit->records = (uint32_t)UINT(at, AUDITED, RECORDS);
    audit->holds = (uint32_t)UINT(at, AUDITED, HOLDS);
    audit->waits = (uint32_t)UINT(at, AUDITED, WAITS);
    audit->detached = (uint32_t)UINT(at, AUDITED, DETACHED);
    audit->left = (uint32_t)UINT(at, AUDITED, LEFT);
    at = take(reader, digits);
    if (at == NULL || n > room ||
        !text_to_u64(text_make(at, digits), UINT64_MAX, &audit->cursor))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!read_suspect(reader, &suspects[i]))
            return false;
    audit->suspects = suspects;
    audit->suspect_count = n;
    return true;
}
