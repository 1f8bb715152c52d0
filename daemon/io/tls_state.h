/*
 * OpenSSL's context and its sources, for tls.c and tls_conn.c.
 */
#ifndef HOLDFAST_IO_TLS_STATE_H
#define HOLDFAST_IO_TLS_STATE_H

#include "daemon/io/tls.h"
#include "proto/tls/openssl.h"

#include <openssl/sha.h>

struct tls {
    uint32_t refs; /* the owner's, and one for each connection */
    enum tls_role role;
    SSL_CTX *context;                                /* owned */
    BIO_METHOD *sockets;                             /* owned */
    uint8_t digest[TLS_PARTS][SHA256_DIGEST_LENGTH]; /* of each file */
    uint64_t expiry_s; /* of the own certificate; 0: there is none */
    char server_name[TLS_NAME_BYTES];
    bool any_name;
    bool required;
};

/* Ends one use, and frees it with the last. A server's SSL has a bool as its
 * application data: whether the latest ClientHello was too long. */
void tls_unref(struct tls *tls);

#endif
