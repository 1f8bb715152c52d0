/*
 * Percent-encoding of words: each byte outside 0x21..0x7E, '%', '=', and a
 * leading ':'.
 */
#include "proto/clients/c/holdfast.h"

static bool
byte_is_plain(unsigned char byte, size_t position)
{
    if (byte < 0x21 || byte > 0x7e || byte == '%' || byte == '=')
        return false;
    return byte != ':' || position > 0;
}

size_t
holdfast_encode(const char *bytes, size_t len, char *out, size_t out_bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t at = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)bytes[i];

        if (byte_is_plain(byte, i)) {
            if (at + 1 >= out_bytes)
                return 0;
            out[at++] = (char)byte;
            continue;
        }
        if (at + 3 >= out_bytes)
            return 0;
        out[at++] = '%';
        out[at++] = digits[byte >> 4];
        out[at++] = digits[byte & 15];
    }
    if (at >= out_bytes)
        return 0;
    out[at] = '\0';
    return at;
}

/* The value of a hex digit; -1: it is none. */
static int
hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

size_t
holdfast_decode(char *word, size_t len)
{
    size_t at = 0;

    for (size_t i = 0; i < len; i++) {
        if (word[i] != '%') {
            word[at++] = word[i];
            continue;
        }
        if (len - i < 3)
            return SIZE_MAX;
        int high = hex_value(word[i + 1]);
        int low = hex_value(word[i + 2]);
        if (high < 0 || low < 0)
            return SIZE_MAX;
        word[at++] = (char)(high << 4 | low);
        i += 2;
    }
    word[at] = '\0';
    return at;
}
