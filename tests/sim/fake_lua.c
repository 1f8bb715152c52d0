/*
 * Scripts of a fake Redis: EVAL and its kin, what a script may call, and how
 * values go from Redis to Lua and back.
 *
 * As Redis 7.0: the flags of the #! line decide whether a script may run now.
 * An error in a script leaves its writes. Numbers are cut to integers. nil ends
 * an array.
 */
#include "tests/sim/fake_lua.h"

#include "tests/sim/fake_cover.h"

#include <stdio.h>
#include <stdlib.h>

#define DIGITS_BYTES 32

/* --- known scripts -------------------------------------------------------- */

static struct known_script *
script_find(const struct fake *fake, const char *sha)
{
    for (size_t i = 0; i < fake->script_count; i++)
        if (memcmp(fake->scripts[i].sha, sha, FAKE_SHA_HEX) == 0)
            return &fake->scripts[i];
    return NULL;
}

void
script_forget_all(struct fake *fake)
{
    for (size_t i = 0; i < fake->script_count; i++)
        engine_release(fake->scripts[i].sha);
    fake->script_count = 0;
}

/* The rest of a #! line, and the word that was taken from it. */
struct line {
    const char *at;
    const char *end;
    struct bytes word;
    bool wrong; /* a quote that does not end, or not at the end of a word */
};

static bool
is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The character behind a backslash between double quotes. */
static char
unescape(struct line *line)
{
    static const char from[] = "nrtba";
    static const char to[] = "\n\r\t\b\a";
    uint8_t byte;

    if (*line->at == 'x' && line->end - line->at > 2 &&
        text_from_hex(text_make(line->at + 1, 2), &byte, 1)) {
        line->at += 3;
        return (char)byte;
    }
    char c = *line->at++;
    const char *found = strchr(from, c);
    return found != NULL && c != '\0' ? to[found - from] : c;
}

/* A quoted part of a word; the quote has been taken. */
static void
quoted(struct line *line, char quote)
{
    while (line->at < line->end && *line->at != quote) {
        char c = *line->at++;
        bool more = line->at < line->end;
        if (c == '\\' && more && quote == '"')
            c = unescape(line);
        else if (c == '\\' && more && *line->at == '\'')
            c = *line->at++;
        bytes_add(&line->word, &c, 1);
    }
    line->wrong = line->at == line->end ||
                  (line->at + 1 < line->end && !is_blank(line->at[1]));
    line->at += !line->wrong;
}

/* False: there is none, or the line is wrong. */
static bool
word_next(struct line *line)
{
    line->word.len = 0;
    while (line->at < line->end && is_blank(*line->at))
        line->at++;
    if (line->at == line->end)
        return false;
    while (line->at < line->end && !is_blank(*line->at)) {
        char c = *line->at++;
        if (c != '"' && c != '\'') {
            bytes_add(&line->word, &c, 1);
            continue;
        }
        quoted(line, c);
        break;
    }
    return !line->wrong;
}

