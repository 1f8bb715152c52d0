/*
 * The commands on keys: strings, expiry, and of lists and hashes as much as
 * makes a key of the wrong type.
 */
#include "tests/sim/fake_state.h"

static const char wrong_type[] =
    "-WRONGTYPE Operation against a key holding the wrong kind of value";

/* True where it is of that type; else the error is said. */
static bool
type_is(struct call *call, const struct key *key, enum value_type type)
{
    if (key->type == type)
        return true;
    reply_error(call, "%s", wrong_type);
    return false;
}

static void
value_set(struct key *key, const char *at, size_t len)
{
    key->value.len = 0;
    bytes_add(&key->value, at, len);
}

static bool
option_is(const struct call *call, const char *what)
{
    return strcmp(call->command->name, what) == 0;
}

static void
refuse_expiry(struct call *call)
{
    reply_error(
        call, "invalid expire time in '%s' command", call->command->name);
}

/* --- reading -------------------------------------------------------------- */

/* False: it is no string, which has been said. */
static bool
reply_value(struct call *call, const struct key *key)
{
    if (key == NULL) {
        reply_nil(call);
        return true;
    }
    if (!type_is(call, key, VALUE_STRING))
        return false;
    reply_bulk(call, key->value.at, key->value.len);
    return true;
}

void
command_get(struct call *call)
{
    (void)reply_value(call, keys_lookup(call->fake, call->arg[1]));
}

void
command_mget(struct call *call)
{
    reply_array(call, call->count - 1);
    for (size_t i = 1; i < call->count; i++) {
        const struct key *key = keys_lookup(call->fake, call->arg[i]);
        if (key == NULL || key->type != VALUE_STRING)
            reply_nil(call);
        else
            reply_bulk(call, key->value.at, key->value.len);
    }
}

void
command_strlen(struct call *call)
{
    const struct key *key = keys_lookup(call->fake, call->arg[1]);

    if (key == NULL)
        reply_integer(call, 0);
    else if (type_is(call, key, VALUE_STRING))
        reply_integer(call, (int64_t)key->value.len);
}

void
command_getrange(struct call *call)
{
    int64_t start;
    int64_t end;

    if (!arg_number(call, 2, &start) || !arg_number(call, 3, &end))
        return;
    const struct key *key = keys_lookup(call->fake, call->arg[1]);
    if (key == NULL) {
        reply_bulk(call, "", 0);
        return;
    }
    if (!type_is(call, key, VALUE_STRING))
        return;
    int64_t len = (int64_t)key->value.len;
    if (start < 0 && end < 0 && start > end) {
        reply_bulk(call, "", 0);
        return;
    }
    if (start < 0)
        start = start + len < 0 ? 0 : start + len;
    if (end < 0)
        end = end + len < 0 ? 0 : end + len;
    if (end >= len)
        end = len - 1;
    if (start > end || len == 0)
        reply_bulk(call, "", 0);
    else
        reply_bulk(call, key->value.at + start, (size_t)(end - start + 1));
}

void
command_exists(struct call *call)
{
    int64_t count = 0;

    for (size_t i = 1; i < call->count; i++)
        count += keys_lookup(call->fake, call->arg[i]) != NULL;
    reply_integer(call, count);
}

void
command_type(struct call *call)
{
    const struct key *key = keys_lookup(call->fake, call->arg[1]);

    if (key == NULL) {
        reply_status(call, "none");
        return;
    }
    switch (key->type) {
    case VALUE_STRING:
        reply_status(call, "string");
        break;
    case VALUE_LIST:
        reply_status(call, "list");
        break;
    case VALUE_HASH:
        reply_status(call, "hash");
        break;
    }
}

void
command_dbsize(struct call *call)
{
    reply_integer(call, (int64_t)call->fake->keys.count);
}

/* --- SCAN ----------------------------------------------------------------- */

/* The place of a key in the order of cursors, which differs from Redis': 0 is
 * the begin, and the end. */
static uint64_t
scan_place(const struct key *key)
{
    return (key->hash >> 2) + 1;
}

/* The first key from that place on; NULL: there is none. */
static const struct key *
scan_next(const struct keyspace *keys, uint64_t from)
{
    const struct key *next = NULL;

    for (size_t i = 0; i < keys->count; i++)
        if (scan_place(keys->all[i]) >= from &&
            (next == NULL || scan_place(keys->all[i]) < scan_place(next)))
            next = keys->all[i];
    return next;
}

