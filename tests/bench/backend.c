/* The measured ways to a lock: see backend.h. */
#include "tests/bench/backend.h"

#include "tests/bench/net.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHA_BYTES     40
#define REPLY_WAIT_MS 5000
#define LEASE_MS      "30000"
#define COMMAND_PARTS 7

/* The ones that everybody uses: Redis' own documentation. */
static const char setnx_release[] =
    "if redis.call('get', KEYS[1]) == ARGV[1] then"
    " return redis.call('del', KEYS[1]) else return 0 end";

static const char hash_acquire[] =
    "local time = redis.call('TIME') "
    "local owner = redis.call('HGET', KEYS[1], 'owner') "
    "local fence "
    "if not owner then"
    " fence = redis.call('INCR', KEYS[2])"
    " local ends = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]"
    " redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fence', fence,"
    " 'ends', string.format('%.0f', ends)) "
    "elseif owner == ARGV[1] then"
    " fence = tonumber(redis.call('HGET', KEYS[1], 'fence')) "
    "else return 0 end "
    "redis.call('HINCRBY', KEYS[1], 'count', 1) "
    "redis.call('PEXPIRE', KEYS[1], ARGV[2]) "
    "return fence";

static const char hash_release[] =
    "if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end "
    "if redis.call('HINCRBY', KEYS[1], 'count', -1) == 0 then"
    " redis.call('DEL', KEYS[1]) end "
    "return 1";

static char sha_acquire[SHA_BYTES + 1];
static char sha_release[SHA_BYTES + 1];

/* Appends a command of `count` words (const char *) as RESP. */
static size_t
resp_command(char *out, size_t room, int count, ...)
{
    va_list words;
    int used = snprintf(out, room, "*%d\r\n", count);

    va_start(words, count);
    for (int i = 0; i < count; i++) {
        const char *word = va_arg(words, const char *);

        used += snprintf(out + used, room - (size_t)used, "$%zu\r\n%s\r\n",
            strlen(word), word);
        if ((size_t)used >= room)
            die("a command is too long");
    }
    va_end(words);
    return (size_t)used;
}

static void
load_script(struct peer *peer, const char *script, char *sha)
{
    char out[2048];
    char *line;

    peer_send_bytes(
        peer, out, resp_command(out, sizeof(out), 3, "SCRIPT", "LOAD", script));
    line = peer_line(peer, REPLY_WAIT_MS);
    if (line == NULL || strcmp(line, "$40") != 0)
        die("SCRIPT LOAD: %s", line != NULL ? line : "no answer");
    line = peer_line(peer, REPLY_WAIT_MS);
    if (line == NULL || strlen(line) != SHA_BYTES)
        die("SCRIPT LOAD: no digest");
    memcpy(sha, line, SHA_BYTES + 1);
}

static void
load_two(const char *address, const char *acquire, const char *release)
{
    static struct peer peer;

    peer_open(&peer, address);
    if (acquire != NULL)
        load_script(&peer, acquire, sha_acquire);
    load_script(&peer, release, sha_release);
    peer_close(&peer);
}

static void
setnx_prepare(const char *address)
{
    load_two(address, NULL, setnx_release);
}

static void
hash_prepare(const char *address)
{
    load_two(address, hash_acquire, hash_release);
}

static void
holdfast_prepare(const char *address)
{
    (void)address;
}

/* A token as long as the random ones in use. */
static void
write_owner(const struct request *request, char *out, size_t room)
{
    snprintf(out, room, "c%09ul%09u", request->connection, request->lane);
}

static size_t
setnx_write(const struct request *request, char *out)
{
    char key[32];
    char token[32];

    snprintf(key, sizeof(key), "bench:{%u}", request->key);
    write_owner(request, token, sizeof(token));
    if (request->releasing)
        return resp_command(
            out, REQUEST_BYTES_MAX, 5, "EVALSHA", sha_release, "1", key, token);
    return resp_command(
        out, REQUEST_BYTES_MAX, 6, "SET", key, token, "NX", "PX", LEASE_MS);
}

static size_t
hash_write(const struct request *request, char *out)
{
    char key[32];
    char fence[48];
    char owner[32];

    snprintf(key, sizeof(key), "bench:{%u}", request->key);
    snprintf(fence, sizeof(fence), "bench:{%u}:fence", request->key);
    write_owner(request, owner, sizeof(owner));
    if (request->releasing)
        return resp_command(
            out, REQUEST_BYTES_MAX, 5, "EVALSHA", sha_release, "1", key, owner);
    return resp_command(out, REQUEST_BYTES_MAX, COMMAND_PARTS, "EVALSHA",
        sha_acquire, "2", key, fence, owner, LEASE_MS);
}

