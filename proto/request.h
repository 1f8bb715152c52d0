/*
 * One request line to a struct, by the grammar of PROTOCOL.md. It takes no
 * memory: words are decoded in place, in the caller's line.
 */
#ifndef HOLDFAST_PROTO_REQUEST_H
#define HOLDFAST_PROTO_REQUEST_H

#include "daemon/base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define PROTO_VERSION    1
#define PROTO_LINE_MAX   4096 /* bytes, with its LF */
#define PROTO_NAME_MAX   255  /* decoded bytes of a lock's name */
#define PROTO_TAG_MAX    16
#define PROTO_OWNER_MAX  64
#define LOCK_NAMES_MAX   16 /* of one LOCK */
#define PROTO_NOTE_MAX   128
#define PROTO_CLIENT_MAX 64                /* HELLO name= */
#define PROTO_USER_MAX   64                /* decoded bytes */
#define PROTO_SECRET_MAX 255               /* decoded bytes */
#define PROTO_COUNT_MAX  2147483647u       /* entries of one hold, 2^31 - 1 */
#define PROTO_NUMBER_MAX 9007199254740991u /* of PONG */

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

/* Static texts of the tables; an index must be below its _COUNT. The name of a
 * command on the wire, its arguments, and its help: */
const char *command_name(enum command command);
const char *command_usage(enum command command);
const char *command_help(enum command command);

/* The code of an error on the wire, its retry=, and its meaning. */
const char *error_name(enum error_code code);
bool error_retry(enum error_code code);
const char *error_meaning(enum error_code code);

/* The meaning of the error as an answer to `command`. */
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
    /* The next two are set only if request_has() the key. */
    struct text word[REQUEST_KEY_COUNT]; /* refs into the line; WORD keys */
    uint64_t value[REQUEST_KEY_COUNT];   /* NUMBER, FLAG; DURATION in ms */
};

struct request_error {
    enum error_code code;
    const char *what; /* static; for people */
};

enum request_status {
    REQUEST_OK,
    REQUEST_BLANK, /* an empty line, which is ignored */
    REQUEST_BAD,   /* error says why; request->tag is set if it is valid */
};

static inline bool
request_has(const struct request_line *request, enum request_key key)
{
    return (request->keys >> key & 1u) != 0;
}

/* The value of a NUMBER, FLAG or DURATION; `otherwise` if it is not given. */
static inline uint64_t
request_value(const struct request_line *request, enum request_key key,
    uint64_t otherwise)
{
    return request_has(request, key) ? request->value[key] : otherwise;
}

/* Whether the request has detached=1. */
static inline bool
line_is_detached(const struct request_line *request)
{
    return request_has(request, REQUEST_KEY_DETACHED) &&
           request->value[REQUEST_KEY_DETACHED] != 0;
}

/* Parses one line, without its LF or CR LF, and overwrites it. `name_max` is
 * the longest lock name, 1 to PROTO_NAME_MAX. `out` refers into `line`. */
enum request_status request_parse(char *line, size_t len, size_t name_max,
    struct request_line *out, struct request_error *error);

/* Reads the tag of a line that is too long to parse. `tag` has room for
 * PROTO_TAG_MAX + 1 bytes. False: there is no valid tag; `tag` is empty. */
bool request_tag(const char *line, size_t len, char *tag);

/*
 * Whether the line is of TLS or HTTP at the wrong port, or of the PROXY
 * protocol, which is not supported. The broker then says BYE and closes, so
 * that no web page can make a browser send requests. `line` may be incomplete.
 */
bool line_foreign(const char *line, size_t len);

enum line_status {
    LINE_FOUND,    /* *line is set */
    LINE_MORE,     /* the bytes have no whole line */
    LINE_TOO_LONG, /* *line has the first line_max bytes; the rest is skipped */
};

/*
 * Finds the next line in `len` bytes at `data`. `line_max` counts the LF. The
 * line has neither its LF nor a CR before it. The caller drops *used bytes, and
 * keeps the rest, which after LINE_MORE is shorter than `line_max`. `skipping`
 * is the connection's, false at first: the next bytes are of a line that was
 * too long.
 */
enum line_status line_next(char *data, size_t len, size_t line_max,
    bool *skipping, size_t *used, char **line, size_t *line_len);

#endif