/* Of patterns only those are known that end in their one star. A key that does
 * not fit is not looked at, be it expired. */
static bool
scan_shows(struct fake *fake, const struct key *key, struct text pattern)
{
    struct text name = text_make(key->name, key->name_len);

    return text_starts_with(name, text_make(pattern.at, pattern.len - 1)) &&
           keys_lookup(fake, name) != NULL;
}

#define SCAN_MAX 256

/* Two keys of one place would do harm; it has 62 bits. */
void
command_scan(struct call *call)
{
    const struct keyspace *keys = &call->fake->keys;
    struct text pattern = TEXT("*");
    int64_t count = 10;
    uint64_t cursor;
    const struct key *shown[SCAN_MAX];
    size_t found = 0;
    char digits[20];

    if (!text_to_u64(call->arg[1], UINT64_MAX, &cursor)) {
        reply_error(call, "invalid cursor");
        return;
    }
    for (size_t i = 2; i < call->count; i += 2) {
        bool last = i + 1 == call->count;
        if (!last && text_equal_nocase(call->arg[i], TEXT("match"))) {
            pattern = call->arg[i + 1];
        } else if (!last && text_equal_nocase(call->arg[i], TEXT("count"))) {
            if (!arg_number(call, i + 1, &count))
                return;
        } else {
            count = 0;
        }
        if (count < 1) {
            reply_error(call, "syntax error");
            return;
        }
    }
    require(pattern.len > 0 && pattern.at[pattern.len - 1] == '*' &&
            memchr(pattern.at, '*', pattern.len - 1) == NULL);
    const struct key *key = scan_next(keys, cursor);
    for (int64_t i = 0; key != NULL && i < count && found < SCAN_MAX; i++) {
        uint64_t next = scan_place(key) + 1;
        if (scan_shows(call->fake, key, pattern))
            shown[found++] = key;
        key = scan_next(keys, next);
    }
    cursor = key == NULL ? 0 : scan_place(key);
    reply_array(call, 2);
    reply_bulk(call, digits, text_from_u64(digits, cursor));
    reply_array(call, found);
    for (size_t i = 0; i < found; i++)
        reply_bulk(call, shown[i]->name, shown[i]->name_len);
}

/* --- writing -------------------------------------------------------------- */

struct set_options {
    bool only_new;
    bool only_old;
    bool keep_ttl;
    bool get;      /* the reply is what was there */
    bool seconds;  /* else milliseconds */
    bool absolute; /* else from now */
    size_t expire; /* index of the argument; 0: none */
};

static bool
set_expiry_option(struct call *call, size_t index, struct set_options *options)
{
    static const struct {
        const char *name;
        bool seconds;
        bool absolute;
    } kinds[] = {{"ex", true, false}, {"px", false, false},
        {"exat", true, true}, {"pxat", false, true}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!text_is(call->arg[index], kinds[i].name))
            continue;
        bool again =
            options->expire > 0 && (options->seconds != kinds[i].seconds ||
                                       options->absolute != kinds[i].absolute);
        if (again || options->keep_ttl || index + 1 == call->count)
            return false;
        options->seconds = kinds[i].seconds;
        options->absolute = kinds[i].absolute;
        options->expire = index + 1;
        return true;
    }
    return false;
}

/* False: a syntax error. */
static bool
set_parse(struct call *call, struct set_options *options)
{
    for (size_t i = 3; i < call->count; i++) {
        struct text word = call->arg[i];
        if (text_is(word, "nx") && !options->only_old)
            options->only_new = true;
        else if (text_is(word, "xx") && !options->only_new)
            options->only_old = true;
        else if (text_is(word, "keepttl") && options->expire == 0)
            options->keep_ttl = true;
        else if (text_is(word, "get"))
            options->get = true;
        else if (set_expiry_option(call, i, options))
            i++;
        else
            return false;
    }
    return true;
}

/* A time as SET takes it, in milliseconds since 1970. */
static bool
set_expiry(struct call *call, const struct set_options *options, int64_t *out)
{
    int64_t when;

    if (!arg_number(call, options->expire, &when))
        return false;
    if (when <= 0 || (options->seconds && when > INT64_MAX / 1000)) {
        refuse_expiry(call);
        return false;
    }
    if (options->seconds)
        when *= 1000;
    if (!options->absolute &&
        __builtin_add_overflow(when, fake_now_ms(call->fake), &when)) {
        refuse_expiry(call);
        return false;
    }
    *out = when;
    return true;
}

