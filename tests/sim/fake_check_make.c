/*
 * Random commands for both servers: plain ones of each kind, right and wrong,
 * and small scripts of random expressions. These test the ways of values
 * between Redis and Lua, and the texts of errors.
 *
 * Nothing is made whose answer depends on the time but for lives of keys, of
 * which those that end at all end much later than the run.
 */
#include "tests/sim/fake_check.h"

#include <inttypes.h>

#define PICK(check, list) \
    ((list)[check_below((check), sizeof(list) / sizeof((list)[0]))])

static const char *const names[] = {"k0", "k1", "k2", "k3", "k4", "k5", "n0",
    "n1", "l0", "l1", "h0", "h1", "holdfast:{0}", "holdfast:{1}", ""};
static const char *const values[] = {"", "v", "value", "10", "-3", "007",
    "9223372036854775807", "-9223372036854775808", "3.5", " 1", "x y",
    "9223372036854775808", "0", "+1", "a\r\nb", "{\"json\"}"};
static const char *const integers[] = {"0", "1", "2", "5", "-1", "-2", "-100",
    "100", "4000", "x", "", "1.5", "9223372036854775807",
    "-9223372036854775808", "9223372036854775808", "01", "-0", "536870912",
    "600000000"};
static const char *const small_offsets[] = {"0", "1", "7", "100", "3000", "-1",
    "536870912", "9223372036854775807", "x", "536870911x", "2", "30"};
static const char *const lives[] = {"10000000", "20000000", "-1", "0", "x",
    "9223372036854775807", "9223372036854775", "-9223372036854775808", "",
    "9223372036854775808", "1.5"};
static const char *const instants[] = {"4000000000000", "4100000000000",
    "4200000000000", "4000000000", "4100000000", "-5", "1", "0", "x",
    "9223372036854775807", "9223372036854775"};
static const char *const futures[] = {
    "4000000000000", "4100000000000", "0", "-7", "x"};
static const char *const fields[] = {"f", "g", "h", ""};

/* A time. MIGRATE takes how long a key has, and where that is added to a later
 * time it may be beyond all numbers. */
static void
add_time(struct check *check, const char *time)
{
    bool far = check->in_cluster && strlen(time) > 15;

    words_string(&check->words, far ? "4000000000" : time);
}

/* The letters of a template of arguments. */
static void
add_argument(struct check *check, char kind)
{
    struct words *words = &check->words;

    switch (kind) {
    case 'k':
        words_string(words, PICK(check, names));
        break;
    case 'v':
        words_string(words, PICK(check, values));
        break;
    case 'i':
        words_string(words, PICK(check, integers));
        break;
    case 'o':
        words_string(words, PICK(check, small_offsets));
        break;
    case 't':
        add_time(check, PICK(check, lives));
        break;
    case 'a':
        add_time(check, PICK(check, instants));
        break;
    case 'f':
        words_string(words, PICK(check, fields));
        break;
    default:
        require(kind == '*');
        for (uint64_t i = check_below(check, 4); i > 0; i--)
            add_argument(check, 'k');
        break;
    }
}

struct plain {
    const char *name;
    const char *args;
    enum match match;
};

