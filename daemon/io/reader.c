/*
 * hiredis' reader as the codec. Replies are trees in memory of our own, which
 * is freed as a whole: values need no allocation each.
 *
 * Input from Redis is not trusted. A reply, parsed or incomplete, has a limit.
 * A type that RESP2 lacks ends the reader.
 */
#include "daemon/io/redis.h"

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES 65536

/* The memory of one reply. */
struct arena_block {
    struct arena_block *next; /* owned */
    size_t used;
    size_t capacity;
    max_align_t bytes[];
};

struct reader {
    redisReader *codec; /* owned */
    struct arena_block *arena;
    size_t taken; /* of the current or the last reply */
    bool whole;   /* the last reply was given out */
    bool begun;   /* some bytes came */
    bool foreign; /* they are the greeting of a broker */
};

static void *
arena_take(struct reader *reader, size_t bytes)
{
    struct arena_block *block = reader->arena;

    if (bytes > READER_REPLY_MAX - reader->taken)
        return NULL;
    reader->taken += bytes;
    bytes = (bytes + 15) / 16 * 16;
    if (block == NULL || block->capacity - block->used < bytes) {
        size_t capacity = bytes > ARENA_BYTES ? bytes : ARENA_BYTES;
        block = malloc(sizeof(*block) + capacity);
        if (block == NULL)
            return NULL;
        block->next = reader->arena;
        block->used = 0;
        block->capacity = capacity;
        reader->arena = block;
    }
    void *at = (char *)block->bytes + block->used;
    block->used += bytes;
    return at;
}

/* Frees the reply, but keeps one block of the usual size for the next. */
static void
arena_reset(struct reader *reader)
{
    struct arena_block *block = reader->arena;

    while (block != NULL &&
           (block->next != NULL || block->capacity > ARENA_BYTES)) {
        reader->arena = block->next;
        free(block);
        block = reader->arena;
    }
    if (block != NULL)
        block->used = 0;
    reader->taken = 0;
}

/* The place of the next value; NULL: no memory. */
static struct resp *
reader_value(const redisReadTask *task, enum resp_type type)
{
    struct reader *reader = task->privdata;
    struct resp *value;

    if (task->parent != NULL) {
        const struct resp *parent = task->parent->obj;
        value = (struct resp *)(uintptr_t)&parent->item[task->idx];
    } else {
        value = arena_take(reader, sizeof(*value));
    }
    if (value != NULL) {
        memset(value, 0, sizeof(*value));
        value->type = type;
    }
    return value;
}

/* NULL ends the connection: no memory, or a type that RESP2 lacks. */
static void *
reader_string(const redisReadTask *task, char *bytes, size_t len)
{
    enum resp_type type = task->type == REDIS_REPLY_ERROR    ? RESP_ERROR
                          : task->type == REDIS_REPLY_STATUS ? RESP_STATUS
                                                             : RESP_STRING;

    if (type == RESP_STRING && task->type != REDIS_REPLY_STRING)
        return NULL;
    struct resp *value = reader_value(task, type);
    char *copy = arena_take(task->privdata, len + 1);
    if (value == NULL || copy == NULL)
        return NULL;
    memcpy(copy, bytes, len);
    copy[len] = '\0';
    value->text = text_make(copy, len);
    return value;
}

static void *
reader_array_of(const redisReadTask *task, size_t count)
{
    if (task->type != REDIS_REPLY_ARRAY)
        return NULL;
    struct resp *value = reader_value(task, RESP_ARRAY);
    struct resp *items = arena_take(task->privdata, count * sizeof(*items));
    if (value == NULL || items == NULL)
        return NULL;
    memset(items, 0, count * sizeof(*items));
    value->item = items;
    value->count = count;
    return value;
}

/*
 * hiredis 1.0 changed the type of a count and learned RESP3. It makes up a
 * pointer for a double or a boolean if no function takes it. So two functions
 * refuse them.
 */
#if HIREDIS_MAJOR >= 1
static void *
reader_array(const redisReadTask *task, size_t count)
{
    return reader_array_of(task, count);
}

static void *
reader_double(const redisReadTask *task, double value, char *text, size_t len)
{
    (void)task;
    (void)value;
    (void)text;
    (void)len;
    return NULL;
}

static void *
reader_bool(const redisReadTask *task, int value)
{
    (void)task;
    (void)value;
    return NULL;
}
#else
static void *
reader_array(const redisReadTask *task, int count)
{
    return reader_array_of(task, count < 0 ? 0 : (size_t)count);
}
#endif

static void *
reader_integer(const redisReadTask *task, long long integer)
{
    struct resp *value = reader_value(task, RESP_INTEGER);

    if (value != NULL)
        value->integer = integer;
    return value;
}

static void *
reader_nil(const redisReadTask *task)
{
    return reader_value(task, RESP_NIL);
}

static void
reader_free(void *value)
{
    (void)value; /* the arena's */
}

static redisReplyObjectFunctions reader_functions = {
    .createString = reader_string,
    .createArray = reader_array,
    .createInteger = reader_integer,
    .createNil = reader_nil,
#if HIREDIS_MAJOR >= 1
    .createDouble = reader_double,
    .createBool = reader_bool,
#endif
    .freeObject = reader_free,
};

struct reader *
reader_create(void)
{
    struct reader *reader = calloc(1, sizeof(*reader));

    if (reader == NULL)
        return NULL;
    reader->codec = redisReaderCreateWithFunctions(&reader_functions);
    if (reader->codec == NULL) {
        free(reader);
        return NULL;
    }
    reader->codec->privdata = reader;
    reader->codec->maxbuf = 0; /* keep the buffer when idle */
    return reader;
}

void
reader_destroy(struct reader **reader)
{
    if (*reader == NULL)
        return;
    redisReaderFree((*reader)->codec);
    arena_reset(*reader);
    free((*reader)->arena);
    free(*reader);
    *reader = NULL;
}

bool
reader_feed(struct reader *reader, const char *bytes, size_t len)
{
    const redisReader *codec = reader->codec;

    /* The codec would wait for the missing CR of a line. */
    if (!reader->begun)
        reader->foreign = text_starts_with(text_make(bytes, len), TEXT("* "));
    reader->begun = true;
    return codec->len - codec->pos + len <= READER_REPLY_MAX &&
           redisReaderFeed(reader->codec, bytes, len) == REDIS_OK;
}

enum reader_status
reader_next(struct reader *reader, const struct resp **reply)
{
    void *value = NULL;

    if (reader->whole)
        arena_reset(reader);
    reader->whole = false;
    *reply = NULL;
    if (reader->foreign ||
        redisReaderGetReply(reader->codec, &value) != REDIS_OK)
        return READER_BROKEN;
    if (value == NULL)
        return READER_MORE;
    reader->whole = true;
    *reply = value;
    return READER_REPLY;
}