bool
fake_restore(struct fake *fake, const char *key, size_t key_len,
    const char *value, size_t len)
{
    struct key *found = keys_lookup(fake, text_make(key, key_len));

    if (found != NULL)
        value_set(found, value, len);
    return found != NULL;
}

void
command_set(struct call *call)
{
    struct set_options options = {0};
    int64_t expires_ms = FAKE_NEVER_MS;

    if (!set_parse(call, &options)) {
        reply_error(call, "syntax error");
        return;
    }
    if (options.expire > 0 && !set_expiry(call, &options, &expires_ms))
        return;
    struct key *key = keys_lookup(call->fake, call->arg[1]);
    if (options.get && !reply_value(call, key))
        return;
    if ((options.only_new && key != NULL) ||
        (options.only_old && key == NULL)) {
        if (!options.get)
            reply_nil(call);
        return;
    }
    if (key == NULL)
        key = keys_add(call->fake, call->arg[1]);
    keys_touch(call->fake, key);
    key->type = VALUE_STRING;
    value_set(key, call->arg[2].at, call->arg[2].len);
    if (!options.keep_ttl)
        keys_set_expiry(call->fake, key, expires_ms);
    if (!options.get)
        reply_status(call, "OK");
}

static bool
length_allowed(struct call *call, uint64_t len, uint64_t more)
{
    if (len + more <= FAKE_STRING_MAX)
        return true;
    reply_error(
        call, "string exceeds maximum allowed size (proto-max-bulk-len)");
    return false;
}

void
command_setrange(struct call *call)
{
    int64_t offset;
    struct text value = call->arg[3];

    if (!arg_number(call, 2, &offset))
        return;
    if (offset < 0) {
        reply_error(call, "offset is out of range");
        return;
    }
    struct key *key = keys_lookup(call->fake, call->arg[1]);
    if (key != NULL && !type_is(call, key, VALUE_STRING))
        return;
    if (value.len == 0) {
        reply_integer(call, key != NULL ? (int64_t)key->value.len : 0);
        return;
    }
    if (!length_allowed(call, (uint64_t)offset, value.len))
        return;
    if (key == NULL)
        key = keys_add(call->fake, call->arg[1]);
    keys_touch(call->fake, key);
    size_t end = (size_t)offset + value.len;
    if (end > key->value.len) {
        size_t more = end - key->value.len;
        memset(bytes_room(&key->value, more), 0, more);
        key->value.len = end;
    }
    memcpy(key->value.at + offset, value.at, value.len);
    reply_integer(call, (int64_t)key->value.len);
}

void
command_append(struct call *call)
{
    struct key *key = keys_lookup(call->fake, call->arg[1]);

    if (key != NULL &&
        (!type_is(call, key, VALUE_STRING) ||
            !length_allowed(call, key->value.len, call->arg[2].len)))
        return;
    if (key == NULL)
        key = keys_add(call->fake, call->arg[1]);
    keys_touch(call->fake, key);
    bytes_add(&key->value, call->arg[2].at, call->arg[2].len);
    reply_integer(call, (int64_t)key->value.len);
}

/* INCR, DECR, INCRBY. */
void
command_incr(struct call *call)
{
    int64_t by = option_is(call, "decr") ? -1 : 1;
    int64_t value = 0;
    char digits[24];
    size_t len = 0;

    if (call->count == 3 && !arg_number(call, 2, &by))
        return;
    struct key *key = keys_lookup(call->fake, call->arg[1]);
    if (key != NULL && !type_is(call, key, VALUE_STRING))
        return;
    if (key != NULL &&
        !number_read(text_make(key->value.at, key->value.len), &value)) {
        reply_error(call, "value is not an integer or out of range");
        return;
    }
    if (__builtin_add_overflow(value, by, &value)) {
        reply_error(call, "increment or decrement would overflow");
        return;
    }
    if (key == NULL)
        key = keys_add(call->fake, call->arg[1]);
    keys_touch(call->fake, key);
    if (value < 0)
        digits[len++] = '-';
    len += text_from_u64(
        digits + len, value < 0 ? -(uint64_t)value : (uint64_t)value);
    value_set(key, digits, len);
    reply_integer(call, value);
}

