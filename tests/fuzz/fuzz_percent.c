/*
 * The input is a word. For the broker's coding (proto/) and for the client
 * library's own:
 *
 * - encoded, it is made of plain bytes, and decoded it is the same again;
 * - the two encode alike, and decode alike, and refuse alike;
 * - a result that does not fit is refused at every size, with no byte too many;
 * - no word is decoded to more bytes than it had.
 */
#include "daemon/base/assert.h"
#include "proto/clients/c/holdfast.h"
#include "proto/reply.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORD_MAX 600

/* A copy with nothing around it, so that the sanitizer sees a byte too many. */
static char *
copy_bytes(const char *bytes, size_t len, size_t room)
{
    char *copy = malloc(room == 0 ? 1 : room);

    require(copy != NULL && len <= room);
    memcpy(copy, bytes, len);
    return copy;
}

static void
check_plain(const char *word, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        require(word[i] > 0x20 && word[i] < 0x7f && word[i] != '=');
        if (word[i] == '%')
            require(len - i > 2 && strchr("0123456789ABCDEF", word[i + 1]) &&
                    strchr("0123456789ABCDEF", word[i + 2]));
    }
    require(len == 0 || word[0] != ':');
}

/* Both encoders, at their full size and at each that is too small. */
static void
check_encode(const char *bytes, size_t len, const char *encoded, size_t full)
{
    for (size_t room = full; room-- > (full > 40 ? full - 40 : 0);) {
        char *out = copy_bytes("", 0, room);
        require(percent_encode(text_make(bytes, len), out, room) == 0);
        require(holdfast_encode(bytes, len, out, room) == 0);
        free(out);
    }
    char *out = copy_bytes("", 0, full + 1);
    require(percent_encode(text_make(bytes, len), out, full) == full);
    require(memcmp(out, encoded, full) == 0);
    require(holdfast_encode(bytes, len, out, full + 1) == full);
    require(memcmp(out, encoded, full) == 0 && out[full] == '\0');
    free(out);
}

/* Both decoders; returns the length, SIZE_MAX where it is no word. */
static size_t
check_decode(const char *bytes, size_t len, const char *expected)
{
    char *ours = copy_bytes(bytes, len, len);
    char *theirs = copy_bytes(bytes, len, len + 1);
    theirs[len] = '0'; /* bytes that would end a code that is cut off */
    size_t plain = percent_decode(ours, len);

    require(holdfast_decode(theirs, len) == plain);
    if (plain != SIZE_MAX) {
        require(plain <= len && (len - plain) % 2 == 0);
        require(memcmp(ours, theirs, plain) == 0 && theirs[plain] == '\0');
        if (expected != NULL)
            require(memcmp(ours, expected, plain) == 0);
        if (memchr(bytes, '%', len) == NULL)
            require(plain == len && memcmp(ours, bytes, len) == 0);
    } else {
        require(memchr(bytes, '%', len) != NULL);
    }
    free(ours);
    free(theirs);
    return plain;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char encoded[3 * WORD_MAX];

    if (size > WORD_MAX)
        return 0;
    char *word = copy_bytes((const char *)data, size, size);
    size_t len = percent_encode(text_make(word, size), encoded, 3 * size);
    require(len >= size && len <= 3 * size);
    check_plain(encoded, len);
    check_encode(word, size, encoded, len);
    require(check_decode(encoded, len, word) == size);
    (void)check_decode(word, size, NULL);
    free(word);
    return 0;
}
