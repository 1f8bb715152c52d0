/*
 * Memory, growing bytes, numbers as Redis reads them, and SHA-1 (FIPS 180-4)
 * for the names of scripts. Knows nothing of servers.
 */
#include "tests/sim/fake_state.h"

#include <stdlib.h>

void *
memory_get(void *old, size_t len)
{
    void *memory = realloc(old, len);

    require(memory != NULL);
    return memory;
}

void *
array_room(void *array, size_t count, size_t *cap, size_t element)
{
    if (count < *cap)
        return array;
    *cap = *cap == 0 ? 8 : *cap * 2;
    return memory_get(array, *cap * element);
}

char *
bytes_room(struct bytes *bytes, size_t len)
{
    if (bytes->cap - bytes->len < len) {
        size_t cap = bytes->cap == 0 ? 64 : bytes->cap * 2;
        if (cap < bytes->len + len)
            cap = bytes->len + len;
        bytes->at = memory_get(bytes->at, cap);
        bytes->cap = cap;
    }
    return bytes->at + bytes->len;
}

void
bytes_add(struct bytes *bytes, const void *from, size_t len)
{
    if (len == 0)
        return;
    memcpy(bytes_room(bytes, len), from, len);
    bytes->len += len;
}

void
bytes_fini(struct bytes *bytes)
{
    free(bytes->at);
    memset(bytes, 0, sizeof(*bytes));
}

bool
number_read(struct text text, int64_t *out)
{
    bool negative = text.len > 0 && text.at[0] == '-';
    uint64_t most = negative ? (uint64_t)INT64_MAX + 1 : INT64_MAX;
    uint64_t value;

    if (negative)
        text = text_make(text.at + 1, text.len - 1);
    if (!text_to_u64(text, most, &value) || (negative && value == 0))
        return false;
    *out = negative ? (int64_t)-value : (int64_t)value;
    return true;
}

bool
text_is(struct text text, const char *word)
{
    return text_equal_nocase(text, text_from(word));
}

/* --- SHA-1 ---------------------------------------------------------------- */

static uint32_t
rotate(uint32_t value, unsigned bits)
{
    return value << bits | value >> (32 - bits);
}

static uint32_t
sha1_mix(unsigned round, uint32_t b, uint32_t c, uint32_t d)
{
    if (round < 20)
        return ((b & c) | (~b & d)) + 0x5a827999;
    if (round < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (round < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void
sha1_block(uint32_t state[5], const uint8_t block[64])
{
    uint32_t word[80];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4];

    for (unsigned i = 0; i < 16; i++)
        word[i] = (uint32_t)block[4 * i] << 24 |
                  (uint32_t)block[4 * i + 1] << 16 |
                  (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (unsigned i = 16; i < 80; i++)
        word[i] =
            rotate(word[i - 3] ^ word[i - 8] ^ word[i - 14] ^ word[i - 16], 1);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t next = rotate(a, 5) + sha1_mix(i, b, c, d) + e + word[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

static void
sha1_make(const char *bytes, size_t len, char out[FAKE_SHA_HEX + 1])
{
    uint32_t state[5] = {
        0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t last[128] = {0};
    uint8_t digest[20];
    size_t whole = len / 64 * 64;
    size_t rest = len - whole;
    size_t last_len = rest < 56 ? 64 : 128;
    uint64_t bits = (uint64_t)len * 8;

    for (size_t at = 0; at < whole; at += 64)
        sha1_block(state, (const uint8_t *)bytes + at);
    if (rest > 0)
        memcpy(last, bytes + whole, rest);
    last[rest] = 0x80;
    for (unsigned i = 0; i < 8; i++)
        last[last_len - 1 - i] = (uint8_t)(bits >> (8 * i));
    for (size_t at = 0; at < last_len; at += 64)
        sha1_block(state, last + at);
    for (unsigned i = 0; i < 20; i++)
        digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
    text_to_hex(out, digest, 20);
    out[FAKE_SHA_HEX] = '\0';
}

/* Texts that were asked for before: the scripts, over and over. */
#define SHA_KEPT  16
#define SHA_LEAST 1024

void
sha1_hex(const char *bytes, size_t len, char out[FAKE_SHA_HEX + 1])
{
    static struct {
        char *bytes; /* owned, for good */
        size_t len;
        char hex[FAKE_SHA_HEX + 1];
    } kept[SHA_KEPT];

    static size_t next;

    for (size_t i = 0; len >= SHA_LEAST && i < SHA_KEPT; i++)
        if (kept[i].len == len && memcmp(kept[i].bytes, bytes, len) == 0) {
            memcpy(out, kept[i].hex, sizeof(kept[i].hex));
            return;
        }
    sha1_make(bytes, len, out);
    if (len < SHA_LEAST)
        return;
    size_t at = next++ % SHA_KEPT;
    kept[at].bytes = memory_get(kept[at].bytes, len);
    kept[at].len = len;
    memcpy(kept[at].bytes, bytes, len);
    memcpy(kept[at].hex, out, sizeof(kept[at].hex));
}