static const struct plain plains[] = {{"GET", "k", MATCH_EXACT},
    {"SET", "kv", MATCH_EXACT}, {"STRLEN", "k", MATCH_EXACT},
    {"GETRANGE", "kii", MATCH_EXACT}, {"SETRANGE", "kov", MATCH_EXACT},
    {"APPEND", "kv", MATCH_EXACT}, {"DEL", "k*", MATCH_EXACT},
    {"UNLINK", "k*", MATCH_EXACT}, {"EXISTS", "k*", MATCH_EXACT},
    {"TYPE", "k", MATCH_EXACT}, {"INCR", "k", MATCH_EXACT},
    {"DECR", "k", MATCH_EXACT}, {"INCRBY", "ki", MATCH_EXACT},
    {"MGET", "k*", MATCH_EXACT}, {"EXPIRE", "kt", MATCH_EXACT},
    {"PEXPIRE", "kt", MATCH_EXACT}, {"EXPIREAT", "ka", MATCH_EXACT},
    {"PEXPIREAT", "ka", MATCH_EXACT}, {"TTL", "k", MATCH_SECONDS},
    {"PTTL", "k", MATCH_MS}, {"EXPIRETIME", "k", MATCH_SECONDS},
    {"PEXPIRETIME", "k", MATCH_MS}, {"PERSIST", "k", MATCH_EXACT},
    {"LPUSH", "kv", MATCH_EXACT}, {"RPUSH", "kvv", MATCH_EXACT},
    {"LLEN", "k", MATCH_EXACT}, {"HSET", "kfv", MATCH_EXACT},
    {"HSET", "kfvfv", MATCH_EXACT}, {"HGET", "kf", MATCH_EXACT},
    {"DBSIZE", "", MATCH_EXACT}, {"PING", "", MATCH_EXACT},
    {"PING", "v", MATCH_EXACT}, {"ECHO", "v", MATCH_EXACT},
    {"TIME", "", MATCH_SHAPE}, {"SCRIPT", "v", MATCH_EXACT},
    {"SCRIPT", "", MATCH_EXACT}, {"NOSUCH", "v*", MATCH_EXACT},
    {"GETT", "", MATCH_EXACT}, {"EVALSHA", "vi", MATCH_EXACT},
    {"EVAL", "v", MATCH_EXACT}};

static void
make_set(struct check *check)
{
    static const char *const options[] = {"NX", "xx", "KEEPTTL", "keepttl",
        "EX", "px", "EXAT", "PXAT", "nx", "GET", "get", "ZZ", ""};
    struct words *words = &check->words;

    words_string(words, "SET");
    add_argument(check, 'k');
    add_argument(check, 'v');
    for (uint64_t i = 1 + check_below(check, 2); i > 0; i--) {
        const char *option = PICK(check, options);
        words_string(words, option);
        if (strcmp(option, "EXAT") == 0 || strcmp(option, "PXAT") == 0)
            words_string(words, PICK(check, futures));
        else if (option[0] == 'E' || option[0] == 'p')
            add_argument(check, 't');
    }
}

static void
make_expire(struct check *check)
{
    static const char *const kinds[] = {"NX", "xx", "GT", "lt", "ZZ"};
    struct words *words = &check->words;

    words_string(words, check_chance(check, 50) ? "PEXPIREAT" : "EXPIREAT");
    add_argument(check, 'k');
    add_argument(check, 'a');
    for (uint64_t i = 1 + check_below(check, 2); i > 0; i--)
        words_string(words, PICK(check, kinds));
}

static void
make_publish(struct check *check)
{
    static const char *const channels[] = {"news", "nobody", ""};

    words_string(&check->words, "PUBLISH");
    words_string(&check->words, PICK(check, channels));
    add_argument(check, 'v');
}

/* All keys: in which order, and in what portions, Redis says otherwise. */
static void
make_scan(struct check *check)
{
    static const char script[] =
        "local c, seen, found = '0', {}, {} "
        "repeat local r = redis.call('SCAN', c, 'MATCH', ARGV[1], "
        "'COUNT', ARGV[2]) c = r[1] "
        "for _, key in ipairs(r[2]) do if not seen[key] then "
        "seen[key] = true found[#found + 1] = key end end "
        "until c == '0' table.sort(found) return found";
    static const char *const patterns[] = {"*", "k*", "holdfast:*", "nosuch*"};
    struct words *words = &check->words;

    words_string(words, "EVAL");
    words_string(words, script);
    words_string(words, "0");
    words_string(words, PICK(check, patterns));
    words_format(words, "%d", 1 + (int)check_below(check, 20));
}

/* A wrong word; a past end, of the right word. */
static void
make_odd_scan(struct check *check)
{
    static const char *const cursors[] = {"x", "0", "7z"};
    static const char *const options[] = {"COUNT", "count", "ZZ"};
    static const char *const numbers[] = {"0", "-3", "x", "100000"};
    struct words *words = &check->words;

    words_string(words, "SCAN");
    words_string(words, PICK(check, cursors));
    words_string(words, "MATCH");
    words_string(words, "nosuch*");
    words_string(words, PICK(check, options));
    words_string(words, PICK(check, numbers));
}

