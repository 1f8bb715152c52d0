/*
 * Calls of OpenSSL for the client library (link.c, trust.c), and for the
 * daemon with its clients and with Redis (daemon/io/tls*.c).
 *
 * OpenSSL has a queue of errors for the thread. It must be empty before each
 * call, or SSL_get_error() may report the error of another connection. So
 * callers clear it, and read it before any other call.
 */
#ifndef HOLDFAST_TLS_OPENSSL_H
#define HOLDFAST_TLS_OPENSSL_H

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_NAME_BYTES 256 /* of a host, with its NUL */

/* The connected socket of a TLS connection; it does not block. */
struct tls_socket {
    int fd;         /* ref */
    int error;      /* errno of the error that broke it; 0: none */
    uint32_t reads; /* with bytes, in a row */
};

/*
 * The methods of a BIO on a struct tls_socket; NULL: no memory. OpenSSL's own
 * methods would raise SIGPIPE. The caller frees them after all connections that
 * use them.
 */
BIO_METHOD *holdfast_tls_sockets(void);

/* A connection on the socket, which must outlive it; NULL: no memory. */
SSL *holdfast_tls_open(
    SSL_CTX *context, const BIO_METHOD *sockets, struct tls_socket *socket);

/*
 * A context for TLS 1.2 or later, without renegotiation, resumption,
 * compression, or a prompt for a passphrase. It verifies peers. It reads no
 * byte beyond the present record. NULL: no memory.
 */
SSL_CTX *holdfast_tls_context(const SSL_METHOD *method);

/* Loads the private key of the context's certificate from a PEM file. Returns
 * NULL, or the error; static. OpenSSL's queue may have its own reason. */
const char *holdfast_tls_load_key(SSL_CTX *context, const char *path);

/* The name of the host in a certificate: without a final dot, and without a
 * number's zone. `out` has TLS_NAME_BYTES. */
void holdfast_tls_name(const char *host, char out[TLS_NAME_BYTES]);

/*
 * Sends the name by SNI, unless it is a number (RFC 6066). The peer's
 * certificate must have it, unless `any_name`. False: no memory, or a bad name.
 * OpenSSL's parameter is not const, but `name` is unchanged.
 */
bool holdfast_tls_expect(SSL *ssl, char *name, bool any_name);

/* OpenSSL's text of an error; static. */
const char *holdfast_tls_text(unsigned long error);

/* Whether an error in a handshake means that the peer does not use TLS. */
bool holdfast_tls_is_foreign(unsigned long error);

/* Whether the error is an alert of the peer. */
bool holdfast_tls_is_alert(unsigned long error);

/* After a failed call without a socket error: whether the peer has closed
 * without a TLS alert. */
bool holdfast_tls_is_end(void);

#endif