static size_t
holdfast_write(const struct request *request, char *out)
{
    return (size_t)snprintf(out, REQUEST_BYTES_MAX, "%u %s bench%u\n",
        request->lane, request->releasing ? "UNLOCK" : "LOCK", request->key);
}

static size_t
tree_write(const struct request *request, char *out)
{
    return (size_t)snprintf(out, REQUEST_BYTES_MAX,
        request->releasing ? "%u UNLOCK root/%u\n" : "%u LOCK root/%u tree=1\n",
        request->lane, request->key);
}

/* Status, error, integer and nil: all that these commands answer. */
static size_t
resp_read(const char *in, size_t bytes, struct reply *reply)
{
    const char *end = memchr(in, '\n', bytes);

    if (end == NULL)
        return 0;
    reply->lane = -1;
    reply->number = -1;
    reply->why = in;
    reply->why_bytes = (size_t)(end - in);
    switch (in[0]) {
    case '+':
        reply->kind = REPLY_STATUS;
        break;
    case ':':
        reply->kind = REPLY_INTEGER;
        reply->number = strtoll(in + 1, NULL, 10);
        break;
    case '$':
    case '*':
        reply->kind = in[1] == '-' ? REPLY_NIL : REPLY_ERROR;
        break;
    default:
        reply->kind = REPLY_ERROR;
        break;
    }
    return (size_t)(end - in) + 1;
}

/* The number after " key=" in a line of `bytes`, or -1. */
static int64_t
line_number(const char *line, size_t bytes, const char *key)
{
    size_t length = strlen(key);

    for (size_t i = 0; i + length < bytes; i++) {
        if (line[i] == key[0] && memcmp(line + i, key, length) == 0)
            return strtoll(line + i + length, NULL, 10);
    }
    return -1;
}

static size_t
line_read(const char *in, size_t bytes, struct reply *reply)
{
    const char *end = memchr(in, '\n', bytes);
    size_t length;
    char *rest;

    if (end == NULL)
        return 0;
    length = (size_t)(end - in);
    reply->why = in;
    reply->why_bytes = length;
    reply->kind = REPLY_ERROR;
    reply->number = -1;
    reply->lane = -1;
    if (in[0] == '*') {
        reply->kind = REPLY_EVENT;
        return length + 1;
    }
    reply->lane = (int)strtol(in, &rest, 10);
    if (end - rest >= 4 && memcmp(rest, " OK ", 4) == 0) {
        reply->kind = REPLY_STATUS;
        reply->number = line_number(in, length, " fence=");
        if (reply->number < 0) /* of an UNLOCK: 0, all given back */
            reply->number = -line_number(in, length, " count=");
    } else if (end - rest >= 9 && memcmp(rest, " ERR BUSY", 9) == 0) {
        reply->kind = REPLY_NIL;
    }
    return length + 1;
}

static enum verdict
setnx_judge(const struct reply *reply, bool releasing)
{
    if (releasing)
        return reply->kind == REPLY_INTEGER && reply->number == 1
                   ? VERDICT_DONE
                   : VERDICT_WRONG;
    if (reply->kind == REPLY_NIL)
        return VERDICT_BUSY;
    return reply->kind == REPLY_STATUS ? VERDICT_DONE : VERDICT_WRONG;
}

static enum verdict
hash_judge(const struct reply *reply, bool releasing)
{
    if (reply->kind != REPLY_INTEGER || reply->number < 0)
        return VERDICT_WRONG;
    if (reply->number > 0)
        return VERDICT_DONE;
    return releasing ? VERDICT_WRONG : VERDICT_BUSY;
}

static enum verdict
holdfast_judge(const struct reply *reply, bool releasing)
{
    if (!releasing && reply->kind == REPLY_NIL)
        return VERDICT_BUSY;
    if (reply->kind != REPLY_STATUS)
        return VERDICT_WRONG;
    return (reply->number == 0) == releasing && reply->number >= 0
               ? VERDICT_DONE
               : VERDICT_WRONG;
}

static const struct backend backends[] = {
    {
        .name = "setnx",
        .prepare = setnx_prepare,
        .write = setnx_write,
        .read = resp_read,
        .judge = setnx_judge,
    },
    {
        .name = "hash",
        .prepare = hash_prepare,
        .write = hash_write,
        .read = resp_read,
        .judge = hash_judge,
    },
    {
        .name = "holdfast",
        .prepare = holdfast_prepare,
        .greets = true,
        .write = holdfast_write,
        .read = line_read,
        .judge = holdfast_judge,
    },
    {
        .name = "tree",
        .prepare = holdfast_prepare,
        .greets = true,
        .write = tree_write,
        .read = line_read,
        .judge = holdfast_judge,
    },
};

const struct backend *
backend_find(const char *name)
{
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (strcmp(backends[i].name, name) == 0)
            return &backends[i];
    }
    return NULL;
}
