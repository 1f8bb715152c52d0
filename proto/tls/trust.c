/*
 * Trusted CAs and the own certificate: files to OpenSSL's context, which
 * connections share.
 */
#define _GNU_SOURCE 1

#include "proto/tls/tls.h"

#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The place for an error. */
struct refusal {
    char *why;
    size_t bytes;
};

/* PATH: what (OpenSSL's reason). */
static bool
refuse(const struct refusal *refusal, const char *path, const char *what)
{
    unsigned long error = ERR_peek_error();

    if (error != 0 && ERR_GET_LIB(error) == ERR_LIB_SYS)
        (void)snprintf(refusal->why, refusal->bytes, "%s: %s", path,
            holdfast_tls_text(error));
    else if (error != 0)
        (void)snprintf(refusal->why, refusal->bytes, "%s: %s (%s)", path, what,
            holdfast_tls_text(error));
    else
        (void)snprintf(refusal->why, refusal->bytes, "%s: %s", path, what);
    ERR_clear_error();
    return false;
}

/* A pipe would block, and a folder cannot be read. */
static bool
file_check(const char *path, const struct refusal *refusal)
{
    struct stat status;

    ERR_clear_error();
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return refuse(refusal, path, "not a regular file");
    return true;
}

/* Loads the CAs of the file; NULL: of the system. */
static bool
load_ca(SSL_CTX *context, const char *path, const struct refusal *refusal)
{
    ERR_clear_error();
    if (path == NULL) {
        if (SSL_CTX_set_default_verify_paths(context) == 1)
            return true;
        return refuse(refusal, "the system's CAs", "cannot be read");
    }
    if (!file_check(path, refusal))
        return false;
    if (SSL_CTX_load_verify_locations(context, path, NULL) == 1)
        return true;
    return refuse(refusal, path, "holds no certificates in PEM format");
}

static bool
load_own(SSL_CTX *context, const struct holdfast_tls_options *options,
    const struct refusal *refusal)
{
    if (options->cert == NULL && options->key == NULL)
        return true;
    if (options->cert == NULL || options->key == NULL) {
        (void)snprintf(refusal->why, refusal->bytes,
            "a certificate and its key are both needed");
        return false;
    }
    if (!file_check(options->cert, refusal))
        return false;
    if (SSL_CTX_use_certificate_chain_file(context, options->cert) != 1)
        return refuse(refusal, options->cert,
            "holds no certificate in PEM format that can be used");
    if (!file_check(options->key, refusal))
        return false;
    const char *wrong = holdfast_tls_load_key(context, options->key);
    return wrong == NULL || refuse(refusal, options->key, wrong);
}

struct holdfast_tls *
holdfast_tls_create(
    const struct holdfast_tls_options *options, char *why, size_t why_bytes)
{
    const struct refusal refusal = {why, why_bytes};
    const char *name = options->server_name != NULL ? options->server_name : "";
    struct holdfast_tls *tls = NULL;

    if (strlen(name) >= TLS_NAME_BYTES) {
        (void)snprintf(why, why_bytes, "the server's name is too long");
        return NULL;
    }
    tls = calloc(1, sizeof(*tls));
    if (tls != NULL) {
        tls->sockets = holdfast_tls_sockets();
        tls->context = holdfast_tls_context(TLS_client_method());
    }
    if (tls == NULL || tls->sockets == NULL || tls->context == NULL) {
        (void)snprintf(why, why_bytes, "no memory for TLS");
        holdfast_tls_destroy(&tls);
        return NULL;
    }
    (void)snprintf(tls->server_name, sizeof(tls->server_name), "%s", name);
    tls->any_name = options->verify == HOLDFAST_TLS_CA;
    tls->transport = holdfast_tls_functions;
    tls->transport.context = tls;
    if (!load_ca(tls->context, options->ca, &refusal) ||
        !load_own(tls->context, options, &refusal))
        holdfast_tls_destroy(&tls);
    return tls;
}

const struct holdfast_transport *
holdfast_tls_transport(const struct holdfast_tls *tls)
{
    return &tls->transport;
}

void
holdfast_tls_destroy(struct holdfast_tls **tls)
{
    if (*tls == NULL)
        return;
    SSL_CTX_free((*tls)->context);
    BIO_meth_free((*tls)->sockets);
    ERR_clear_error();
    free(*tls);
    *tls = NULL;
}
