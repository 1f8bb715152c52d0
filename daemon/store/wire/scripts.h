/*
 * The Lua scripts, as they were built into the program from lua/ (see
 * lua/embed.py): includes put in, comments and indentation taken out.
 */
#ifndef HOLDFAST_STORE_WIRE_SCRIPTS_H
#define HOLDFAST_STORE_WIRE_SCRIPTS_H

#include <stddef.h>

enum script_id {
    SCRIPT_ACQUIRE,
    SCRIPT_RELEASE,
    SCRIPT_RENEW,
    SCRIPT_INSPECT,
    SCRIPT_BREAK,
    SCRIPT_AUDIT,
    SCRIPT_COUNT,
    SCRIPT_NONE = SCRIPT_COUNT
};

/* Those before it are loaded with each connection, the others once they are
 * asked for. */
#define SCRIPTS_AT_ONCE SCRIPT_AUDIT

struct script {
    const char *name; /* that of the file, without .lua */
    const char *body; /* NUL-terminated */
    size_t body_len;
    const char *sha1; /* of the body: 40 lower-case hex digits, for EVALSHA */
};

extern const struct script scripts[SCRIPT_COUNT];

#endif
