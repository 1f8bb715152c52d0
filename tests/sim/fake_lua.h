/*
 * Between the two halves of the fake Redis's Lua; see fake_engine.c.
 */
#ifndef HOLDFAST_TESTS_SIM_FAKE_LUA_H
#define HOLDFAST_TESTS_SIM_FAKE_LUA_H

#include "tests/sim/fake_state.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

/* One for all servers of the process, made when first asked for. */
lua_State *engine_state(void);

/* A reference to the compiled script, which is kept as long as it is used;
 * LUA_NOREF where it does not compile: then `why` says what is wrong. */
int engine_compile(const char *sha, struct text body, struct bytes *why);
void engine_release(const char *sha);

/* Sets KEYS and ARGV, and leaves the error handler on the stack. */
void engine_prepare(const struct text *keys, size_t key_count,
    const struct text *args, size_t arg_count);

/* Leave the library's table on the stack. */
void engine_open_struct(lua_State *lua);
void engine_open_bit(lua_State *lua);
void engine_open_redis(lua_State *lua);

/* The server whose script is running, or NULL. */
struct fake *engine_fake(void);
void engine_enter(struct fake *fake);
void engine_leave(void);

/* {err = ...}: as Redis makes it of "-CODE text" or of "text". */
void engine_push_error(lua_State *lua, const char *text);

#endif
