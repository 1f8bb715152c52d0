/*
 * The Lua state that the fake Redis servers of a process share: its libraries,
 * its globals, and the scripts that were compiled.
 *
 * Sharing is safe because a script can leave nothing behind: the globals and
 * the libraries are read-only, as they are in Redis. There they are marked so
 * by a patch of Lua; here a script sees empty tables in front of the real ones.
 * Differences that show: rawget() and pairs() are made to look behind them,
 * table.insert() into a library is not refused.
 *
 * A server knows by itself which scripts it was given (fake_lua.c); what is
 * kept here only saves compiling them again.
 */
#include "tests/sim/fake_lua.h"

#include <stdio.h>
#include <stdlib.h>

#define SCRIPTS_KEPT 512
#define PIECE_STEP   16
#define PIECE_MAX    512
#define MEMORY_CHUNK 65536

struct compiled {
    char sha[FAKE_SHA_HEX];
    int function; /* reference */
    unsigned users;
};

static struct {
    lua_State *lua; /* owned, until the process ends */
    int globals;    /* references */
    int handler;
    int marks; /* set of the metatables of what stands in front */
    struct compiled *scripts;
    size_t count;
    size_t cap;
    struct fake *fake; /* ref: whose script is running */
} engine;

struct fake *
engine_fake(void)
{
    return engine.fake;
}

void
engine_enter(struct fake *fake)
{
    require(engine.fake == NULL);
    engine.fake = fake;
}

void
engine_leave(void)
{
    engine.fake = NULL;
}

/* --- read-only tables ----------------------------------------------------- */

static int
refuse_write(lua_State *lua)
{
    return luaL_error(lua, "Attempt to modify a readonly table");
}

/* The same from a function of C, which has no line. */
static int
refuse_raw_write(lua_State *lua)
{
    lua_pushliteral(lua, "Attempt to modify a readonly table");
    return lua_error(lua);
}

static int
refuse_global(lua_State *lua)
{
    if (lua_gettop(lua) != 2)
        return luaL_error(
            lua, "Wrong number of arguments to luaProtectedTableError");
    if (!lua_isstring(lua, -1))
        return luaL_error(lua, "Second argument to luaProtectedTableError "
                               "must be a string or number");
    return luaL_error(lua,
        "Script attempted to access nonexistent global variable '%s'",
        lua_tostring(lua, -1));
}

/* An empty table in place of the one on the stack, which stands behind it. */
static void
protect(lua_State *lua)
{
    lua_newtable(lua);
    lua_newtable(lua);
    lua_pushvalue(lua, -3);
    lua_setfield(lua, -2, "__index");
    lua_pushcfunction(lua, refuse_write);
    lua_setfield(lua, -2, "__newindex");
    lua_rawgeti(lua, LUA_REGISTRYINDEX, engine.marks);
    lua_pushvalue(lua, -2);
    lua_pushboolean(lua, 1);
    lua_rawset(lua, -3);
    lua_pop(lua, 1);
    lua_setmetatable(lua, -2);
    lua_replace(lua, -2);
}

/* Whether the value at `index` is one that protect() made; if so, and `behind`,
 * it is replaced by what stands behind it. */
static bool
is_protected(lua_State *lua, int index, bool behind)
{
    if (!lua_istable(lua, index) || !lua_getmetatable(lua, index))
        return false;
    lua_rawgeti(lua, LUA_REGISTRYINDEX, engine.marks);
    lua_pushvalue(lua, -2);
    lua_rawget(lua, -2);
    bool found = lua_toboolean(lua, -1);
    lua_pop(lua, 2);
    if (found && behind) {
        lua_getfield(lua, -1, "__index");
        lua_replace(lua, index);
    }
    lua_pop(lua, 1);
    return found;
}

static int
base_setmetatable(lua_State *lua)
{
    int type = lua_type(lua, 2);

    luaL_checktype(lua, 1, LUA_TTABLE);
    luaL_argcheck(lua, type == LUA_TNIL || type == LUA_TTABLE, 2,
        "nil or table expected");
    if (is_protected(lua, 1, false))
        return refuse_raw_write(lua);
    if (luaL_getmetafield(lua, 1, "__metatable"))
        return luaL_error(lua, "cannot change a protected metatable");
    lua_settop(lua, 2);
    lua_setmetatable(lua, 1);
    return 1;
}

static int
base_rawset(lua_State *lua)
{
    luaL_checktype(lua, 1, LUA_TTABLE);
    luaL_checkany(lua, 2);
    luaL_checkany(lua, 3);
    if (is_protected(lua, 1, false))
        return refuse_raw_write(lua);
    lua_settop(lua, 3);
    lua_rawset(lua, 1);
    return 1;
}

