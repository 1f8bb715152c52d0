/*
 * Calls of the lock scripts, right and wrong. They have tickets of the fake's
 * records, of each kind of lock, of sessions that have moved, and several in a
 * call. There are leases that have run out, words, watches, broken locks,
 * unknown flags, and spoilt records.
 *
 * The scripts are the program's, but that they take the header's expected time
 * for the clock, so that leases end without waiting.
 */
#include "tests/sim/fake_check.h"

#include "daemon/store/wire/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCKS   24
#define OPS_MAX 8

_Static_assert(AT_HEADER_EXPECTED + 1 == 29, "as clock_of_header has it");
static const char clock_call[] = "call('TIME')";
static const char clock_of_header[] =
    "(function() local us = struct.unpack('<d', ARGV[1], 29) return "
    "{math.floor(us / 1000000), us % 1000000} end)()";

void
locks_init(struct check *check)
{
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        struct bytes *text = &check->script[i];
        const char *rest = scripts[i].body;
        const char *at = strstr(rest, clock_call);
        if (at == NULL) {
            check_fail("%s does not ask for the time", scripts[i].name);
            return; /* for tools that do not know that it does not return */
        }
        bytes_add(text, rest, (size_t)(at - rest));
        bytes_add(text, clock_of_header, sizeof(clock_of_header) - 1);
        rest = at + sizeof(clock_call) - 1;
        bytes_add(text, rest, strlen(rest));
        sha1_hex(text->at, text->len, check->sha[i]);
    }
}

/* --- numbers, little-endian ----------------------------------------------- */

static void
put(struct bytes *out, const void *from, size_t len)
{
    bytes_add(out, from, len);
}

static void
put_u8(struct bytes *out, unsigned value)
{
    uint8_t byte = (uint8_t)value;
    put(out, &byte, 1);
}

static void
put_u16(struct bytes *out, unsigned value)
{
    uint16_t word = (uint16_t)value;
    put(out, &word, 2);
}

static void
put_u32(struct bytes *out, uint64_t value)
{
    uint32_t word = (uint32_t)value;
    put(out, &word, 4);
}

static void
put_double(struct bytes *out, double value)
{
    put(out, &value, 8);
}

static uint32_t
get_u32(const char *at)
{
    uint32_t value = 0;
    memcpy(&value, at, 4);
    return value;
}

static double
get_double(const char *at)
{
    double value;
    memcpy(&value, at, 8);
    return value;
}

/* --- known facts of a lock ------------------------------------------------ */

/* Flags of acquire, and of renew. */
enum {
    ACQUIRE_RETRY = 1,
    ACQUIRE_NO_QUEUE = 2,
    ACQUIRE_MOVES = 4,
    ACQUIRE_TELL = 8
};

enum {
    RENEW_LOOK = 1,
    RENEW_SETS_END = 2,
    RENEW_MOVES = 4,
    RENEW_TELL = 8,
    RENEW_SHARES = 16,
    RENEW_WATCH = 32
};

/* A ticket that may be there. */
struct standing {
    uint32_t lock;
    char identity[BYTES_IDENTITY];
    char broker[8];
    uint32_t place;
    double arrival;
    double fence;
    bool found;
};

static void
identity_of(unsigned number, char out[BYTES_IDENTITY])
{
    char text[40];

    memset(out, 0, BYTES_IDENTITY);
    out[0] = 1;
    snprintf(text, sizeof(text), "session-%08u", number);
    memcpy(out + AT_IDENTITY_SESSION, text, 16);
    snprintf(text, sizeof(text), "r%07u", number);
    memcpy(out + AT_IDENTITY_REQUEST, text, 8);
}

/* Some ticket of the record, mostly the first. */
static void
standing_read(struct check *check, const struct fake *fake, struct text key,
    struct standing *out)
{
    size_t len = 0;
    const char *record = fake_get(fake, key.at, key.len, &len);

    if (record == NULL || len < BYTES_HEAD + BYTES_TICKET)
        return;
    uint16_t width;
    memcpy(&width, record + AT_HEAD_WIDTH, 2);
    uint32_t stored = get_u32(record + AT_HEAD_STORED);
    uint32_t first = get_u32(record + AT_HEAD_FIRST);
    if (width < BYTES_TICKET || stored == 0)
        return;
    uint32_t place = first;
    if (check_chance(check, 60))
        place = (uint32_t)check_below(check, stored);
    if (place >= stored ||
        (uint64_t)BYTES_HEAD + (uint64_t)(place + 1) * width > len)
        return;
    const char *ticket = record + BYTES_HEAD + (size_t)place * width;
    memcpy(out->identity, ticket + AT_TICKET_IDENTITY, BYTES_IDENTITY);
    memcpy(out->broker, ticket + AT_TICKET_BROKER, 8);
    out->place = place;
    out->arrival = get_double(ticket + AT_TICKET_ARRIVAL);
    out->fence = get_double(ticket + AT_TICKET_FENCE);
    out->found = true;
}

