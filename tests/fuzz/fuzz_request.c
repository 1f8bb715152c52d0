/*
 * The input is sent by a client. For each input:
 *
 * - however it is cut into reads, the same lines come out;
 * - parsing a line touches no byte outside it, and what it finds lies in it;
 * - a request that was taken, written down and parsed again, is the same one;
 * - percent-encoding goes round.
 *
 * Sizes of reads and limits are taken from the input's sum, so that an input is
 * plain text.
 */
#include "daemon/base/assert.h"
#include "proto/reply.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum key_type {
    WORD,
    DURATION,
    NUMBER,
    FLAG,
};

static const struct {
    const char *word;
    enum key_type type;
    uint64_t min;
    uint64_t max;
} key_rows[] = {

#define KEY(id, word, type, min, max) {word, type, min, max},
#include "proto/commands.def"
};

/* A copy with nothing around it, so that the sanitizer sees a byte too many. */
static char *
copy_bytes(const char *bytes, size_t len)
{
    char *copy = malloc(len == 0 ? 1 : len);

    require(copy != NULL);
    memcpy(copy, bytes, len);
    return copy;
}

static void
check_inside(struct text text, const char *line, size_t len)
{
    require(text.len > 0);
    require(text.at >= line && text.at + text.len <= line + len);
}

static void
check_request(const struct request_line *request, const char *line, size_t len,
    size_t name_max)
{
    require(request->command < COMMAND_COUNT);
    require(strlen(request->tag) <= PROTO_TAG_MAX);
    require(request->keys >> REQUEST_KEY_COUNT == 0);
    if (request->argument.len > 0)
        check_inside(request->argument, line, len);
    require(request->argument.len <= name_max ||
            request->command == COMMAND_CANCEL ||
            request->command == COMMAND_KILL ||
            request->command == COMMAND_PONG);
    for (int i = 0; i < REQUEST_KEY_COUNT; i++) {
        uint64_t value = request->value[i];

        if (!request_has(request, (enum request_key)i))
            continue;
        if (key_rows[i].type == WORD) {
            check_inside(request->word[i], line, len);
            value = request->word[i].len;
        }
        require(value >= key_rows[i].min && value <= key_rows[i].max);
    }
}

static size_t
request_write(const struct request_line *request, char *out, size_t out_bytes)
{
    struct reply reply;

    reply_begin(
        &reply, out, out_bytes, request->tag, command_name(request->command));
    if (request->argument.len > 0)
        reply_word(&reply, request->argument);
    for (int i = 0; i < REQUEST_KEY_COUNT; i++) {
        if (!request_has(request, (enum request_key)i))
            continue;
        if (key_rows[i].type == WORD)
            reply_pair(&reply, key_rows[i].word, request->word[i]);
        else
            reply_pair_number(&reply, key_rows[i].word, request->value[i]);
    }
    return reply_end(&reply);
}

static void
check_same(const struct request_line *a, const struct request_line *b)
{
    require(a->command == b->command);
    require(strcmp(a->tag, b->tag) == 0);
    require(text_equal(a->argument, b->argument));
    require(a->number == b->number);
    require(a->keys == b->keys);
    for (int i = 0; i < REQUEST_KEY_COUNT; i++) {
        if (!request_has(a, (enum request_key)i))
            continue;
        if (key_rows[i].type == WORD)
            require(text_equal(a->word[i], b->word[i]));
        else
            require(a->value[i] == b->value[i]);
    }
}

/* Encoding trebles a word at most; numbers lose their units. */
static char again[4 * PROTO_LINE_MAX];

static void
check_again(const struct request_line *request, size_t name_max)
{
    size_t len = request_write(request, again, sizeof(again));
    size_t skip = request->tag[0] == '\0' ? 2 : 0; /* "- " is no request's */
    struct request_line second;
    struct request_error error;
    char *line;

    require(len > skip);
    line = copy_bytes(again + skip, len - skip - 1);
    require(request_parse(line, len - skip - 1, name_max, &second, &error) ==
            REQUEST_OK);
    check_same(request, &second);
    free(line);
}