/* A word more, or one less. */
static void
make_wrong(struct check *check)
{
    struct words *words = &check->words;

    words->match = MATCH_EXACT;
    if (words->count > 1 && check_chance(check, 50))
        words->count--;
    else
        add_argument(check, 'v');
    if (text_is(words->word[0], "pttl") || text_is(words->word[0], "ttl"))
        words->match = MATCH_MS;
}

void
make_plain(struct check *check)
{
    struct words *words = &check->words;
    uint64_t kind = check_below(check, 100);

    check->by_kind[1]++;
    words_begin(words);
    if (kind < 10) {
        make_set(check);
    } else if (kind < 15) {
        make_expire(check);
    } else if (kind < 18) {
        make_publish(check);
    } else if (kind < 19) {
        if (check_chance(check, 50))
            make_scan(check);
        else
            make_odd_scan(check);
    } else if (kind < 20) {
        words_string(words, "INFO");
        words_string(words, "replication");
        if (check->is_replica)
            words->match = MATCH_SHAPE;
    } else {
        const struct plain *plain = &PICK(check, plains);
        words_string(words, plain->name);
        words->match = plain->match;
        for (const char *at = plain->args; *at != '\0'; at++)
            add_argument(check, *at);
        if (check_chance(check, 4))
            make_wrong(check);
    }
}

/* --- expressions ---------------------------------------------------------- */

static void add_expression(struct check *check, struct bytes *out, int depth);

static void
add(struct bytes *out, const char *text)
{
    bytes_add(out, text, strlen(text));
}

static const char *const scalars[] = {"0", "1", "-1", "3.7", "-3.7", "1e15",
    "2^53", "1/0", "-1/0", "0/0", "0.1", "1e300", "12345678901234567890", "-0",
    "1e17", "123456.789", "'x'", "''", "'10'", "'a\\0b'", "'a\\r\\nb'", "true",
    "false", "nil", "KEYS[1]", "ARGV[1]", "#KEYS", "#ARGV", "KEYS[9]", "0x10",
    "'0x1f'", "' 5 '"};
static const char *const commands[] = {"'GET', 'k0'", "'GET', 'l0'",
    "'GET', KEYS[1]", "'SET', 'k1', 'v'", "'SET', 'k1', 5, 'NX'",
    "'INCR', 'n0'", "'INCRBY', 'n1', 2.5", "'INCRBY', 'n1', 3",
    "'DEL', 'k2', 'k3'", "'EXISTS', 'k0', 'k1'", "'MGET', 'k0', 'k9', 'l0'",
    "'LPUSH', 'l0', 'a', 1", "'LPUSH', 'k0', 'a'", "'HSET', 'h0', 'f', 1",
    "'HGET', 'h0', 'f'", "'HGET', 'h0', 'nosuch'", "'STRLEN', 'k0'",
    "'GETRANGE', 'k0', 0, -1", "'GETRANGE', 'k0', 1.5, 2",
    "'SETRANGE', 'k4', 3, 'abc'", "'APPEND', 'k4', 'z'", "'TYPE', 'k0'",
    "'NOSUCH'", "'GET'", "'GET', {}", "'GET', nil", "", "nil",
    "'SUBSCRIBE', 'x'", "'PING'", "'ECHO', 1e15", "'ECHO', 0.1", "'ECHO', -0",
    "'ECHO', 1e300", "'ECHO', 1e17", "'ECHO', 123456789012345678",
    "'client', 'id'", "'PEXPIRE', 'k0', 10000000", "'EXPIRE', 'nosuch', 5",
    "'DBSIZE'", "'PUBLISH', 'news', 'x'", "'eval', 'return 1', 0",
    "'SET', 'k5', ARGV[1]", "'PERSIST', 'k0'", "'LLEN', 'l0'",
    "'info', 'nosuch'", "'SCRIPT', 'flush'", "'WAIT', 0, 0",
    "'SET', 'k1', 'v', 'ZZ'", "true"};
