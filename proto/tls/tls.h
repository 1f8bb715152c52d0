/*
 * Shared declarations of the TLS library, which programs do not see.
 *
 *     trust.c    CAs and the own certificate: files to OpenSSL's context
 *     link.c     one connection, as a transport of the client library
 *     openssl.c  calls of OpenSSL, which the daemon uses too
 */
#ifndef HOLDFAST_TLS_TLS_H
#define HOLDFAST_TLS_TLS_H

#include "proto/clients/c/holdfast.h"
#include "proto/tls/holdfast_tls.h"
#include "proto/tls/openssl.h"

#define TLS_PORT "4655"

struct holdfast_tls {
    SSL_CTX *context;    /* owned */
    BIO_METHOD *sockets; /* owned */
    struct holdfast_transport transport;
    char server_name[TLS_NAME_BYTES]; /* "": the host of the address */
    bool any_name;
};

/* conn.c: the functions of struct holdfast_transport, without a context. */
extern const struct holdfast_transport holdfast_tls_functions;

#endif