static void
standing_choose(struct check *check, const struct fake *fake, struct text key,
    bool living, struct standing *out)
{
    const char *name = key.at != NULL ? strchr(key.at, '{') : NULL;

    require(name != NULL);
    memset(out, 0, sizeof(*out));
    out->lock = (uint32_t)strtoul(name + 1, NULL, 10);
    identity_of((unsigned)check_below(check, 20), out->identity);
    memcpy(out->broker, "broker-", 7);
    out->broker[7] = (char)('0' + check_below(check, 3));
    if (living)
        standing_read(check, fake, key, out);
    if (check_chance(check, 10)) /* its session goes on, or has gone on */
        out->identity[0] = (char)(1 + check_below(check, 4));
    if (check_chance(check, 4))
        out->arrival += 1;
    if (check_chance(check, 4))
        out->fence -= 1;
    if (check_chance(check, 10))
        out->place = (uint32_t)check_below(check, 40);
    if (check_chance(check, 20))
        out->arrival = 0;
    if (check_chance(check, 20))
        out->fence = 0;
}

/* --- arguments ------------------------------------------------------------ */

static void
put_header(struct check *check, struct bytes *out, const char broker[8])
{
    put_u8(out, 1);
    put_u8(out, 0);
    put_u16(out, 1500);
    put(out, broker, 8);
    put_double(out, (double)(check->now_us - 5000));
    put_double(out, 86400000);
    put_double(out, (double)check->now_us);
    put_u32(out, check_chance(check, 90) ? 14 : 3);
    put(out, check->repl_id, 40);
    put(out, "holdfast:broker:", 16);
}

static double
some_seen(struct check *check)
{
    uint64_t kind = check_below(check, 100);

    if (kind < 95)
        return 0;
    if (kind < 99)
        return (double)check->now_us + (double)check_below(check, 200000000) -
               1e8;
    return (double)check->now_us + 2e11;
}

static double
some_latest(struct check *check)
{
    uint64_t now_ms = check->now_us / 1000;

    return check_chance(check, 2) ? (double)(now_ms - 1) : 4503599627370496.0;
}

static double
some_hold(struct check *check)
{
    static const double holds[] = {500, 4000, 60000};

    return check_chance(check, 90) ? 0 : holds[check_below(check, 3)];
}

static uint32_t
some_lease(struct check *check)
{
    return check_chance(check, 30) ? 2000 : 6000;
}

/* mode, words, permits, limit: by the kind of the lock, which all agree on but
 * for a few. */
static void
put_kind(struct check *check, struct bytes *out, uint32_t lock, size_t words)
{
    uint32_t kind =
        check_chance(check, 97) ? lock % 4 : (uint32_t)check_below(check, 4);
    uint32_t limit = kind > 1 ? 3 * kind - 3 : 0;

    put_u8(out, kind == 1 && check_chance(check, 75));
    put_u16(out, (unsigned)words);
    put_u32(out, limit == 0 ? 1 : 1 + check_below(check, limit));
    put_u32(out, limit);
}

static uint32_t
some_delay(struct check *check)
{
    return check_chance(check, 85) ? 0 : 1 + (uint32_t)check_below(check, 9000);
}

static void
put_acquire(struct check *check, struct bytes *out, const struct standing *who)
{
    static const char words[] = "\1o\4name\4note";
    unsigned flags = 0;
    size_t len = check_chance(check, 90) ? 0 : sizeof(words) - 1;
    char note[100];

    if (who->found || check_chance(check, 20))
        flags |= check_chance(check, 50) ? ACQUIRE_RETRY : ACQUIRE_MOVES;
    if (check_chance(check, 15))
        flags |= ACQUIRE_NO_QUEUE;
    if (check_chance(check, 15))
        flags |= ACQUIRE_TELL;

    if (check_chance(check, 1))
        flags = (unsigned)check_below(check, 256);
    memset(note, 'n', sizeof(note));
    bool is_long = len > 0 && check_chance(check, 30);
    put(out, who->identity, 36);
    put_u8(out, flags);
    put_kind(check, out, who->lock, is_long ? sizeof(note) : len);
    put_u32(out, some_lease(check));
    put_u32(out, some_delay(check));
    put_double(out, some_hold(check));
    put_double(out, some_latest(check));
    put_double(out, some_seen(check));
    put(out, is_long ? note : words, is_long ? sizeof(note) : len);
}

static void
put_release(struct check *check, struct bytes *out, const struct standing *who)
{
    put(out, who->identity, 36);
    put_u32(out, who->place);
    put_double(out, who->arrival);
    put_double(out, who->fence);
    put_double(out, some_seen(check));
    put_u8(out, check_chance(check, 40)); /* unclean */
}

