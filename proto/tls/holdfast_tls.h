/*
 * TLS for the client library of Holdfast (holdfast.h), to a broker's port for
 * it, which is usually 4655.
 *
 * Link with libholdfast-tls.a, libholdfast.a, -lssl and -lcrypto, in this
 * order. OpenSSL 1.1.1 or later; what is spoken is TLS 1.2 or later.
 *
 *     struct holdfast_tls_options how = {.ca = "/etc/holdfast/ca.pem"};
 *     char why[256];
 *     struct holdfast_tls *tls = holdfast_tls_create(&how, why, sizeof(why));
 *     struct holdfast_options options = {.address = "broker1,broker2",
 *         .transport = holdfast_tls_transport(tls)};
 *     holdfast_create_with(&options, &h);
 *         all as ever
 *     holdfast_destroy(&h);
 *     holdfast_tls_destroy(&tls);
 *
 * Nothing of a session goes over a connection before the broker's certificate
 * is verified. If it is not, the next address is tried. If that is the end of
 * all, holdfast_reason() has the fault.
 *
 * The promises of holdfast.h hold here too: no thread, no signal handler, no
 * SIGPIPE, nothing that blocks but for holdfast_tls_create(), which reads
 * files. A child after fork() may use what holdfast_tls_create() made in
 * connections of its own, and leaves those of its parent alone.
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
    HOLDFAST_TLS_FULL, /* that it is good, and names the broker */
    HOLDFAST_TLS_CA,   /* that it is good: anybody's of these CAs */
};

/* All may be NULL or 0. Files are PEM, absolute or from the working folder. */
struct holdfast_tls_options {
    /* The CAs that are trusted, and no others. NULL: those that the system
     * trusts, among whom are many who certify anybody's name. */
    const char *ca;
    /*
     * This client's certificate, with its chain, and its key, without a
     * passphrase; both or neither. A broker may ask for one, and may know a
     * user by it, who then needs no secret.
     */
    const char *cert;
    const char *key;
    /*
     * The name that is asked for, and that the broker's certificate has to
     * have, in place of the host of the address. A subjectAltName: what else a
     * certificate says does not count, but where it has none its common name.
     */
    const char *server_name;
    enum holdfast_tls_verify verify;
};

/* Trusted CAs and the own certificate; shared by connections, also of several
 * threads. */
struct holdfast_tls;

/* Reads the files; `options` is not needed after. NULL: `why` says in a line
 * what is wrong, by the name of the file. The caller owns it. */
struct holdfast_tls *holdfast_tls_create(
    const struct holdfast_tls_options *options, char *why, size_t why_bytes);

/* For struct holdfast_options; good until `tls` is destroyed. */
const struct holdfast_transport *holdfast_tls_transport(
    const struct holdfast_tls *tls);

/* Not before the connections that it is for; *tls becomes NULL, and may be. */
void holdfast_tls_destroy(struct holdfast_tls **tls);

#ifdef __cplusplus
}
#endif

#endif
