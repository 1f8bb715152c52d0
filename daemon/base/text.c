/*
 * Spans and numbers.
 *
 * Every reader is strict: anything but exactly a number is refused. The locale
 * plays no part.
 */
#include "daemon/base/text.h"

static unsigned char
lower(unsigned char byte)
{
    if (byte >= 'A' && byte <= 'Z')
        return (unsigned char)(byte | 0x20);
    return byte;
}

int
text_compare(struct text a, struct text b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int way = len > 0 ? memcmp(a.at, b.at, len) : 0;

    if (way != 0 || a.len == b.len)
        return way;
    return a.len < b.len ? -1 : 1;
}

bool
text_equal_nocase(struct text a, struct text b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++) {
        if (lower((unsigned char)a.at[i]) != lower((unsigned char)b.at[i]))
            return false;
    }
    return true;
}

bool
text_to_u64(struct text text, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;

    if (text.len == 0 || (text.len > 1 && text.at[0] == '0'))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char digit = text.at[i];
        uint64_t add;

        if (digit < '0' || digit > '9')
            return false;
        add = (uint64_t)(digit - '0');
        if (add > max || value > (max - add) / 10)
            return false;
        value = value * 10 + add;
    }
    *out = value;
    return true;
}

size_t
text_from_u64(char *out, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);
    size_t len;

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    len = sizeof(digits) - at;
    memcpy(out, digits + at, len);
    return len;
}

void
text_to_hex(char *out, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}

/* The value of a hex digit, or -1. */
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

bool
text_from_hex(struct text text, uint8_t *bytes, size_t len)
{
    if (text.len % 2 != 0 || text.len / 2 != len)
        return false;
    for (size_t i = 0; i < len; i++) {
        int high = hex_value(text.at[2 * i]);
        int low = hex_value(text.at[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* The bytes of a multi-byte character, by its first byte; 0: invalid. */
static size_t
utf8_count(unsigned char first)
{
    if (first >= 0xf0 && first < 0xf8)
        return 4;
    if (first >= 0xe0 && first < 0xf0)
        return 3;
    return first >= 0xc0 && first < 0xe0 ? 2 : 0;
}

size_t
text_utf8(struct text text, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)text.at[0];
    size_t count = utf8_count(first);

    *code = first;
    if (first < 0x80)
        return 1;
    if (count == 0 || count > text.len)
        return 0;
    *code = first & (0x7fu >> count);
    for (size_t i = 1; i < count; i++) {
        unsigned char next = (unsigned char)text.at[i];

        if ((next & 0xc0u) != 0x80)
            return 0;
        *code = *code << 6 | (next & 0x3fu);
    }
    if (*code < least[count] || *code > 0x10ffff ||
        (*code >= 0xd800 && *code < 0xe000))
        return 0;
    return count;
}