static const char *const oddities[] = {"{err='ERR own'}", "{err='OWN'}",
    "{ok='fine'}", "{ok='a\\r\\nb'}", "{err='CODE two\\r\\nlines'}", "{err=5}",
    "{ok=5}", "{1, nil, 3}", "{nil, 2}", "{[2]=1}", "{a=1, 'b'}", "{{}, {{}}}",
    "{ok='x', err='ERR y'}", "redis.error_reply('own thing')",
    "redis.error_reply('-OWN thing')", "redis.error_reply('word')",
    "redis.error_reply(5)", "redis.error_reply()", "redis.status_reply('fine')",
    "redis.status_reply(5)", "redis.sha1hex('abc')", "redis.sha1hex(5)",
    "redis.sha1hex()", "function() end", "{function() end, 1}", "string.format",
    "_VERSION", "redis.REDIS_VERSION", "redis.REDIS_VERSION_NUM",
    "redis.LOG_WARNING", "redis.log(redis.LOG_DEBUG, 'x')", "redis.log(9, 'x')",
    "redis.log(1)", "redis.nosuch", "redis.nosuch.more", "nosuch", "os",
    "print", "io.open", "math.pi", "select('#', nil, nil)", "unpack({1, 2, 3})",
    "{unpack({1, 2, 3}, 2)}", "string.format('%d %s %5.1f', 3, 'x', 2.25)",
    "string.format('%q', 'a\\nb')", "string.format('%d', 'x')",
    "string.format('%.0f', 2^60)", "string.rep('ab', 5)", "('x'):rep(3)",
    "('x').y", "tostring(1e15)", "tostring(2^63)", "tostring(nil)",
    "tostring(0.1)", "tonumber('0x10')", "tonumber('z', 36)", "tonumber('')",
    "math.floor(-3.5)", "math.max()", "math.max(1, 'x')",
    "table.concat({1, 2, 'x'}, ',')", "table.concat({{}})",
    "string.byte('abc', 1, -1)", "string.char(65, 256)", "#5", "-'x'", "-{}",
    "1 + {}", "'a' + 1", "'5' * '4'", "1 .. 2", "{} .. 'x'", "nil .. 'x'",
    "1 < 'x'", "{} < {}", "nil < 1", "not nil", "1 == 1.0", "5 % 3", "-5 % 3",
    "2^0.5", "(nil)[1]", "KEYS.x.y", "ARGV[1].x.y",
    "getmetatable('').__index == string", "rawget(_G, 'redis') == redis",
    "type(_G)", "next({})", "pcall(error)", "{pcall(error, 'x')}",
    "{pcall(error, {err='ERR in table'})}", "{pcall(error, 'x', 0)}",
    "{pcall(redis.call, 'GET')}", "{pcall(redis.call, 'GET', 'l0')}",
    "{pcall(redis.pcall, 'GET', 'l0')}", "{pcall(string.rep)}",
    "{pcall(function() local x = nil; return x.y end)}", "{select(2, 1, 2)}",
    "redis.pcall('GET', 'l0').err", "redis.pcall('GET').err",
    "redis.pcall('PING').ok", "rawset(string, 'x', 1)", "setmetatable(_G, {})",
    "rawequal(_G, _G)", "loadstring('return 5')()", "loadstring('return +')",
    "{loadstring('return +')}", "assert(false, 'own')", "assert(nil)",
    "assert(1)", "xpcall(error, function() return 'h' end)", "redis.setresp(4)",
    "redis.setresp()", "redis.replicate_commands()",
    "tostring(setmetatable({}, {__tostring=function() return 'own' end}))",
    "string.find('abc', 'b', 1, true)", "{string.find('a.c', '.', 2, true)}",
    "string.gsub('hello', 'l', 'L')", "('%d'):format(3.99)", "math.random(0)",
    "math.random(1, 2, 3)"};

static void
add_call(struct check *check, struct bytes *out)
{
    add(out, check_chance(check, 60) ? "redis.pcall(" : "redis.call(");
    add(out, PICK(check, commands));
    add(out, ")");
}

