/*
 * The bytes that the scripts of lua/ take and give: arguments of an operation,
 * results, and a lock's record as inspect.lua shows it. record.def has their
 * layout.
 *
 * See DESIGN.md D1.3.
 */
#ifndef HOLDFAST_STORE_WIRE_RECORD_H
#define HOLDFAST_STORE_WIRE_RECORD_H

#include "daemon/op/op.h"
#include "daemon/store/wire/scripts.h"

struct op_suspect;

#define RECORD_ID_BYTES 40 /* a replication id, hex */

/* BYTES_HEAD is the size of the record HEAD of record.def, AT_HEAD_FENCE the
 * offset of its field FENCE. */
enum {
    BYTES_B = 1,
    BYTES_I2 = 2,
    BYTES_I4 = 4,
    BYTES_d = 8,
    BYTES_c8 = 8,
    BYTES_c16 = 16,
    BYTES_c40 = RECORD_ID_BYTES,
#define RECORD(name) BEFORE_##name = -1,
#define FIELD(record, field, type) \
    AT_##record##_##field,         \
        LAST_##record##_##field = AT_##record##_##field + BYTES_##type - 1,
#define END(name) BYTES_##name,
#include "daemon/store/wire/record.def"
};

/* The broker, in each call. */
struct record_header {
    const char *broker;  /* ref: 8 characters */
    const char *id;      /* ref: replication id last seen of the node */
    struct text channel; /* ref: prefix of the brokers' channels */
    uint64_t fence_clock_us;
    uint64_t expected_us; /* from TIME */
    uint64_t forget_after_ms;
    uint32_t waiters_max;
    uint32_t settles_ms; /* until it is settled with the node; 0: it is */
    uint32_t steady_ms;  /* likewise with the node's clock */
    uint32_t within_us;  /* TIME may be so far from expected_us */
    uint32_t idle_after_ms;
    uint32_t expiry_ms;
    uint8_t number; /* of a node of a quorum, from 1 on; 0: it is none */
};

/* How many bytes record_write_header() writes. */
size_t record_header_bytes(const struct record_header *header);

/* Writes the header of a call's arguments. `out` has room for
 * record_header_bytes(). */
void record_write_header(const struct record_header *header, char *out);

/* The script that runs operations of that kind, or SCRIPT_NONE. */
enum script_id record_script(enum op_kind kind);

/* Bytes of the operation's own argument; it has a script. */
size_t record_op_bytes(const struct op *op);

/* Writes that argument, and returns its end. `now_us` is the broker's clock.
 * Acquire and renew do nothing after `latest_ms` of the node's clock. */
char *record_write_op(
    const struct op *op, uint64_t now_us, uint64_t latest_ms, char *out);

/* The rest of a hold that ends by itself, in ms; 0: it does not. */
uint64_t record_hold_left_ms(const struct op *op, uint64_t now_us);

/* The start of each reply. */
struct record_reply {
    uint64_t time_us; /* TIME of the node; 0: the script did not ask */
    char id[RECORD_ID_BYTES + 1];
};

struct record_reader {
    const char *at;
    const char *end;
};

/* Reads the head of a script's reply and sets the reader behind it. False: the
 * reply is malformed. */
bool record_read_reply(
    struct record_reader *reader, struct text reply, struct record_reply *out);

/* The node's replication id as the script saw it; empty: it did not ask. */
struct text record_reply_id(struct text reply);

/* Whether something was granted: to other tickets, or, where an OK says so, to
 * one of the `count` operations; or the bytes make no sense. */
bool record_grants(struct text reply, uint32_t count, bool ok_grants);

enum record_status {
    RECORD_OK,
    RECORD_WAITING,
    RECORD_BUSY,
    RECORD_FULL,
    RECORD_LATE,
    RECORD_GONE,
    RECORD_NEWER,
    RECORD_CORRUPT,
    RECORD_CONFLICT,
    RECORD_BROKEN,
    RECORD_MOVED,
    RECORD_CHANGED, /* the node's id is not the one in the header */
    RECORD_MISSING,
    RECORD_GRACE,
};

/*
 * Reads one operation's result into op->result (not its sent_us); its grants go
 * to `grants`, of which there are `room`. Damage of the record's tickets is no
 * other operation's matter. False: the bytes make no sense, nor do those that
 * follow.
 */
bool record_read_result(struct record_reader *reader, struct op *op,
    enum record_status *status, struct op_grant *grants, uint32_t room);

/* Reads what inspect.lua adds to its result; words refer to the reply. A record
 * that makes no sense is an answer, too. */
bool record_read_tickets(struct record_reader *reader, struct op *op,
    uint64_t time_us, struct op_ticket *tickets, uint32_t room);

/* Reads a message about holders; its words refer to `message`. False: it makes
 * no sense. */
bool record_read_members(struct text message, struct op_members *out,
    struct op_ticket *tickets, uint32_t room);

/* Likewise what audit.lua adds. */
bool record_read_suspects(struct record_reader *reader, struct op_audit *audit,
    struct op_suspect *suspects, uint32_t room);

#endif
