/*
 * CRC-16 and the hash tag rule of the Redis Cluster specification.
 */
#include "daemon/base/slot.h"

#include "daemon/base/assert.h"

/*
 * CRC-16/XMODEM, polynomial 0x1021, four bits at a time: the table fits one
 * cache line, and names are short.
 */
static uint16_t
crc16(const char *bytes, size_t len)
{
    static const uint16_t table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084,
        0x50a5, 0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad,
        0xe1ce, 0xf1ef};
    uint16_t crc = 0;

    for (size_t i = 0; i < len; i++) {
        uint8_t byte = (uint8_t)bytes[i];
        crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte >> 4) & 15]);
        crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte) & 15]);
    }
    return crc;
}

uint16_t
slot_of_key(struct text key)
{
    const char *open = memchr(key.at, '{', key.len);

    if (open != NULL) {
        const char *tag = open + 1;
        size_t rest = key.len - (size_t)(tag - key.at);
        const char *close = memchr(tag, '}', rest);
        if (close != NULL && close > tag)
            key = text_make(tag, (size_t)(close - tag));
    }
    return crc16(key.at, key.len) % SLOT_COUNT;
}

uint32_t
slot_tag(uint16_t slot)
{
    static uint32_t tags[SLOT_COUNT]; /* one more; 0: not found yet */
    static uint32_t next;
    char digits[20];

    require(slot < SLOT_COUNT);
    while (tags[slot] == 0) {
        uint16_t found =
            slot_of_key(text_make(digits, text_from_u64(digits, next)));
        next++;
        if (tags[found] == 0)
            tags[found] = next;
    }
    return tags[slot] - 1;
}
