/*
 * Which lines of the scripts of lua/ have run: counted by a hook of Lua, which
 * takes time, so it is for some runs only.
 */
#ifndef HOLDFAST_TESTS_SIM_FAKE_COVER_H
#define HOLDFAST_TESTS_SIM_FAKE_COVER_H

#include "daemon/store/wire/scripts.h"

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

#define COVER_LINES 2048 /* a script has fewer, as it is built in */

/* A bit for each line. */
struct cover {
    uint8_t lines[SCRIPT_COUNT][COVER_LINES / 8];
};

/* From now on lines that run are set in `cover`, which stays the caller's;
 * NULL: nowhere. */
void cover_into(struct cover *cover);

/* Around a run of the script with that hash. */
void cover_begin(lua_State *lua, const char *sha);
void cover_end(lua_State *lua);

void cover_add(struct cover *to, const struct cover *from);

/* Says how many of the lines with code in them have run; and, where `lines` is
 * set, which have not. */
void cover_say(const struct cover *cover, bool lines);

#endif
