/*
 * SHA-256 (FIPS 180-4), and the comparison of secrets.
 *
 * It is our own, since its users have no OpenSSL. The core takes no memory, and
 * is tested without OpenSSL. The client library needs only libc. A test
 * compares it with OpenSSL's.
 */
#ifndef HOLDFAST_BASE_SHA256_H
#define HOLDFAST_BASE_SHA256_H

#include "daemon/base/text.h"

#define SHA256_BYTES 32

struct sha256 {
    uint32_t state[8];
    uint64_t len; /* bytes so far */
    uint8_t block[64];
};

/* Begins a digest; sha256_end() leaves nothing to be freed. */
void sha256_init(struct sha256 *sha);

/* Adds bytes to the digest. */
void sha256_add(struct sha256 *sha, struct text bytes);

/* Writes the digest, and forgets all that was added. */
void sha256_end(struct sha256 *sha, uint8_t out[SHA256_BYTES]);

/* Whether they are equal. The time depends on `len` alone. */
bool secret_equal(const uint8_t *a, const uint8_t *b, size_t len);

#endif
