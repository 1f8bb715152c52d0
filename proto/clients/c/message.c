/*
 * A line of the broker to its parts, in place:
 *
 *     TAG VERB [word ...] [key=value ...] [:free text]
 *
 * The grammar is strict: a malformed line closes the connection, since it may
 * be a LOST. The vocabulary is open: unknown words, keys and verbs are ignored.
 */
#include "proto/clients/c/pending.h"

#include <assert.h>
#include <string.h>

bool
holdfast_number(const char *digits, uint64_t *value)
{
    uint64_t sum = 0;

    if (digits[0] == '\0')
        return false;
    for (const char *at = digits; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return false;
        uint64_t digit = (uint64_t)(*at - '0');
        if (sum > (UINT64_MAX - digit) / 10)
            return false;
        sum = sum * 10 + digit;
    }
    *value = sum;
    return true;
}

size_t
holdfast_numbers(const char *list, uint64_t *values, size_t max)
{
    const char *at = list;
    char digits[24];
    size_t count = 0;

    for (;;) {
        size_t len = strcspn(at, ",");
        uint64_t value;

        if (len >= sizeof(digits))
            return 0;
        memcpy(digits, at, len);
        digits[len] = '\0';
        if (!holdfast_number(digits, &value))
            return 0;
        if (count < max)
            values[count] = value;
        count++;
        if (at[len] == '\0')
            return count;
        at += len + 1;
    }
}

/* Cuts off the part before the next blank. NULL: there is none. */
static char *
part_next(char **at, char *end, size_t *len)
{
    while (*at < end && **at == ' ')
        (*at)++;
    if (*at == end)
        return NULL;
    char *start = *at;
    while (*at < end && **at != ' ')
        (*at)++;
    *len = (size_t)(*at - start);
    assert(*at <= end);
    /* This byte is a blank, or the room for the line's NUL. */
    **at = '\0';
    if (*at < end)
        (*at)++;
    return start;
}

/* Decodes a key=value or a word. Only the first word is kept. */
static bool
part_take(struct holdfast_message *out, char *part, size_t len)
{
    char *equals = memchr(part, '=', len);

    if (equals == NULL) {
        size_t decoded = holdfast_decode(part, len);
        if (decoded == SIZE_MAX)
            return false;
        if (out->word_len == 0) {
            out->word = part;
            out->word_len = decoded;
        }
        return true;
    }
    *equals = '\0';
    char *value = equals + 1;
    size_t decoded = holdfast_decode(value, len - (size_t)(value - part));
    if (decoded == SIZE_MAX || equals == part)
        return false;
    if (out->pair_count < CLIENT_PAIRS) {
        out->pairs[out->pair_count++] =
            (struct holdfast_pair){.key = part, .value = value, .len = decoded};
    }
    return true;
}

bool
holdfast_message_parse(char *line, size_t len, struct holdfast_message *out)
{
    char *at = line;
    char *end = line + len;
    size_t part_len;

    memset(out, 0, sizeof(*out));
    out->word = "";
    out->text = "";
    if (memchr(line, '\0', len) != NULL)
        return false;
    out->tag = part_next(&at, end, &part_len);
    if (out->tag == NULL)
        return false;
    out->verb = part_next(&at, end, &part_len);
    if (out->verb == NULL)
        return false;
    for (;;) {
        while (at < end && *at == ' ')
            at++;
        if (at < end && *at == ':') {
            *end = '\0';
            out->text = at + 1;
            return true;
        }
        char *part = part_next(&at, end, &part_len);
        if (part == NULL)
            return true;
        if (!part_take(out, part, part_len))
            return false;
    }
}

static const char *
pairs_value(const struct holdfast_pair *pairs, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(pairs[i].key, key) == 0)
            return pairs[i].value;
    return NULL;
}

const char *
holdfast_message_value(const struct holdfast_message *message, const char *key)
{
    return pairs_value(message->pairs, message->pair_count, key);
}

bool
holdfast_message_number(
    const struct holdfast_message *message, const char *key, uint64_t *value)
{
    const char *digits = holdfast_message_value(message, key);

    return digits != NULL && holdfast_number(digits, value);
}

const char *
holdfast_event_value(const struct holdfast_event *event, const char *key)
{
    return pairs_value(event->pairs, event->pair_count, key);
}

bool
holdfast_event_number(
    const struct holdfast_event *event, const char *key, uint64_t *value)
{
    const char *digits = holdfast_event_value(event, key);

    return digits != NULL && holdfast_number(digits, value);
}

size_t
holdfast_event_fences(
    const struct holdfast_event *event, uint64_t *fences, size_t max)
{
    const char *list = holdfast_event_value(event, "fence");

    return list != NULL ? holdfast_numbers(list, fences, max) : 0;
}
