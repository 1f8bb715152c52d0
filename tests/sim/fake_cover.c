/*
 * Lines of scripts that ran, and lines that could have: those that the
 * compiler notes with its code, taken out of a dump of the compiled script.
 */
#include "tests/sim/fake_cover.h"

#include "daemon/base/assert.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHA_HEX 40

static struct {
    struct cover *into; /* ref, or NULL */
    uint8_t *lines;     /* ref: those of the running script */
} covering;

static void
set_line(uint8_t *lines, int line)
{
    require(line >= 0 && line < COVER_LINES);
    lines[line / 8] |= (uint8_t)(1u << (line % 8));
}

static bool
has_line(const uint8_t *lines, int line)
{
    return (lines[line / 8] >> (line % 8) & 1) != 0;
}

void
cover_into(struct cover *cover)
{
    covering.into = cover;
}

static void
on_line(lua_State *lua, lua_Debug *at)
{
    (void)lua;
    set_line(covering.lines, at->currentline);
}

void
cover_begin(lua_State *lua, const char *sha)
{
    if (covering.into == NULL)
        return;
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        if (memcmp(scripts[i].sha1, sha, SHA_HEX) != 0)
            continue;
        covering.lines = covering.into->lines[i];
        lua_sethook(lua, on_line, LUA_MASKLINE, 0);
    }
}

void
cover_end(lua_State *lua)
{
    if (covering.lines != NULL)
        lua_sethook(lua, NULL, 0, 0);
    covering.lines = NULL;
}

void
cover_add(struct cover *to, const struct cover *from)
{
    for (int i = 0; i < SCRIPT_COUNT; i++)
        for (size_t at = 0; at < COVER_LINES / 8; at++)
            to->lines[i][at] |= from->lines[i][at];
}

/* --- lines with code ------------------------------------------------------ */

/* A compiled chunk as lua_dump() of Lua 5.1 writes it. */
struct dump {
    char *at; /* owned */
    size_t len;
    size_t done;
};

static int
dump_write(lua_State *lua, const void *bytes, size_t len, void *arg)
{
    struct dump *dump = arg;

    (void)lua;
    dump->at = realloc(dump->at, dump->len + len);
    require(dump->at != NULL);
    memcpy(dump->at + dump->len, bytes, len);
    dump->len += len;
    return 0;
}

static const char *
dump_take(struct dump *dump, size_t len)
{
    const char *at = dump->at + dump->done;

    require(len <= dump->len - dump->done);
    dump->done += len;
    return at;
}

static int
dump_int(struct dump *dump)
{
    int value;

    memcpy(&value, dump_take(dump, sizeof(value)), sizeof(value));
    return value;
}

static void
dump_string(struct dump *dump)
{
    size_t len;

    memcpy(&len, dump_take(dump, sizeof(len)), sizeof(len));
    (void)dump_take(dump, len);
}

static void
dump_constants(struct dump *dump)
{
    for (int left = dump_int(dump); left > 0; left--) {
        switch (*dump_take(dump, 1)) {
        case LUA_TNIL:
            break;
        case LUA_TBOOLEAN:
            (void)dump_take(dump, 1);
            break;
        case LUA_TNUMBER:
            (void)dump_take(dump, sizeof(lua_Number));
            break;
        case LUA_TSTRING:
            dump_string(dump);
            break;
        default:
            require(false);
        }
    }
}

static void
dump_function(struct dump *dump, uint8_t *lines)
{
    dump_string(dump); /* its source */
    (void)dump_take(dump, 2 * sizeof(int) + 4);
    (void)dump_take(dump, (size_t)dump_int(dump) * 4); /* its code */
    dump_constants(dump);
    for (int left = dump_int(dump); left > 0; left--)
        dump_function(dump, lines);
    for (int left = dump_int(dump); left > 0; left--)
        set_line(lines, dump_int(dump));
    for (int left = dump_int(dump); left > 0; left--) { /* local variables */
        dump_string(dump);
        (void)dump_take(dump, 2 * sizeof(int));
    }
    for (int left = dump_int(dump); left > 0; left--) /* upvalues */
        dump_string(dump);
}

/* The first line, `#!lua`, is no code, and kept so that lines have the same
 * numbers. */
static void
lines_of(const struct script *script, uint8_t *lines)
{
    const char *code = memchr(script->body, '\n', script->body_len);
    lua_State *lua = luaL_newstate();
    struct dump dump = {.done = 12}; /* behind its header */

    require(lua != NULL && code != NULL);
    size_t skipped = (size_t)(code - script->body);
    int status =
        luaL_loadbuffer(lua, code, script->body_len - skipped, script->name);
    require(status == 0);
    (void)lua_dump(lua, dump_write, &dump);
    dump_function(&dump, lines);
    require(dump.done == dump.len);
    free(dump.at);
    lua_close(lua);
}

/* The end of a block has code too; whether it ran says nothing. */
static bool
line_counts(const char *line, size_t len)
{
    return len < 3 || strncmp(line, "end", 3) != 0;
}

/* A line with code in it. A line that several scripts include counts once. */
struct code_line {
    const char *at; /* ref */
    size_t len;
    bool ran;
};

static void
note_line(
    struct code_line *all, size_t *count, const char *at, size_t len, bool ran)
{
    for (size_t i = 0; i < *count; i++)
        if (all[i].len == len && memcmp(all[i].at, at, len) == 0) {
            all[i].ran = all[i].ran || ran;
            return;
        }
    all[(*count)++] = (struct code_line){at, len, ran};
}

void
cover_say(const struct cover *cover, bool lines)
{
    static struct code_line all[SCRIPT_COUNT * COVER_LINES];
    size_t count = 0;
    size_t ran = 0;

    for (int i = 0; i < SCRIPT_COUNT; i++) {
        uint8_t code[COVER_LINES / 8] = {0};
        const char *line = scripts[i].body;
        lines_of(&scripts[i], code);
        for (int n = 1; *line != '\0'; n++) {
            size_t len = strcspn(line, "\n");
            if (has_line(code, n) && line_counts(line, len))
                note_line(all, &count, line, len, has_line(cover->lines[i], n));
            line += len + 1;
        }
    }
    for (size_t i = 0; i < count; i++) {
        ran += all[i].ran;
        if (lines && !all[i].ran)
            printf("never ran: %.*s\n", (int)all[i].len, all[i].at);
    }
    printf("lines of the scripts that ran: %zu of %zu\n", ran, count);
}
