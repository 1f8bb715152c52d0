/*
 * Calls of OpenSSL for both sides of TLS: the library for clients (link.c,
 * trust.c), and the daemon towards its clients and Redis (daemon/io/tls*.c).
 *
 * OpenSSL keeps a queue of errors for the thread. It must be empty before each
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

/* A connected socket, which does not block, beneath a connection by TLS. */
struct tls_socket {
    int fd;         /* ref */
    int error;      /* errno of what broke it; 0: nothing so far */
    uint32_t reads; /* that gave something, since one said that it waits */
};

/*
 * The methods of a BIO on a struct tls_socket; NULL: no memory. It is not
 * OpenSSL's own for sockets, which writes so that a peer that is gone raises
 * SIGPIPE. The caller frees it after all connections that are made with it.
 */
BIO_METHOD *holdfast_tls_sockets(void);

/* A connection on the socket, which is to outlive it; NULL: no memory. */
SSL *holdfast_tls_open(
    SSL_CTX *context, const BIO_METHOD *sockets, struct tls_socket *socket);

/*
 * A context of TLS 1.2 or later, without renegotiation, resumption,
 * compression, or a question for a passphrase; it verifies its peers. No byte
 * beyond the present record is taken off the socket. NULL: no memory.
 */
SSL_CTX *holdfast_tls_context(const SSL_METHOD *method);

/*
 * Takes the private key in a PEM file for the context's certificate. NULL: it
 * has; else what is wrong with the file, in static words, with OpenSSL's reason
 * in its queue, if it has one to add.
 */
const char *holdfast_tls_load_key(SSL_CTX *context, const char *path);

/* The name of that host in a certificate: without the dot of the root, and
 * without a number's zone. `out` has TLS_NAME_BYTES. */
void holdfast_tls_name(const char *host, char out[TLS_NAME_BYTES]);

/*
 * Asks for that name, unless it is a number, which the extension does not know
 * (RFC 6066), and has the peer's certificate name it, unless any will do.
 * False: no memory, or no name that can be. OpenSSL wants it not const, and
 * changes nothing.
 */
bool holdfast_tls_expect(SSL *ssl, char *name, bool any_name);

/* OpenSSL's word for an error; static. */
const char *holdfast_tls_text(unsigned long error);

/* Of an error in a handshake: the peer's first word was none of TLS. */
bool holdfast_tls_is_foreign(unsigned long error);

/* Whether the peer has said so itself. */
bool holdfast_tls_is_alert(unsigned long error);

/* After a call that failed for no reason of the socket's: whether the peer's
 * bytes ended without a word of TLS. */
bool holdfast_tls_is_end(void);

#endif