/* One of the words of "flags=a,b"; false where it is unknown. */
static bool
shebang_flag(struct text word, unsigned *flags)
{
    static const struct {
        const char *name;
        enum script_flag flag;
    } known[] = {{"no-writes", SCRIPT_NO_WRITES},
        {"allow-oom", SCRIPT_ALLOW_OOM}, {"allow-stale", SCRIPT_ALLOW_STALE},
        {"no-cluster", SCRIPT_NO_CLUSTER},
        {"allow-cross-slot-keys", SCRIPT_ALLOW_CROSS_SLOT}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (text_equal(word, text_from(known[i].name))) {
            *flags |= known[i].flag;
            return true;
        }
    return false;
}

static bool
shebang_flags(struct text list, unsigned *flags, struct bytes *why)
{
    while (list.len > 0) {
        const char *comma = memchr(list.at, ',', list.len);
        size_t len = comma != NULL ? (size_t)(comma - list.at) : list.len;
        if (!shebang_flag(text_make(list.at, len), flags)) {
            bytes_add(why, "Unexpected flag in script shebang: ", 35);
            bytes_add(why, list.at, len);
            return false;
        }
        if (comma == NULL)
            break;
        list = text_make(comma + 1, list.len - len - 1);
        if (list.len == 0) {
            bytes_add(why, "Unexpected flag in script shebang: ", 35);
            return false;
        }
    }
    return true;
}

static bool
shebang_wrong(struct bytes *why, const char *what, struct text word)
{
    bytes_add(why, what, strlen(what));
    bytes_add(why, word.at, word.len);
    return false;
}

static bool
shebang_words(struct line *line, unsigned *flags, struct bytes *why)
{
    struct text word;
    struct line ahead = *line;

    /* A wrong quote anywhere is wrong before anything else. */
    ahead.word = (struct bytes){0};
    while (word_next(&ahead))
        continue;
    bytes_fini(&ahead.word);
    if (ahead.wrong || !word_next(line))
        return shebang_wrong(why, "Invalid engine in script shebang", TEXT(""));
    word = text_make(line->word.at, line->word.len);
    if (!text_equal(word, TEXT("#!lua")))
        return shebang_wrong(
            why, "Unexpected engine in script shebang: ", word);
    while (word_next(line)) {
        word = text_make(line->word.at, line->word.len);
        if (word.len < 6 || memcmp(word.at, "flags=", 6) != 0)
            return shebang_wrong(why, "Unknown lua shebang option: ", word);
        if (!shebang_flags(text_make(word.at + 6, word.len - 6), flags, why))
            return false;
    }
    return true;
}

/* The flags of a script's first line, and how long that is. */
static bool
shebang_read(struct text body, unsigned *flags, size_t *len, struct bytes *why)
{
    struct line line = {0};

    *flags = SCRIPT_COMPATIBLE;
    *len = 0;
    if (body.len < 2 || memcmp(body.at, "#!", 2) != 0)
        return true;
    const char *eol = memchr(body.at, '\n', body.len);
    if (eol == NULL)
        return shebang_wrong(why, "Invalid script shebang", TEXT(""));
    *len = (size_t)(eol - body.at);
    *flags = 0;
    line.at = body.at;
    line.end = eol;
    bool good = shebang_words(&line, flags, why);
    bytes_fini(&line.word);
    return good;
}

/* NULL: it has been said why not. */
static struct known_script *
script_define(struct call *call, const char *sha, struct text body)
{
    struct fake *fake = call->fake;
    struct known_script *script = script_find(fake, sha);
    struct bytes why = {0};
    unsigned flags;
    size_t skip;

    if (script != NULL)
        return script;
    if (!shebang_read(body, &flags, &skip, &why)) {
        reply_error_raw(call, why.at, why.len);
        bytes_fini(&why);
        return NULL;
    }
    int function =
        engine_compile(sha, text_make(body.at + skip, body.len - skip), &why);
    if (function == LUA_NOREF) {
        reply_error(call, "Error compiling script (new function): %.*s",
            (int)why.len, why.at);
        bytes_fini(&why);
        return NULL;
    }
    fake->scripts = array_room(fake->scripts, fake->script_count,
        &fake->script_cap, sizeof(struct known_script));
    script = &fake->scripts[fake->script_count++];
    memcpy(script->sha, sha, FAKE_SHA_HEX);
    script->flags = flags;
    script->function = function;
    return script;
}

/* The SHA-1 that an EVAL or EVALSHA means, in lower case. */
static void
script_sha(const struct command *command, const struct text *arg,
    char sha[FAKE_SHA_HEX + 1])
{
    if (strcmp(command->name, "eval") == 0) {
        sha1_hex(arg[1].at, arg[1].len, sha);
        return;
    }
    for (size_t i = 0; i < FAKE_SHA_HEX; i++) {
        char c = arg[1].at[i];
        sha[i] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    sha[FAKE_SHA_HEX] = '\0';
}

unsigned
script_command_flags(
    struct fake *fake, const struct command *command, const struct text *arg)
{
    char sha[FAKE_SHA_HEX + 1];
    struct bytes why = {0};
    unsigned flags = SCRIPT_COMPATIBLE;
    unsigned result = command->flags;
    bool by_sha = strcmp(command->name, "evalsha") == 0;
    size_t skip;

    if (by_sha && arg[1].len != FAKE_SHA_HEX)
        return result;
    script_sha(command, arg, sha);
    const struct known_script *script = script_find(fake, sha);
    if (script != NULL)
        flags = script->flags;
    else if (by_sha || !shebang_read(arg[1], &flags, &skip, &why))
        flags = SCRIPT_COMPATIBLE;
    bytes_fini(&why);
    if ((flags & SCRIPT_COMPATIBLE) != 0)
        return result;
    result &= ~(unsigned)COMMAND_MAY_REPLICATE;
    if ((flags & (SCRIPT_ALLOW_OOM | SCRIPT_NO_WRITES)) == 0)
        result |= COMMAND_DENYOOM;
    if ((flags & SCRIPT_NO_WRITES) == 0)
        result |= COMMAND_WRITE;
    return result;
}

void
command_script_load(struct call *call)
{
    char sha[FAKE_SHA_HEX + 1];

    sha1_hex(call->arg[2].at, call->arg[2].len, sha);
    if (script_define(call, sha, call->arg[2]) != NULL)
        reply_string(call, sha);
}

void
command_script_exists(struct call *call)
{
    reply_array(call, call->count - 2);
    for (size_t i = 2; i < call->count; i++) {
        char sha[FAKE_SHA_HEX];
        struct text name = call->arg[i];
        for (size_t j = 0; j < FAKE_SHA_HEX && j < name.len; j++)
            sha[j] = name.at[j] >= 'A' && name.at[j] <= 'Z'
                         ? (char)(name.at[j] + 32)
                         : name.at[j];
        reply_integer(call,
            name.len == FAKE_SHA_HEX && script_find(call->fake, sha) != NULL);
    }
}

void
command_script_flush(struct call *call)
{
    if (call->count > 3 ||
        (call->count == 3 && !text_is(call->arg[2], "sync") &&
            !text_is(call->arg[2], "async"))) {
        reply_error(call, "SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    script_forget_all(call->fake);
    call->fake->random48 = 0x1234abcd330e;
    reply_status(call, "OK");
}

/* --- from Redis to Lua ---------------------------------------------------- */

static const char *push_reply(lua_State *lua, const char *at);

static const char *
push_bulk(lua_State *lua, const char *at, int64_t len)
{
    if (len < 0) {
        lua_pushboolean(lua, 0);
        return at;
    }
    lua_pushlstring(lua, at, (size_t)len);
    return at + len + 2;
}

static const char *
push_array_reply(lua_State *lua, const char *at, int64_t count)
{
    if (count < 0) {
        lua_pushboolean(lua, 0);
        return at;
    }
    lua_createtable(lua, (int)count, 0);
    for (int64_t i = 0; i < count; i++) {
        at = push_reply(lua, at);
        lua_rawseti(lua, -2, (int)i + 1);
    }
    return at;
}

/* The reply at `at`, which is whole, as a value; returns what is behind it. */
static const char *
push_reply(lua_State *lua, const char *at)
{
    const char *eol = strchr(at, '\r');
    size_t len = (size_t)(eol - at) - 1;
    int64_t number = 0;

    luaL_checkstack(lua, 4, "reply");
    switch (*at) {
    case ':':
        number_read(text_make(at + 1, len), &number);
        lua_pushnumber(lua, (double)number);
        return eol + 2;
    case '$':
        number_read(text_make(at + 1, len), &number);
        return push_bulk(lua, eol + 2, number);
    case '*':
        number_read(text_make(at + 1, len), &number);
        return push_array_reply(lua, eol + 2, number);
    case '+':
        lua_createtable(lua, 0, 1);
        lua_pushlstring(lua, at + 1, len);
        lua_setfield(lua, -2, "ok");
        return eol + 2;
    default:
        lua_pushlstring(lua, at, len + 1);
        engine_push_error(lua, lua_tostring(lua, -1));
        lua_remove(lua, -2);
        lua_pushboolean(lua, 1);
        lua_setfield(lua, -2, "ignore_error_stats_update");
        return eol + 2;
    }
}

/* --- redis.call ----------------------------------------------------------- */

static struct {
    struct text *arg;
    size_t arg_cap;
    char (*digits)[DIGITS_BYTES]; /* for each argument that is a number */
    size_t digits_cap;
} words;

/* "%.17g", which for whole numbers is their digits. */
static struct text
number_text(double number, char digits[DIGITS_BYTES])
{
    size_t len = 0;

    if (number > -1e15 && number < 1e15 && number != 0 &&
        (double)(int64_t)number == number) {
        uint64_t whole = (uint64_t)(int64_t)(number < 0 ? -number : number);
        if (number < 0)
            digits[len++] = '-';
        len += text_from_u64(digits + len, whole);
    } else {
        len = (size_t)snprintf(digits, DIGITS_BYTES, "%.17g", number);
    }
    return text_make(digits, len);
}

/* The arguments of redis.call, in words.arg; false: an error is on the stack.
 * The strings stay where they are, on the stack. */
static bool
words_collect(lua_State *lua, size_t count)
{
    if (count == 0) {
        engine_push_error(lua,
            "Please specify at least one argument for this redis lib call");
        return false;
    }
    while (words.arg_cap < count)
        words.arg = array_room(
            words.arg, words.arg_cap, &words.arg_cap, sizeof(struct text));
    while (words.digits_cap < count)
        words.digits = array_room(
            words.digits, words.digits_cap, &words.digits_cap, DIGITS_BYTES);
    for (size_t i = 0; i < count; i++) {
        int type = lua_type(lua, (int)i + 1);
        if (type == LUA_TNUMBER) {
            words.arg[i] =
                number_text(lua_tonumber(lua, (int)i + 1), words.digits[i]);
        } else if (type == LUA_TSTRING) {
            words.arg[i].at = lua_tolstring(lua, (int)i + 1, &words.arg[i].len);
        } else {
            engine_push_error(lua, "Lua redis lib command arguments must be "
                                   "strings or integers");
            return false;
        }
    }
    return true;
}

/* The reason against a script's write, or NULL. */
static const char *
write_refusal(const struct fake *fake, const struct command *command)
{
    const struct script_run *run = fake->run;

    if ((run->flags & SCRIPT_NO_WRITES) != 0 &&
        (command->flags & (COMMAND_WRITE | COMMAND_MAY_REPLICATE)) != 0)
        return "Write commands are not allowed from read-only scripts.";
    if ((command->flags & COMMAND_WRITE) != 0 && !run->wrote) {
        const char *refusal = fake_write_refusal(fake);
        if (refusal != NULL)
            return refusal;
    }
    if (fake->mood == FAKE_OOM && !fake->replica && !run->wrote &&
        (run->flags & SCRIPT_ALLOW_OOM) == 0 &&
        (command->flags & COMMAND_DENYOOM) != 0)
        return "-OOM command not allowed when used memory > 'maxmemory'.";
    return NULL;
}

/* The reason against a script's access to a key, or NULL. */
static const char *
slot_refusal(const struct call *call)
{
    struct script_run *run = call->fake->run;
    const struct peer *peer;
    int slot = -1;

    if (call->fake->cluster == NULL || call->command->first_key == 0)
        return NULL;
    switch (cluster_route(call, call->command->flags, &slot, &peer)) {
    case REDIRECT_NONE:
        break;
    case REDIRECT_DOWN:
        return "Script attempted to execute a command while the cluster is "
               "down";
    case REDIRECT_CROSS_SLOT:
    case REDIRECT_TRYAGAIN:
    case REDIRECT_UNSERVED:
    case REDIRECT_MOVED:
    case REDIRECT_ASK:
        return "Script attempted to access a non local key in a cluster node";
    }
    if (slot < 0 ||
        (run->flags & (SCRIPT_COMPATIBLE | SCRIPT_ALLOW_CROSS_SLOT)) != 0)
        return NULL;
    if (run->slot < 0)
        run->slot = slot;
    return run->slot == slot ? NULL
                             : "Script attempted to access keys that do not "
                               "hash to the same slot";
}

/* Carries a script's command out, or says why not. */
static const char *
script_command(struct call *call)
{
    struct script_run *run = call->fake->run;
    bool container;
    const struct command *command =
        command_find(call->arg, call->count, &container);

    call->command = command;
    if (command == NULL || (command->flags & COMMAND_SENTINEL) != 0)
        return "Unknown Redis command called from script";
    if ((command->arity > 0 && (size_t)command->arity != call->count) ||
        (command->arity < 0 && call->count < (size_t)-command->arity))
        return "Wrong number of args calling Redis command from script";
    if ((command->flags & COMMAND_NOSCRIPT) != 0)
        return "This Redis command is not allowed from script";
    const char *refusal = write_refusal(call->fake, command);
    if (refusal != NULL)
        return refusal;
    if ((command->flags & COMMAND_WRITE) != 0)
        run->wrote = true;
    refusal = slot_refusal(call);
    if (refusal == NULL)
        command->run(call);
    return refusal;
}

static void
script_break(lua_State *lua, struct fake *fake)
{
    if (fake->break_after == 0 || ++fake->run->calls <= fake->break_after)
        return;
    fake->break_after = 0;
    engine_push_error(lua, "the script is broken off");
    lua_error(lua);
}

static int
redis_command(lua_State *lua, bool raise)
{
    struct fake *fake = engine_fake();
    size_t count = (size_t)lua_gettop(lua);

    require(fake != NULL && fake->run != NULL);
    if (!words_collect(lua, count))
        return raise ? lua_error(lua) : 1;
    script_break(lua, fake);
    struct call call = {
        .fake = fake,
        .connection = fake->run->connection,
        .arg = words.arg,
        .count = count,
        .out = &fake->script_out,
        .in_script = true,
    };
    call.out->len = 0;
    const char *refusal = script_command(&call);
    if (refusal != NULL) {
        engine_push_error(lua, refusal);
        lua_pushboolean(lua, 1);
        lua_setfield(lua, -2, "ignore_error_stats_update");
        return raise ? lua_error(lua) : 1;
    }
    bytes_add(call.out, "", 1);
    push_reply(lua, call.out->at);
    return raise && call.out->at[0] == '-' ? lua_error(lua) : 1;
}

static int
redis_call(lua_State *lua)
{
    return redis_command(lua, true);
}

static int
redis_pcall(lua_State *lua)
{
    return redis_command(lua, false);
}

/* --- the rest of `redis` -------------------------------------------------- */

static int
throw_error(lua_State *lua, const char *text)
{
    engine_push_error(lua, text);
    return lua_error(lua);
}

static int
redis_sha1hex(lua_State *lua)
{
    char sha[FAKE_SHA_HEX + 1];
    size_t len;

    if (lua_gettop(lua) != 1)
        return throw_error(lua, "wrong number of arguments");
    const char *text = lua_tolstring(lua, 1, &len);
    sha1_hex(text, text != NULL ? len : 0, sha);
    lua_pushstring(lua, sha);
    return 1;
}

static int
redis_error_reply(lua_State *lua)
{
    if (lua_gettop(lua) != 1 || lua_type(lua, -1) != LUA_TSTRING) {
        engine_push_error(lua, "wrong number or type of arguments");
        return 1;
    }
    const char *text = lua_tostring(lua, 1);
    if (text[0] != '-')
        text = lua_pushfstring(lua, "-%s", text);
    engine_push_error(lua, text);
    return 1;
}

static int
redis_status_reply(lua_State *lua)
{
    if (lua_gettop(lua) != 1 || lua_type(lua, -1) != LUA_TSTRING) {
        engine_push_error(lua, "wrong number or type of arguments");
        return 1;
    }
    lua_newtable(lua);
    lua_pushvalue(lua, 1);
    lua_setfield(lua, -2, "ok");
    return 1;
}

static int
redis_log(lua_State *lua)
{
    int count = lua_gettop(lua);

    if (count < 2)
        return throw_error(lua, "redis.log() requires two arguments or more.");
    if (!lua_isnumber(lua, 1))
        return throw_error(lua, "First argument must be a number (log level).");
    if (lua_tonumber(lua, 1) < 0 || lua_tonumber(lua, 1) >= 4)
        return throw_error(lua, "Invalid debug level.");
    return 0;
}

static int
redis_setresp(lua_State *lua)
{
    if (lua_gettop(lua) != 1)
        return throw_error(lua, "redis.setresp() requires one argument.");
    if (lua_tonumber(lua, 1) != 2)
        return throw_error(lua, "RESP version must be 2 or 3.");
    return 0;
}

static int
redis_replicate_commands(lua_State *lua)
{
    lua_pushboolean(lua, 1);
    return 1;
}

static int
redis_breakpoint(lua_State *lua)
{
    lua_pushboolean(lua, 0);
    return 1;
}

static int
redis_debug(lua_State *lua)
{
    (void)lua;
    return 0;
}

/* All effects are replicated here, whatever it says. */
static int
redis_set_repl(lua_State *lua)
{
    if (lua_gettop(lua) != 1)
        return throw_error(lua, "redis.set_repl() requires two arguments.");
    int flags = (int)lua_tonumber(lua, 1);
    if (flags < 0 || flags > 3)
        return throw_error(lua, "Invalid replication flags. Use REPL_AOF, "
                                "REPL_REPLICA, REPL_ALL or REPL_NONE.");
    return 0;
}

static void
set_number(lua_State *lua, const char *name, int value)
{
    lua_pushinteger(lua, value);
    lua_setfield(lua, -2, name);
}

void
engine_open_redis(lua_State *lua)
{
    static const luaL_Reg functions[] = {{"call", redis_call},
        {"pcall", redis_pcall}, {"sha1hex", redis_sha1hex},
        {"error_reply", redis_error_reply},
        {"status_reply", redis_status_reply}, {"log", redis_log},
        {"setresp", redis_setresp},
        {"replicate_commands", redis_replicate_commands},
        {"breakpoint", redis_breakpoint}, {"debug", redis_debug},
        {"set_repl", redis_set_repl}, {NULL, NULL}};
    static const char *const levels[] = {
        "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"};

    lua_newtable(lua);
    luaL_register(lua, NULL, functions);
    for (int i = 0; i < 4; i++)
        set_number(lua, levels[i], i);
    set_number(lua, "REPL_NONE", 0);
    set_number(lua, "REPL_AOF", 1);
    set_number(lua, "REPL_SLAVE", 2);
    set_number(lua, "REPL_REPLICA", 2);
    set_number(lua, "REPL_ALL", 3);
    set_number(lua, "REDIS_VERSION_NUM", 0x0007000f);
    lua_pushliteral(lua, "7.0.15");
    lua_setfield(lua, -2, "REDIS_VERSION");
}

/* --- from Lua to Redis ---------------------------------------------------- */

static void reply_value(struct call *call, lua_State *lua);

/* As x86-64 cuts it. */
static int64_t
cut(double number)
{
    if (number >= -9223372036854775808.0 && number < 9223372036854775808.0)
        return (int64_t)number;
    return INT64_MIN;
}

/* A string field of the table on the stack, pushed; false: nothing is. */
static bool
push_string_field(lua_State *lua, const char *name)
{
    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    if (lua_type(lua, -1) == LUA_TSTRING)
        return true;
    lua_pop(lua, 1);
    return false;
}

static void
reply_ok_field(struct call *call, const char *text)
{
    size_t len = strlen(text);
    char *room;

    bytes_add(call->out, "+", 1);
    room = bytes_room(call->out, len + 2);
    for (size_t i = 0; i < len; i++)
        room[i] = text[i] == '\r' || text[i] == '\n' ? ' ' : text[i];
    memcpy(room + len, "\r\n", 2);
    call->out->len += len + 2;
}

/* How many there are is known only behind the last one. */
static void
reply_list(struct call *call, lua_State *lua)
{
    struct bytes items = {0};
    struct call inner = *call;
    size_t count = 0;

    inner.out = &items;
    for (int i = 1;; i++) {
        lua_rawgeti(lua, -1, i);
        if (lua_isnil(lua, -1))
            break;
        reply_value(&inner, lua);
        count++;
    }
    lua_pop(lua, 1);
    reply_array(call, count);
    bytes_add(call->out, items.at, items.len);
    bytes_fini(&items);
}

static void
reply_table(struct call *call, lua_State *lua)
{
    if (push_string_field(lua, "err")) {
        reply_error(call, "-%s", lua_tostring(lua, -1));
        lua_pop(lua, 1);
    } else if (push_string_field(lua, "ok")) {
        reply_ok_field(call, lua_tostring(lua, -1));
        lua_pop(lua, 1);
    } else {
        reply_list(call, lua);
    }
}

/* Takes the value from the stack. */
static void
reply_value(struct call *call, lua_State *lua)
{
    size_t len;
    const char *text;

    if (!lua_checkstack(lua, 4)) {
        reply_error(call, "reached lua stack limit");
        lua_pop(lua, 1);
        return;
    }
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING:
        text = lua_tolstring(lua, -1, &len);
        reply_bulk(call, text, len);
        break;
    case LUA_TBOOLEAN:
        if (lua_toboolean(lua, -1))
            reply_integer(call, 1);
        else
            reply_nil(call);
        break;
    case LUA_TNUMBER:
        reply_integer(call, cut(lua_tonumber(lua, -1)));
        break;
    case LUA_TTABLE:
        reply_table(call, lua);
        break;
    default:
        reply_nil(call);
        break;
    }
    lua_pop(lua, 1);
}

static const char *
string_field(lua_State *lua, const char *name)
{
    lua_getfield(lua, -1, name);
    const char *text = lua_isstring(lua, -1) ? lua_tostring(lua, -1) : NULL;
    lua_pop(lua, 1); /* the table still has it */
    return text;
}

/* The error on the stack: {err, source, line}, or, where the handler failed
 * itself, a text. */
static void
reply_failure(struct call *call, lua_State *lua, const char *sha)
{
    struct bytes text = {0};

    if (!lua_istable(lua, -1)) {
        const char *what =
            lua_isstring(lua, -1) ? lua_tostring(lua, -1) : "execution failure";
        reply_error(call, "Error running script %.40s, %.100s\n", sha, what);
        return;
    }
    const char *message = string_field(lua, "err");
    const char *source = string_field(lua, "source");
    lua_getfield(lua, -1, "line");
    if (message == NULL)
        message = "ERR unknown error";
    bytes_add(&text, "-", 1);
    bytes_add(&text, message, strlen(message));
    if (source != NULL && lua_isstring(lua, -1)) {
        const char *line = lua_tostring(lua, -1);
        bytes_add(&text, " script: ", 9);
        bytes_add(&text, sha, FAKE_SHA_HEX);
        bytes_add(&text, ", on ", 5);
        bytes_add(&text, source, strlen(source));
        bytes_add(&text, ":", 1);
        bytes_add(&text, line, strlen(line));
        bytes_add(&text, ".", 1);
    }
    lua_pop(lua, 1);
    reply_error_raw(call, text.at, text.len);
    bytes_fini(&text);
}

/* --- EVAL ----------------------------------------------------------------- */

static void
script_run(struct call *call, const struct known_script *script, size_t keys)
{
    struct fake *fake = call->fake;
    lua_State *lua = engine_state();
    struct script_run run = {
        .connection = call->connection, .flags = script->flags, .slot = -1};
    const struct peer *peer;
    char sha[FAKE_SHA_HEX + 1];

    if ((script->flags & SCRIPT_NO_CLUSTER) != 0 && fake->cluster != NULL) {
        reply_error(
            call, "Can not run script on cluster, 'no-cluster' flag is set.");
        return;
    }
    if (fake->cluster != NULL)
        cluster_route(call, call->command->flags, &run.slot, &peer);
    memcpy(sha, script->sha, FAKE_SHA_HEX);
    sha[FAKE_SHA_HEX] = '\0';
    fake->counts.scripts++;
    fake->run = &run;
    engine_enter(fake);
    lua_settop(lua, 0);
    engine_prepare(
        call->arg + 3, keys, call->arg + 3 + keys, call->count - 3 - keys);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script->function);
    cover_begin(lua, sha);
    int status = lua_pcall(lua, 0, 1, -2);
    cover_end(lua);
    if (status == 0)
        reply_value(call, lua);
    else
        reply_failure(call, lua, sha);
    lua_settop(lua, 0);
    engine_leave();
    fake->run = NULL;
}

/* EVAL, EVALSHA. */
void
command_eval(struct call *call)
{
    bool by_sha = strcmp(call->command->name, "evalsha") == 0;
    char sha[FAKE_SHA_HEX + 1];
    int64_t keys;

    if (by_sha && call->arg[1].len != FAKE_SHA_HEX) {
        reply_error(call, "-NOSCRIPT No matching script. Please use EVAL.");
        return;
    }
    if (!arg_number(call, 2, &keys))
        return;
    if (keys > (int64_t)call->count - 3) {
        reply_error(
            call, "Number of keys can't be greater than number of args");
        return;
    }
    if (keys < 0) {
        reply_error(call, "Number of keys can't be negative");
        return;
    }
    script_sha(call->command, call->arg, sha);
    const struct known_script *script = script_find(call->fake, sha);
    if (script == NULL && by_sha) {
        reply_error(call, "-NOSCRIPT No matching script. Please use EVAL.");
        return;
    }
    if (script == NULL)
        script = script_define(call, sha, call->arg[1]);
    if (script != NULL)
        script_run(call, script, (size_t)keys);
}
