/*
 * TLS for the client library of Holdfast (holdfast.h), to a broker's TLS port,
 * usually 4655.
 *
 * Link with -lholdfast-tls and -lholdfast, as `pkg-config holdfast-tls` says.
 * It needs OpenSSL 1.1.1 or later, and uses TLS 1.2 or later.
 *
 *     struct holdfast_tls_options how = {.ca = "/etc/holdfast/ca.pem"};
 *     char why[256];
 *     struct holdfast_tls *tls = holdfast_tls_create(&how, why, sizeof(why));
 *     struct holdfast_options options = {.address = "broker1,broker2",
 *         .transport = holdfast_tls_transport(tls)};
 *     holdfast_create_with(&options, &h);
 *         everything else as without TLS
 *     holdfast_destroy(&h);
 *     holdfast_tls_destroy(&tls);
 *
 * A session uses a connection only after the broker's certificate is verified.
 * After a failure the library tries the next address. If all addresses fail,
 * holdfast_reason() has the error.
 *
 * The promises of holdfast.h apply: no thread, no signal handler, no SIGPIPE,
 * and no blocking call but holdfast_tls_create(), which reads files. A child of
 * fork() may use a struct holdfast_tls of the parent in its own connections.
 */
#ifndef HOLDFAST_TLS_H
#define HOLDFAST_TLS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct holdfast_transport; /* of holdfast.h */

/* The checks of a broker's certificate. */
enum holdfast_tls_verify {
    HOLDFAST_TLS_FULL, /* it is valid, and has the broker's name */
    HOLDFAST_TLS_CA,   /* it is valid; any name of these CAs */
};

/* All may be NULL or 0. Files are in PEM format. */
struct holdfast_tls_options {
    /* The CAs to trust. NULL: the CAs of the system, many of which certify any
     * name. */
    const char *ca;
    /*
     * The client's certificate with its chain, and its key without a
     * passphrase; both or neither. A broker may require a certificate. It may
     * also know the user by it, who then needs no secret.
     */
    const char *cert;
    const char *key;
    /* The name for SNI and in the broker's certificate: a subjectAltName, or
     * the common name if there is none. NULL: the host of the address. */
    const char *server_name;
    enum holdfast_tls_verify verify;
    const void *reserved[4]; /* NULL */
};

/* CAs and the client's certificate. Connections of several threads may share
 * it. */
struct holdfast_tls;

/* Reads the files. The caller owns the result. NULL: `why` has the error, with
 * the name of the file. */
struct holdfast_tls *holdfast_tls_create(
    const struct holdfast_tls_options *options, char *why, size_t why_bytes);

/* The transport for struct holdfast_options; valid until `tls` is destroyed. */
const struct holdfast_transport *holdfast_tls_transport(
    const struct holdfast_tls *tls);

/* Frees it, after its connections. *tls becomes NULL, and may be NULL. */
void holdfast_tls_destroy(struct holdfast_tls **tls);

#ifdef __cplusplus
}
#endif

#endif