void
command_del(struct call *call)
{
    int64_t count = 0;

    for (size_t i = 1; i < call->count; i++) {
        struct key *key = keys_lookup(call->fake, call->arg[i]);
        if (key == NULL)
            continue;
        keys_remove(call->fake, key);
        count++;
    }
    reply_integer(call, count);
}

void
command_flushall(struct call *call)
{
    if (call->count > 2 ||
        (call->count == 2 && !text_is(call->arg[1], "sync") &&
            !text_is(call->arg[1], "async"))) {
        reply_error(call, "syntax error");
        return;
    }
    keys_clear(call->fake);
    reply_status(call, "OK");
}

/* --- expiry --------------------------------------------------------------- */

struct expire_options {
    bool none;   /* NX: only where there is no expiry */
    bool some;   /* XX */
    bool later;  /* GT */
    bool sooner; /* LT */
};

static bool
expire_parse(struct call *call, struct expire_options *options)
{
    for (size_t i = 3; i < call->count; i++) {
        struct text word = call->arg[i];
        if (text_is(word, "nx")) {
            options->none = true;
        } else if (text_is(word, "xx")) {
            options->some = true;
        } else if (text_is(word, "gt")) {
            options->later = true;
        } else if (text_is(word, "lt")) {
            options->sooner = true;
        } else {
            reply_error(call, "Unsupported option %.*s",
                (int)strnlen(word.at, word.len), word.at);
            return false;
        }
    }
    if (options->none && (options->some || options->later || options->sooner)) {
        reply_error(call, "NX and XX, GT or LT options at the same time are "
                          "not compatible");
        return false;
    }
    if (options->later && options->sooner) {
        reply_error(
            call, "GT and LT options at the same time are not compatible");
        return false;
    }
    return true;
}

static bool
expire_wanted(const struct expire_options *options, int64_t old, int64_t when)
{
    bool has = old != FAKE_NEVER_MS;

    return !(options->none && has) && !(options->some && !has) &&
           !(options->later && (!has || when <= old)) &&
           !(options->sooner && has && when >= old);
}

/* EXPIRE, PEXPIRE and those with AT. */
void
command_expire(struct call *call)
{
    struct expire_options options = {0};
    bool seconds = call->command->name[0] == 'e';
    bool absolute = option_is(call, "expireat") || option_is(call, "pexpireat");
    int64_t base = absolute ? 0 : fake_now_ms(call->fake);
    int64_t when;

    if (!expire_parse(call, &options) || !arg_number(call, 2, &when))
        return;
    if (seconds && (when > INT64_MAX / 1000 || when < INT64_MIN / 1000)) {
        refuse_expiry(call);
        return;
    }
    if (seconds)
        when *= 1000;
    if (when > INT64_MAX - base) {
        refuse_expiry(call);
        return;
    }
    when += base;
    struct key *key = keys_lookup(call->fake, call->arg[1]);
    if (key == NULL || !expire_wanted(&options, key->expires_ms, when)) {
        reply_integer(call, 0);
        return;
    }
    if (when <= fake_now_ms(call->fake)) {
        keys_remove(call->fake, key);
    } else {
        keys_touch(call->fake, key);
        keys_set_expiry(call->fake, key, when);
    }
    reply_integer(call, 1);
}

void
command_persist(struct call *call)
{
    struct key *key = keys_lookup(call->fake, call->arg[1]);

    if (key == NULL || key->expires_ms == FAKE_NEVER_MS) {
        reply_integer(call, 0);
        return;
    }
    keys_touch(call->fake, key);
    keys_set_expiry(call->fake, key, FAKE_NEVER_MS);
    reply_integer(call, 1);
}

/* TTL, PTTL, EXPIRETIME, PEXPIRETIME. */
void
command_ttl(struct call *call)
{
    const struct key *key = keys_lookup(call->fake, call->arg[1]);
    bool absolute =
        option_is(call, "expiretime") || option_is(call, "pexpiretime");

    if (key == NULL || key->expires_ms == FAKE_NEVER_MS) {
        reply_integer(call, key == NULL ? -2 : -1);
        return;
    }
    int64_t ttl = key->expires_ms;
    if (!absolute)
        ttl -= fake_now_ms(call->fake);
    if (ttl < 0)
        ttl = 0;
    if (call->command->name[0] != 'p')
        ttl = (int64_t)(((uint64_t)ttl + 500) / 1000);
    reply_integer(call, ttl);
}