static int
base_rawget(lua_State *lua)
{
    luaL_checktype(lua, 1, LUA_TTABLE);
    luaL_checkany(lua, 2);
    lua_settop(lua, 2);
    is_protected(lua, 1, true);
    lua_rawget(lua, 1);
    return 1;
}

static int
base_next(lua_State *lua)
{
    luaL_checktype(lua, 1, LUA_TTABLE);
    lua_settop(lua, 2);
    is_protected(lua, 1, true);
    if (lua_next(lua, 1))
        return 2;
    lua_pushnil(lua);
    return 1;
}

static int
base_pairs(lua_State *lua)
{
    luaL_checktype(lua, 1, LUA_TTABLE);
    lua_pushvalue(lua, lua_upvalueindex(1));
    lua_pushvalue(lua, 1);
    lua_pushnil(lua);
    return 3;
}

/* Errors are tables in Redis 7; who catches one gets its text. */
static int
base_pcall(lua_State *lua)
{
    luaL_checkany(lua, 1);
    int count = lua_gettop(lua);
    lua_pushboolean(lua, 1);
    lua_insert(lua, 1);
    if (lua_pcall(lua, count - 1, LUA_MULTRET, 0) == 0)
        return lua_gettop(lua);
    lua_remove(lua, 1);
    if (lua_istable(lua, -1)) {
        lua_getfield(lua, -1, "err");
        if (lua_isstring(lua, -1))
            lua_replace(lua, -2);
    }
    lua_pushboolean(lua, 0);
    lua_insert(lua, 1);
    return lua_gettop(lua);
}

/* --- math.random ---------------------------------------------------------- */

/* lrand48() of POSIX, as Redis has it, so that it is one everywhere. */
static int
math_random(lua_State *lua)
{
    struct fake *fake = engine.fake;

    fake->random48 = (fake->random48 * 0x5deece66d + 0xb) & 0xffffffffffff;
    int32_t drawn = (int32_t)(fake->random48 >> 17);
    double share = (double)(drawn % INT32_MAX) / (double)INT32_MAX;
    int low = 1;
    int high;

    switch (lua_gettop(lua)) {
    case 0:
        lua_pushnumber(lua, share);
        return 1;
    case 1:
        high = luaL_checkint(lua, 1);
        luaL_argcheck(lua, 1 <= high, 1, "interval is empty");
        break;
    case 2:
        low = luaL_checkint(lua, 1);
        high = luaL_checkint(lua, 2);
        luaL_argcheck(lua, low <= high, 2, "interval is empty");
        break;
    default:
        return luaL_error(lua, "wrong number of arguments");
    }
    double wide = share * ((double)high - low + 1);
    lua_pushnumber(lua, (double)(int64_t)wide + low);
    return 1;
}

static int
math_randomseed(lua_State *lua)
{
    uint32_t seed = (uint32_t)luaL_checkint(lua, 1);

    engine.fake->random48 = (uint64_t)seed << 16 | 0x330e;
    return 0;
}

/* --- errors --------------------------------------------------------------- */

void
engine_push_error(lua_State *lua, const char *text)
{
    const char *message = text;
    const char *code = "ERR";
    size_t code_len = 3;

    if (text[0] == '-') {
        const char *namespace = strchr(text, ' ');
        message = namespace != NULL ? namespace + 1 : text + 1;
        if (namespace != NULL) {
            code = text + 1;
            code_len = (size_t)(namespace - code);
        }
    }
    size_t len = strlen(message);
    while (len > 0 && (*message == '\r' || *message == '\n')) {
        message++;
        len--;
    }
    while (len > 0 && (message[len - 1] == '\r' || message[len - 1] == '\n'))
        len--;
    lua_newtable(lua);
    lua_pushlstring(lua, code, code_len);
    lua_pushlstring(lua, " ", 1);
    lua_pushlstring(lua, message, len);
    lua_concat(lua, 3);
    lua_setfield(lua, -2, "err");
}

/* {err, source, line} of whatever was thrown. */
static int
error_handler(lua_State *lua)
{
    lua_Debug where;
    bool known = lua_getstack(lua, 1, &where) != 0;

    lua_settop(lua, 1);
    if (known) {
        lua_getinfo(lua, "nSl", &where);
        if (strcmp(where.what, "C") == 0) {
            known = lua_getstack(lua, 2, &where) != 0;
            if (known)
                lua_getinfo(lua, "nSl", &where);
        }
    }
    if (!lua_istable(lua, 1)) {
        lua_newtable(lua);
        lua_pushliteral(lua, "ERR ");
        lua_rawgeti(lua, LUA_REGISTRYINDEX, engine.globals);
        lua_getfield(lua, -1, "tostring");
        lua_replace(lua, -2);
        lua_pushvalue(lua, 1);
        lua_call(lua, 1, 1);
        lua_concat(lua, 2);
        lua_setfield(lua, -2, "err");
        lua_replace(lua, 1);
    }
    if (known) {
        lua_pushstring(lua, where.source);
        lua_setfield(lua, 1, "source");
        lua_pushinteger(lua, where.currentline);
        lua_setfield(lua, 1, "line");
    }
    return 1;
}