static void
check_line(const char *bytes, size_t len, size_t name_max)
{
    struct request_line request;
    struct request_error error = {ERROR_COUNT, NULL};
    char tag[PROTO_TAG_MAX + 1];
    char *line = copy_bytes(bytes, len);
    bool tagged = request_tag(line, len, tag);
    enum request_status status;

    (void)line_foreign(line, len);
    status = request_parse(line, len, name_max, &request, &error);
    /* A byte that is not allowed may stand in what looks like no tag. */
    require(!tagged || strcmp(request.tag, tag) == 0);
    switch (status) {
    case REQUEST_OK:
        check_request(&request, line, len, name_max);
        check_again(&request, name_max);
        break;
    case REQUEST_BLANK:
        require(!tagged);
        break;
    case REQUEST_BAD:
        require(error.code == ERROR_BADREQ || error.code == ERROR_UNKNOWN ||
                error.code == ERROR_TOOLONG);
        require(error.what != NULL && error.what[0] != '\0');
        break;
    }
    free(line);
}

static void
check_percent(const char *bytes, size_t len)
{
    size_t room = 3 * len + 1;
    char *word = copy_bytes(bytes, len);
    char *out = malloc(room);
    size_t plain = percent_decode(word, len), encoded;

    require(out != NULL);
    if (plain == SIZE_MAX) {
        memcpy(word, bytes, len);
        plain = len;
    }
    require(plain <= len);
    encoded = percent_encode(text_make(word, plain), out, room);
    require(encoded >= plain && encoded <= 3 * plain);
    require(percent_decode(out, encoded) == plain);
    require(memcmp(out, word, plain) == 0);
    free(out);
    free(word);
}

struct feeding {
    size_t line_max;
    size_t name_max;
    bool parse;
    uint64_t hash; /* of the lines that came out */
};

static void
hash_add(struct feeding *feeding, const char *bytes, size_t len, unsigned end)
{
    for (size_t i = 0; i < len; i++)
        feeding->hash =
            (feeding->hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    feeding->hash = (feeding->hash ^ (256 + end)) * UINT64_C(0x100000001b3);
}

/* All lines of data[from..to); returns where the unfinished one begins. */
static size_t
feed_once(struct feeding *feeding, const char *data, size_t from, size_t to,
    bool *skipping)
{
    for (;;) {
        char *bytes = copy_bytes(data + from, to - from);
        char *line = NULL;
        size_t used = 0, len = 0;
        enum line_status status = line_next(
            bytes, to - from, feeding->line_max, skipping, &used, &line, &len);

        require(used <= to - from);
        from += used;
        if (status != LINE_MORE) {
            require(used > 0);
            require(line >= bytes && line + len <= bytes + used);
            hash_add(feeding, line, len, status == LINE_FOUND ? 0 : 1);
            require(len <= feeding->line_max);
        }
        if (status == LINE_FOUND && feeding->parse)
            check_line(line, len, feeding->name_max);
        free(bytes);
        if (status == LINE_MORE)
            break;
    }
    require(to - from < feeding->line_max);
    return from;
}

static uint64_t
feed(struct feeding feeding, const char *data, size_t size, size_t part)
{
    bool skipping = false;
    size_t from = 0;

    for (size_t to = 0; to < size;) {
        to = size - to < part ? size : to + part;
        from = feed_once(&feeding, data, from, to, &skipping);
    }
    return feeding.hash;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t line_limits[] = {PROTO_LINE_MAX, 64, 17, 1};
    const char *bytes = (const char *)data;
    struct feeding feeding = {.name_max = PROTO_NAME_MAX, .parse = true};
    uint64_t whole;
    size_t sum = size;

    for (size_t i = 0; i < size; i++)
        sum += data[i];
    feeding.line_max = line_limits[sum % 8 < 5 ? 0 : sum % 8 - 4];
    if (sum % 3 == 0)
        feeding.name_max = 8;
    whole = feed(feeding, bytes, size, size + 1);
    feeding.parse = false;
    require(feed(feeding, bytes, size, 1 + sum / 8 % 7) == whole);
    check_percent(bytes, size);
    return 0;
}
