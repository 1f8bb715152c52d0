/*
 * Percent-encoding of names and values: a byte outside 0x21..0x7E, '%', '=' and
 * a leading ':' become '%' and two upper-case hex digits. So a word has no
 * blank or line end, and cannot be taken for a key or free text.
 */
#include "proto/reply.h"

#include "daemon/base/assert.h"

static bool
byte_is_plain(unsigned char byte)
{
    return byte > 0x20 && byte < 0x7f && byte != '%' && byte != '=';
}

size_t
percent_encode(struct text word, char *out, size_t out_bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t len = 0;

    for (size_t i = 0; i < word.len; i++) {
        unsigned char byte = (unsigned char)word.at[i];

        if (byte_is_plain(byte) && (i > 0 || byte != ':')) {
            if (len == out_bytes)
                return 0;
            out[len++] = (char)byte;
            continue;
        }
        if (out_bytes - len < 3)
            return 0;
        out[len++] = '%';
        out[len++] = digits[byte >> 4];
        out[len++] = digits[byte & 15];
    }
    return len;
}

/* The value of a hex digit of either case; 16 for any other byte. */
static unsigned
hex_value(unsigned char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - (unsigned)'0';
    byte |= 0x20;
    if (byte >= 'a' && byte <= 'f')
        return byte - (unsigned)'a' + 10;
    return 16;
}

size_t
percent_decode(char *word, size_t len)
{
    size_t to = 0;

    for (size_t from = 0; from < len; from++, to++) {
        unsigned high, low;

        if (word[from] != '%') {
            word[to] = word[from];
            continue;
        }
        if (len - from < 3)
            return SIZE_MAX;
        high = hex_value((unsigned char)word[from + 1]);
        low = hex_value((unsigned char)word[from + 2]);
        if (high > 15 || low > 15)
            return SIZE_MAX;
        word[to] = (char)(high << 4 | low);
        from += 2;
    }
    return to;
}
