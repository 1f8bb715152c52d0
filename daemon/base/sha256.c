/*
 * SHA-256, block by block. Names of variables are those of FIPS 180-4.
 */
#include "daemon/base/sha256.h"

#define LEN_AT 56 /* in the last block: the count of bits */

static const uint32_t k[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5,
    0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138,
    0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624,
    0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5,
    0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f,
    0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t
rotr(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void
schedule(const uint8_t *block, uint32_t w[64])
{
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
}

static void
compress(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    uint32_t v[8]; /* a to h */

    schedule(block, w);
    memcpy(v, state, sizeof(v));
    for (int t = 0; t < 64; t++) {
        uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25);
        uint32_t ch = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + s1 + ch + k[t] + w[t];
        uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
        uint32_t maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + s0 + maj;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
    explicit_bzero(w, sizeof(w));
}

void
sha256_init(struct sha256 *sha)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
        0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(sha->state, first, sizeof(first));
    sha->len = 0;
}

void
sha256_add(struct sha256 *sha, struct text bytes)
{
    while (bytes.len > 0) {
        size_t used = sha->len % sizeof(sha->block);
        size_t part = sizeof(sha->block) - used;

        if (part > bytes.len)
            part = bytes.len;
        memcpy(sha->block + used, bytes.at, part);
        sha->len += part;
        bytes = text_make(bytes.at + part, bytes.len - part);
        if (used + part == sizeof(sha->block))
            compress(sha->state, sha->block);
    }
}

void
sha256_end(struct sha256 *sha, uint8_t out[SHA256_BYTES])
{
    size_t used = sha->len % sizeof(sha->block);
    uint64_t bits = 8 * sha->len;

    sha->block[used++] = 0x80;
    if (used > LEN_AT) {
        memset(sha->block + used, 0, sizeof(sha->block) - used);
        compress(sha->state, sha->block);
        used = 0;
    }
    memset(sha->block + used, 0, LEN_AT - used);
    for (int i = 0; i < 8; i++)
        sha->block[LEN_AT + i] = (uint8_t)(bits >> (56 - 8 * i));
    compress(sha->state, sha->block);
    for (int i = 0; i < SHA256_BYTES; i++)
        out[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
    explicit_bzero(sha, sizeof(*sha));
}

bool
secret_equal(const uint8_t *a, const uint8_t *b, size_t len)
{
    uint8_t differ = 0;

    for (size_t i = 0; i < len; i++)
        differ |= (uint8_t)(a[i] ^ b[i]);
    /* Keeps the compiler from stopping at the first difference. */
    __asm__ volatile("" : "+r"(differ));
    return differ == 0;
}