/* --- memory --------------------------------------------------------------- */

/* A free piece of memory of some size. */
struct piece {
    struct piece *next;
};

/* Small pieces are cut from large ones and kept by size, since a script leaves
 * hundreds of them; the rest is malloc()'s. */
static struct {
    struct piece *free[PIECE_MAX / PIECE_STEP + 1];
    char *fresh;
    size_t fresh_len;
} memory;

static void *
piece_take(size_t size)
{
    size_t index = (size + PIECE_STEP - 1) / PIECE_STEP;
    struct piece *piece = memory.free[index];
    size_t rounded = index * PIECE_STEP;

    if (piece != NULL) {
        memory.free[index] = piece->next;
        return piece;
    }
    if (memory.fresh_len < rounded) {
        memory.fresh = memory_get(NULL, MEMORY_CHUNK);
        memory.fresh_len = MEMORY_CHUNK;
    }
    memory.fresh_len -= rounded;
    return memory.fresh + memory.fresh_len;
}

static void
piece_give(void *at, size_t size)
{
    size_t index = (size + PIECE_STEP - 1) / PIECE_STEP;
    struct piece *piece = at;

    piece->next = memory.free[index];
    memory.free[index] = piece;
}

/* A lua_Alloc. */
static void *
engine_memory(void *arg, void *old, size_t old_len, size_t len)
{
    (void)arg;
    if (old_len > PIECE_MAX && len > PIECE_MAX)
        return realloc(old, len);
    void *new = NULL;
    if (len > 0)
        new = len <= PIECE_MAX ? piece_take(len) : malloc(len);
    if (old == NULL || (len > 0 && new == NULL))
        return new;
    if (new != NULL)
        memcpy(new, old, old_len < len ? old_len : len);
    if (old_len <= PIECE_MAX)
        piece_give(old, old_len);
    else
        free(old);
    return new;
}

static int
engine_panic(lua_State *lua)
{
    fprintf(stderr, "lua: %s\n", lua_tostring(lua, -1));
    return 0; /* lua aborts */
}

/* --- the state ------------------------------------------------------------ */

static void
open_library(lua_State *lua, const char *name, lua_CFunction open)
{
    lua_pushcfunction(lua, open);
    lua_pushstring(lua, name);
    lua_call(lua, 1, 0);
}

static void
set_function(lua_State *lua, const char *name, lua_CFunction function)
{
    lua_pushcfunction(lua, function);
    lua_setfield(lua, LUA_GLOBALSINDEX, name);
}

static void
open_base(lua_State *lua)
{
    static const char *const hidden[] = {
        "dofile", "loadfile", "print", "getfenv", "setfenv", "newproxy"};

    open_library(lua, "", luaopen_base);
    open_library(lua, LUA_TABLIBNAME, luaopen_table);
    open_library(lua, LUA_STRLIBNAME, luaopen_string);
    open_library(lua, LUA_MATHLIBNAME, luaopen_math);
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        lua_pushnil(lua);
        lua_setfield(lua, LUA_GLOBALSINDEX, hidden[i]);
    }
    set_function(lua, "setmetatable", base_setmetatable);
    set_function(lua, "rawset", base_rawset);
    set_function(lua, "rawget", base_rawget);
    set_function(lua, "next", base_next);
    lua_getfield(lua, LUA_GLOBALSINDEX, "next");
    lua_pushcclosure(lua, base_pairs, 1);
    lua_setfield(lua, LUA_GLOBALSINDEX, "pairs");
    set_function(lua, "pcall", base_pcall);
    set_function(lua, "__redis__err__handler", error_handler);
    lua_getfield(lua, LUA_GLOBALSINDEX, LUA_MATHLIBNAME);
    lua_pushcfunction(lua, math_random);
    lua_setfield(lua, -2, "random");
    lua_pushcfunction(lua, math_randomseed);
    lua_setfield(lua, -2, "randomseed");
    lua_pop(lua, 1);
    engine_open_struct(lua);
    lua_setfield(lua, LUA_GLOBALSINDEX, "struct");
    engine_open_bit(lua);
    lua_setfield(lua, LUA_GLOBALSINDEX, "bit");
    engine_open_redis(lua);
    lua_setfield(lua, LUA_GLOBALSINDEX, "redis");
}