static void
add_list(struct check *check, struct bytes *out, int depth)
{
    add(out, "{");
    for (uint64_t i = check_below(check, 5); i > 0; i--) {
        add_expression(check, out, depth - 1);
        add(out, ", ");
    }
    add(out, "}");
}

static void
add_expression(struct check *check, struct bytes *out, int depth)
{
    static const char *const joints[] = {
        " .. ", " + ", " - ", " * ", " == ", " and ", " or ", " < "};
    uint64_t kind = check_below(check, depth > 0 ? 100 : 60);

    if (kind < 25) {
        add(out, PICK(check, scalars));
    } else if (kind < 45) {
        add_call(check, out);
    } else if (kind < 60) {
        add(out, PICK(check, oddities));
    } else if (kind < 85) {
        add_list(check, out, depth);
    } else if (kind < 90) {
        add(out, "type(");
        add_expression(check, out, depth - 1);
        add(out, ")");
    } else {
        add(out, "((");
        add_expression(check, out, depth - 1);
        add(out, ")");
        add(out, PICK(check, joints));
        add(out, "(");
        add_expression(check, out, depth - 1);
        add(out, "))");
    }
}

/* --- scripts -------------------------------------------------------------- */

static const char *const statements[] = {"x = 1 ", "local a = 5\n", "\n\n",
    "redis.call('SET', 'k5', 'before') ", "string.x = 1 ", "KEYS[1] = 'k' ",
    "redis.x = 1 ", "error('own') ", "error('own', 0) ", "error('own', 2) ",
    "error({err='OWN thrown'}) ", "error(redis.error_reply('thrown')) ",
    "error() ", "error(nil) ", "error(5) ", "error(true) ", "return ( ",
    "local x = nosuch ", "local f = function() error('deep') end f() ",
    "local f = function() return redis.call('NOSUCH') end return f() ",
    "redis.call('INCR', 'n0')\nredis.call('GET', 'l0')\n", "a.b.c = 1 ",
    "local t = {} t.x.y = 1 ", "local t = {} t() ", "nosuch() ",
    "redis.nosuch() ", "for i = 1, 3 do redis.call('RPUSH', 'l1', i) end ",
    "if redis.call('EXISTS', 'k0') == 1 then return 'there' end ",
    "local r = redis.pcall('SET', 'k0') return r ", "_G.x = 1 ", "debug.x() ",
    "goto x ", "local r = {} for i = 1, 9 do r[i] = i / 2 end return r ",
    "return string.rep('x', 3000) ", "redis.call('DEL', 'l0', 'l1', 'h0') ",
    "setfenv(1, {}) ", "_G = nil ", "table.x = 1 ", "math.floor = nil ",
    "local function r(n) return r(n + 1) + 1 end r(1) "};
static const char *const first_lines[] = {"#!lua\n", "#!lua flags=no-writes\n",
    "#!lua flags=allow-oom\n", "#!lua flags=allow-oom,no-writes\n",
    "#!lua flags=nosuch\n", "#!lua flags=\n", "#!lua", "#!python\n",
    "#!lua nosuch=1\n", "#!lua flags=no-cluster\n",
    "#!lua  flags=allow-stale\n", "#!lua flags=allow-oom,\n",
    "#!lua flags=,allow-oom\n", "#!\n", "#! lua\n",
    "#!lua flags=allow-cross-slot-keys\n", "#x\n"};

static void
make_random_script(struct check *check, struct bytes *text)
{
    if (check_chance(check, 20))
        add(text, PICK(check, first_lines));
    while (check_chance(check, 30))
        add(text, PICK(check, statements));
    if (check_chance(check, 95))
        add(text, "return ");
    add_expression(check, text, 3);
}

static const char pack_script[] =
    "local a = {} for i = 2, #ARGV do a[#a + 1] = tonumber(ARGV[i]) or "
    "ARGV[i] end return {pcall(struct.pack, ARGV[1], unpack(a))}";
static const char unpack_script[] =
    "local r = {pcall(struct.unpack, ARGV[1], ARGV[2], tonumber(ARGV[3]))} "
    "for i = 1, #r do if type(r[i]) == 'number' then "
    "r[i] = string.format('%.17g', r[i]) end end return r";
