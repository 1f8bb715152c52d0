/*
 * One request line to a struct. No allocation: words are decoded in place, in
 * the caller's line. See PROTOCOL.md for the grammar.
 */
#ifndef HOLDFAST_PROTO_REQUEST_H
#define HOLDFAST_PROTO_REQUEST_H

#include "daemon/base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define PROTO_VERSION    1
#define PROTO_LINE_MAX   4096 /* bytes, with its LF */
#define PROTO_NAME_MAX   255  /* bytes of a lock's name, decoded */
#define PROTO_TAG_MAX    16
#define PROTO_OWNER_MAX  32
#define LOCK_NAMES_MAX   16 /* of one LOCK */
#define PROTO_NOTE_MAX   128
#define PROTO_CLIENT_MAX 64 /* HELLO name= */
#define PROTO_USER_MAX   64 /* AUTH, decoded, as the next one */
#define PROTO_SECRET_MAX 255
#define PROTO_COUNT_MAX  2147483647u       /* entries of one hold, 2^31 - 1 */
#define PROTO_NUMBER_MAX 9007199254740991u /* what PONG takes */

enum command {
#define COMMAND(id, ...) COMMAND_##id,
#include "proto/commands.def"
    COMMAND_COUNT
};

enum request_key {
#define KEY(id, word, type, min, max) REQUEST_KEY_##id,
#include "proto/commands.def"
    REQUEST_KEY_COUNT
};

enum error_code {
#define ERROR(id, retry, meaning) ERROR_##id,
#include "proto/commands.def"
    ERROR_COUNT
};

enum event_code {
#define EVENT(id, form, meaning) EVENT_##id,
#include "proto/commands.def"
    EVENT_COUNT
};

/*
 * Static facts of the tables above; the index must be below its _COUNT. The
 * name of a command as on the wire, its arguments, and a sentence on it:
 */
const char *command_name(enum command command);
const char *command_usage(enum command command);
const char *command_help(enum command command);

/* The code of an error on the wire, its retry=, and a sentence on it. */
const char *error_name(enum error_code code);
bool error_retry(enum error_code code);
const char *error_meaning(enum error_code code);

/* The sentence on the error where `command` is answered by it: its own where
 * the table has one, else error_meaning(). */
const char *error_outcome(enum error_code code, enum command command);

/* The verb of an event on the wire. */
const char *event_name(enum event_code code);

struct request_line {
    enum command command;        /* COMMAND_COUNT: not recognized */
    char tag[PROTO_TAG_MAX + 1]; /* NUL-terminated; empty: untagged */
    struct text argument;        /* ref into the line; the positional word */
    uint32_t name_count;         /* of LOCK: names; of AUTH: 2; else 0 */
    struct text names[LOCK_NAMES_MAX]; /* refs; the first is `argument` */
    uint64_t number;                   /* of a NUMBER argument */
    uint32_t keys; /* bit 1 << REQUEST_KEY_x for each one given */
    /* What follows is set only where request_has() the key. */
    struct text word[REQUEST_KEY_COUNT]; /* refs into the line; WORD keys */
    uint64_t value[REQUEST_KEY_COUNT];   /* NUMBER, FLAG; DURATION in ms */
};

struct request_error {
    enum error_code code;
    const char *what; /* static text for people */
};

enum request_status {
    REQUEST_OK,
    REQUEST_BLANK, /* to be ignored */
    REQUEST_BAD,   /* error says why; request->tag is set where it was good */
};

static inline bool
request_has(const struct request_line *request, enum request_key key)
{
    return (request->keys >> key & 1u) != 0;
}

/*
 * Parses one line (without LF or CR LF), overwriting it. `name_max` is the
 * longest lock name, 1 to PROTO_NAME_MAX. `out` refers into `line`.
 */
enum request_status request_parse(char *line, size_t len, size_t name_max,
    struct request_line *out, struct request_error *error);

/*
 * The tag that a line begins with, for a line that is not parsed since it is
 * too long: NUL-terminated in `tag`, which has room for PROTO_TAG_MAX + 1.
 * False, and an empty tag, where there is none or it is malformed.
 */
bool request_tag(const char *line, size_t len, char *tag);

/*
 * The beginning of TLS or HTTP, spoken to the wrong port, or the header of the
 * PROXY protocol, which is not supported: to be answered by a
 * BYE and a close, so that no web page can make a browser send requests here.
 * `line` may be incomplete.
 */
bool line_foreign(const char *line, size_t len);

enum line_status {
    LINE_FOUND,    /* *line is set, *used bytes are done with */
    LINE_MORE,     /* no LF in it: keep the bytes after *used for later */
    LINE_TOO_LONG, /* over the limit; told once, the rest is skipped; *line is
                      its first line_max bytes, good for request_tag() */
};

/*
 * Finds the next line in `len` bytes at `data`. `line_max` counts the LF.
 * `skipping` is the connection's memory of being inside an overlong line, false
 * at first. `line` is without LF, and without the CR directly before it.
 * After LINE_MORE fewer than `line_max` bytes remain to be kept.
 */
enum line_status line_next(char *data, size_t len, size_t line_max,
    bool *skipping, size_t *used, char **line, size_t *line_len);

#endif