static void
close_globals(lua_State *lua)
{
    static const char *const libraries[] = {LUA_TABLIBNAME, LUA_STRLIBNAME,
        LUA_MATHLIBNAME, LUA_COLIBNAME, "struct", "bit", "redis"};

    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        lua_getfield(lua, LUA_GLOBALSINDEX, libraries[i]);
        protect(lua);
        lua_setfield(lua, LUA_GLOBALSINDEX, libraries[i]);
    }
    /* The result of getmetatable(''). */
    lua_pushliteral(lua, "");
    lua_getmetatable(lua, -1);
    lua_newtable(lua);
    lua_getfield(lua, LUA_GLOBALSINDEX, LUA_STRLIBNAME);
    lua_setfield(lua, -2, "__index");
    protect(lua);
    lua_setfield(lua, -2, "__metatable");
    lua_pop(lua, 2);
    lua_pushvalue(lua, LUA_GLOBALSINDEX);
    engine.globals = luaL_ref(lua, LUA_REGISTRYINDEX);
    lua_newtable(lua);
    lua_pushcfunction(lua, refuse_global);
    lua_setfield(lua, -2, "__index");
    lua_setmetatable(lua, LUA_GLOBALSINDEX);
    lua_pushvalue(lua, LUA_GLOBALSINDEX);
    protect(lua);
    lua_pushvalue(lua, -1);
    lua_setfield(lua, LUA_GLOBALSINDEX, "_G");
    lua_replace(lua, LUA_GLOBALSINDEX);
}

lua_State *
engine_state(void)
{
    if (engine.lua != NULL)
        return engine.lua;
    lua_State *lua = lua_newstate(engine_memory, NULL);
    require(lua != NULL);
    lua_atpanic(lua, engine_panic);
    engine.lua = lua;
    lua_newtable(lua);
    engine.marks = luaL_ref(lua, LUA_REGISTRYINDEX);
    open_base(lua);
    lua_pushcfunction(lua, error_handler);
    engine.handler = luaL_ref(lua, LUA_REGISTRYINDEX);
    close_globals(lua);
    return lua;
}

/* --- scripts -------------------------------------------------------------- */

static struct compiled *
compiled_find(const char *sha)
{
    for (size_t i = 0; i < engine.count; i++)
        if (memcmp(engine.scripts[i].sha, sha, FAKE_SHA_HEX) == 0)
            return &engine.scripts[i];
    return NULL;
}

/* If there are too many, unused ones go. */
static void
compiled_trim(void)
{
    size_t kept = 0;

    if (engine.count < SCRIPTS_KEPT)
        return;
    for (size_t i = 0; i < engine.count; i++) {
        if (engine.scripts[i].users > 0)
            engine.scripts[kept++] = engine.scripts[i];
        else
            luaL_unref(
                engine.lua, LUA_REGISTRYINDEX, engine.scripts[i].function);
    }
    engine.count = kept;
}

int
engine_compile(const char *sha, struct text body, struct bytes *why)
{
    lua_State *lua = engine_state();
    struct compiled *script = compiled_find(sha);

    if (script != NULL) {
        script->users++;
        return script->function;
    }
    if (luaL_loadbuffer(lua, body.at, body.len, "@user_script") != 0) {
        const char *message = lua_tostring(lua, -1);
        bytes_add(why, message, strlen(message));
        lua_pop(lua, 1);
        return LUA_NOREF;
    }
    compiled_trim();
    engine.scripts = array_room(
        engine.scripts, engine.count, &engine.cap, sizeof(struct compiled));
    script = &engine.scripts[engine.count++];
    memcpy(script->sha, sha, FAKE_SHA_HEX);
    script->users = 1;
    script->function = luaL_ref(lua, LUA_REGISTRYINDEX);
    return script->function;
}

void
engine_release(const char *sha)
{
    struct compiled *script = compiled_find(sha);

    require(script != NULL && script->users > 0);
    script->users--;
}

static void
push_array(lua_State *lua, const struct text *texts, size_t count)
{
    lua_createtable(lua, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_pushlstring(lua, texts[i].at, texts[i].len);
        lua_rawseti(lua, -2, (int)i + 1);
    }
}

void
engine_prepare(const struct text *keys, size_t key_count,
    const struct text *args, size_t arg_count)
{
    lua_State *lua = engine_state();

    lua_rawgeti(lua, LUA_REGISTRYINDEX, engine.handler);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, engine.globals);
    lua_pushliteral(lua, "KEYS");
    push_array(lua, keys, key_count);
    lua_rawset(lua, -3);
    lua_pushliteral(lua, "ARGV");
    push_array(lua, args, arg_count);
    lua_rawset(lua, -3);
    lua_pop(lua, 1);
}
