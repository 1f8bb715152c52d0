/*
 * A reader of RESP2 for the simulator. See reply.h.
 */
#include "tests/sim/reply.h"

#include "daemon/base/assert.h"

#include <string.h>

#define NODES_MAX 65536

static struct resp nodes[NODES_MAX];
static size_t nodes_used;

/* The line's end (its LF), or NULL. */
static const char *
line_end(const char *at, const char *end)
{
    return memchr(at, '\n', (size_t)(end - at));
}

static int64_t
line_number(const char *at, const char *eol)
{
    bool negative = *at == '-';
    int64_t value = 0;

    for (at += negative; at < eol && *at != '\r'; at++) {
        require(*at >= '0' && *at <= '9');
        value = value * 10 + (*at - '0');
    }
    return negative ? -value : value;
}

static const char *parse(const char *at, const char *end, struct resp *out);

static const char *
parse_array(const char *at, const char *end, struct resp *out, int64_t count)
{
    out->type = count < 0 ? RESP_NIL : RESP_ARRAY;
    if (count <= 0)
        return at;
    require(nodes_used + (size_t)count <= NODES_MAX);
    struct resp *items = &nodes[nodes_used];
    nodes_used += (size_t)count;
    out->item = items;
    out->count = (size_t)count;
    for (int64_t i = 0; i < count; i++) {
        at = parse(at, end, &items[i]);
        if (at == NULL)
            return NULL;
    }
    return at;
}

/* Behind the value, or NULL where not all of it is there. */
static const char *
parse(const char *at, const char *end, struct resp *out)
{
    const char *eol = at < end ? line_end(at, end) : NULL;

    if (eol == NULL)
        return NULL;
    memset(out, 0, sizeof(*out));
    size_t len = (size_t)(eol - at) - 1;
    require(eol > at && eol[-1] == '\r');
    switch (*at) {
    case '+':
    case '-':
        out->type = *at == '+' ? RESP_STATUS : RESP_ERROR;
        out->text = text_make(at + 1, len - 1);
        return eol + 1;
    case ':':
        out->type = RESP_INTEGER;
        out->integer = line_number(at + 1, eol);
        return eol + 1;
    case '*':
        return parse_array(eol + 1, end, out, line_number(at + 1, eol));
    default:
        require(*at == '$');
    }
    int64_t bytes = line_number(at + 1, eol);
    out->type = bytes < 0 ? RESP_NIL : RESP_STRING;
    if (bytes < 0)
        return eol + 1;
    if (end - (eol + 1) < bytes + 2)
        return NULL;
    out->text = text_make(eol + 1, (size_t)bytes);
    return eol + 1 + bytes + 2;
}

size_t
reply_parse(const char *bytes, size_t len, const struct resp **reply)
{
    nodes_used = 1;
    const char *behind = parse(bytes, bytes + len, &nodes[0]);

    *reply = &nodes[0];
    return behind == NULL ? 0 : (size_t)(behind - bytes);
}
