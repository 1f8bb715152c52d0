/*
 * What tls.c and tls_link.c share: OpenSSL's context with what it was made of,
 * and how OpenSSL's errors are told.
 */
#ifndef HOLDFAST_IO_TLS_STATE_H
#define HOLDFAST_IO_TLS_STATE_H

#include "daemon/io/tls.h"

#include <openssl/bio.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>

#define HOST_BYTES 256

struct tls {
    uint32_t refs; /* its owner's, and one for each link */
    enum tls_role role;
    SSL_CTX *context;                                /* owned */
    BIO_METHOD *sockets;                             /* owned */
    uint8_t digest[TLS_PARTS][SHA256_DIGEST_LENGTH]; /* of each file */
    char server_name[HOST_BYTES];
    bool any_name;
    bool required;
};

/* tls.c */
void tls_unref(struct tls *tls);
const char *tls_reason_text(unsigned long error);

/* tls_link.c: a BIO for our links, or NULL: no memory. */
BIO_METHOD *tls_socket_method(void);

#endif