/* --- lists and hashes ----------------------------------------------------- */

/* The element at `*at`, which moves on; false at the end. */
static bool
element_next(const struct key *key, size_t *at, struct text *out)
{
    uint32_t len;

    if (*at == key->value.len)
        return false;
    memcpy(&len, key->value.at + *at, sizeof(len));
    *out = text_make(key->value.at + *at + sizeof(len), len);
    *at += sizeof(len) + len;
    return true;
}

static void
element_add(struct bytes *bytes, struct text element)
{
    uint32_t len = (uint32_t)element.len;

    bytes_add(bytes, &len, sizeof(len));
    bytes_add(bytes, element.at, element.len);
}

static int64_t
element_count(const struct key *key)
{
    size_t at = 0;
    struct text element;
    int64_t count = 0;

    while (element_next(key, &at, &element))
        count++;
    return count;
}

/* LPUSH, RPUSH. */
void
command_lpush(struct call *call)
{
    struct key *key = keys_lookup(call->fake, call->arg[1]);

    if (key != NULL && !type_is(call, key, VALUE_LIST))
        return;
    if (key == NULL) {
        key = keys_add(call->fake, call->arg[1]);
        key->type = VALUE_LIST;
    }
    keys_touch(call->fake, key);
    for (size_t i = 2; i < call->count; i++) {
        struct bytes whole = {0};
        if (option_is(call, "rpush")) {
            element_add(&key->value, call->arg[i]);
            continue;
        }
        element_add(&whole, call->arg[i]);
        bytes_add(&whole, key->value.at, key->value.len);
        bytes_fini(&key->value);
        key->value = whole;
    }
    reply_integer(call, element_count(key));
}

void
command_llen(struct call *call)
{
    const struct key *key = keys_lookup(call->fake, call->arg[1]);

    if (key == NULL)
        reply_integer(call, 0);
    else if (type_is(call, key, VALUE_LIST))
        reply_integer(call, element_count(key));
}

/* The value of a field, and where its pair begins and ends. */
static bool
hash_find(const struct key *key, struct text field, struct text *value,
    size_t *from, size_t *to)
{
    struct text name;
    size_t at = 0;

    *from = 0;
    while (element_next(key, &at, &name)) {
        bool more = element_next(key, &at, value);
        require(more);
        *to = at;
        if (text_equal(name, field))
            return true;
        *from = at;
    }
    return false;
}

/* True where the field is new. */
static bool
hash_set(struct key *key, struct text field, struct text value)
{
    struct bytes whole = {0};
    struct text old;
    size_t from;
    size_t to;

    if (!hash_find(key, field, &old, &from, &to)) {
        element_add(&key->value, field);
        element_add(&key->value, value);
        return true;
    }
    bytes_add(&whole, key->value.at, from);
    element_add(&whole, field);
    element_add(&whole, value);
    bytes_add(&whole, key->value.at + to, key->value.len - to);
    bytes_fini(&key->value);
    key->value = whole;
    return false;
}

void
command_hset(struct call *call)
{
    int64_t count = 0;

    if (call->count % 2 == 1) {
        reply_error(call, "wrong number of arguments for 'hset' command");
        return;
    }
    struct key *key = keys_lookup(call->fake, call->arg[1]);
    if (key != NULL && !type_is(call, key, VALUE_HASH))
        return;
    if (key == NULL) {
        key = keys_add(call->fake, call->arg[1]);
        key->type = VALUE_HASH;
    }
    keys_touch(call->fake, key);
    for (size_t i = 2; i < call->count; i += 2)
        count += hash_set(key, call->arg[i], call->arg[i + 1]);
    reply_integer(call, count);
}

void
command_hget(struct call *call)
{
    const struct key *key = keys_lookup(call->fake, call->arg[1]);
    struct text value;
    size_t from;
    size_t to;

    if (key == NULL) {
        reply_nil(call);
        return;
    }
    if (!type_is(call, key, VALUE_HASH))
        return;
    if (hash_find(key, call->arg[2], &value, &from, &to))
        reply_bulk(call, value.at, value.len);
    else
        reply_nil(call);
}