static void
put_renew(struct check *check, struct bytes *out, const struct standing *who)
{
    static const unsigned some[] = {RENEW_LOOK, RENEW_LOOK | RENEW_WATCH,
        RENEW_SETS_END, RENEW_MOVES, RENEW_MOVES, RENEW_TELL, RENEW_SHARES,
        RENEW_SHARES | RENEW_MOVES};
    unsigned flags = 0;

    if (check_chance(check, 30))
        flags = some[check_below(check, sizeof(some) / sizeof(*some))];
    if (check_chance(check, 1))
        flags = (unsigned)check_below(check, 65536);
    put(out, who->identity, 36);
    put_u32(out, who->place);
    put_double(out, who->arrival);
    put_double(out, who->fence);
    put_u16(out, flags);
    put_u32(out, some_lease(check));
    put_double(out, some_hold(check));
    put_double(out, some_latest(check));
    put_double(out, some_seen(check));
}

static void
put_op(struct check *check, struct bytes *out, enum script_id script,
    const struct standing *who)
{
    switch (script) {
    case SCRIPT_ACQUIRE:
        put_acquire(check, out, who);
        break;
    case SCRIPT_RELEASE:
        put_release(check, out, who);
        break;
    case SCRIPT_RENEW:
        put_renew(check, out, who);
        break;
    case SCRIPT_INSPECT:
        put_u32(out, check_below(check, 20));
        break;
    case SCRIPT_BREAK:
        put_double(out, check_chance(check, 50) ? 0 : who->fence);
        break;
    case SCRIPT_AUDIT: /* has no lock */
    case SCRIPT_COUNT:
        break;
    }
}

static enum script_id
some_script(struct check *check)
{
    uint64_t kind = check_below(check, 100);

    if (kind < 40)
        return SCRIPT_ACQUIRE;
    if (kind < 68)
        return SCRIPT_RELEASE;
    if (kind < 95)
        return SCRIPT_RENEW;
    return kind < 97 ? SCRIPT_BREAK : SCRIPT_INSPECT;
}

/* Bytes of a record are written over, or the key is something else. */
static void
make_damage(struct check *check)
{
    struct words *words = &check->words;
    uint64_t lock = check_below(check, LOCKS);
    char junk[8];

    for (size_t i = 0; i < sizeof(junk); i++)
        junk[i] = (char)(check_chance(check, 40) ? 0 : check_below(check, 256));
    words_begin(words);
    switch (check_below(check, 6)) {
    case 0:
        words_string(words, "SET");
        words_format(words, "holdfast:{%" PRIu64 "}", lock);
        words_add(words, junk, check_below(check, 9));
        return;
    case 1:
        words_string(words, "LPUSH");
        words_format(words, "holdfast:{%" PRIu64 "}", lock);
        words_string(words, "x");
        return;
    case 2:
    case 3:
        words_string(words, "SETRANGE");
        words_format(words, "holdfast:{%" PRIu64 "}", lock);
        words_format(words, "%" PRIu64, check_below(check, 320));
        words_add(words, junk, check_below(check, 9));
        return;
    default:
        words_string(words, "DEL");
        words_format(words, "holdfast:{%" PRIu64 "}", lock);
        return;
    }
}

void
make_locks(struct check *check, const struct fake *fake)
{
    struct words *words = &check->words;
    struct text keys[OPS_MAX] = {{0}};
    struct bytes bytes = {0};
    struct standing who;
    enum script_id script = some_script(check);
    size_t count = 1;

    check->by_kind[0]++;
    if (check_chance(check, 3)) {
        make_damage(check);
        return;
    }
    check->now_us += check_below(check, 40000);
    if (check_chance(check, 1))
        check->now_us += check_below(check, 7000000);
    if (check_chance(check, 12) && script != SCRIPT_INSPECT &&
        script != SCRIPT_BREAK)
        count += check_below(check, OPS_MAX);
    if (count > OPS_MAX)
        count = OPS_MAX;
    words_begin(words);
    words_string(words, "EVALSHA");
    words_string(words, check->sha[script]);
    words_format(words, "%zu", count);
    for (size_t i = 0; i < count; i++) {
        words_format(
            words, "holdfast:{%" PRIu64 "}", check_below(check, LOCKS));
        keys[i] = words->word[words->count - 1];
    }
    bool living = script != SCRIPT_ACQUIRE || check_chance(check, 20);
    if (living && check_chance(check, 10))
        living = false;
    standing_choose(check, fake, keys[0], living, &who);
    put_header(check, &bytes, who.broker);
    words_add(words, bytes.at, bytes.len);
    bytes.len = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            standing_choose(check, fake, keys[i], living, &who);
        put_op(check, &bytes, script, &who);
        if (script == SCRIPT_RENEW && i + 1 < count)
            continue; /* it has one argument for all */
        if (check_chance(check, 1) && bytes.len > 0) /* too short */
            bytes.len = check_below(check, bytes.len);
        words_add(words, bytes.at, bytes.len);
        bytes.len = 0;
    }
    bytes_fini(&bytes);
}