static const char size_script[] = "return {pcall(struct.size, ARGV[1])}";
static const char bit_script[] =
    "local a = {} for i = 2, #ARGV do a[#a + 1] = tonumber(ARGV[i]) or "
    "ARGV[i] end return {pcall(bit[ARGV[1]], unpack(a))}";

static const char *const numbers[] = {"0", "1", "-1", "255", "256", "65535",
    "-129", "4294967295", "4294967296", "2147483648", "-2147483649", "1e15",
    "9007199254740993", "1.5", "-2.5", "1e20", "-1e20", "inf", "nan", "0x7f",
    "18446744073709551615", "9223372036854775808", "abc", "", "31", "32",
    "a long string with more bytes"};

static void
add_format(struct check *check)
{
    static const char signs[] = "<<<<>bBhHlLTiIiIiIcccsdddfx!  q0z";
    char text[40];
    size_t len = 0;

    for (uint64_t i = 1 + check_below(check, 7); i > 0; i--) {
        char sign = signs[check_below(check, sizeof(signs) - 1)];
        text[len++] = sign;
        if (strchr("iIc!", sign) != NULL && check_chance(check, 80)) {
            uint64_t size =
                check_below(check, check_chance(check, 90) ? 9 : 40);
            len += text_from_u64(text + len, size);
        }
        if (len > 30)
            break;
    }
    if (check_chance(check, 1)) {
        memcpy(text, "i99999999999", 12);
        len = 12;
    }
    words_add(&check->words, text, len);
}

static void
make_struct(struct check *check)
{
    struct words *words = &check->words;
    char data[64];
    uint64_t kind = check_below(check, 4);

    if (kind == 0) {
        words_string(words, pack_script);
        words_string(words, "0");
        add_format(check);
        for (uint64_t i = check_below(check, 9); i > 0; i--)
            words_string(words, PICK(check, numbers));
    } else if (kind == 1) {
        static const char *const places[] = {
            "1", "2", "5", "9", "0", "-1", "100", ""};
        words_string(words, unpack_script);
        words_string(words, "0");
        add_format(check);
        for (size_t i = 0; i < sizeof(data); i++)
            data[i] = (char)(check_chance(check, 50) ? check_below(check, 256)
                                                     : check_below(check, 4));
        words_add(words, data, check_below(check, sizeof(data) + 1));
        words_string(
            words, check_chance(check, 70) ? "1" : PICK(check, places));
    } else if (kind == 2) {
        words_string(words, size_script);
        words_string(words, "0");
        add_format(check);
    } else {
        static const char *const functions[] = {"tobit", "bnot", "band", "bor",
            "bxor", "lshift", "rshift", "arshift", "rol", "ror", "bswap",
            "tohex", "nosuch"};
        words_string(words, bit_script);
        words_string(words, "0");
        words_string(words, PICK(check, functions));
        for (uint64_t i = check_below(check, 4); i > 0; i--)
            words_string(words, PICK(check, numbers));
    }
}

void
make_script(struct check *check)
{
    struct words *words = &check->words;
    struct bytes text = {0};

    check->by_kind[2]++;
    words_begin(words);
    words_string(words, "EVAL");
    if (check_chance(check, 40)) {
        make_struct(check);
        return;
    }
    make_random_script(check, &text);
    words_add(words, text.at, text.len);
    bytes_fini(&text);
    if (check_chance(check, 2)) {
        add_argument(check, 'i');
        return;
    }
    uint64_t keys = check_below(check, 3);
    words_format(words, "%" PRIu64, keys);
    for (uint64_t i = 0; i < keys; i++)
        add_argument(check, 'k');
    for (uint64_t i = check_below(check, 3); i > 0; i--)
        add_argument(check, 'v');
}

void
make_command(struct check *check, const struct fake *fake)
{
    uint64_t kind = check_below(check, 1000);

    if (kind == 0) {
        words_begin(&check->words);
        words_string(&check->words, "FLUSHALL");
        check->by_kind[1]++;
    } else if (kind < 450) {
        make_locks(check, fake);
    } else if (kind < 780) {
        make_plain(check);
    } else {
        make_script(check);
    }
}
