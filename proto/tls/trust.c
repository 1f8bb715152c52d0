/*
 * What is trusted and shown: files to OpenSSL's context, which connections
 * share. TLS 1.2 or later, without renegotiation, resumption or compression.
 */
#define _GNU_SOURCE 1

#include "proto/tls/tls.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where to say what is wrong. */
struct refusal {
    char *why;
    size_t bytes;
};

const char *
holdfast_tls_text(unsigned long error)
{
    const char *text;

    if (ERR_GET_LIB(error) == ERR_LIB_SYS)
        return strerror(ERR_GET_REASON(error));
    text = ERR_reason_error_string(error);
    return text != NULL ? text : "OpenSSL does not say why";
}

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

/* Nobody waits for a pipe, or reads a folder. */
static bool
file_check(const char *path, const struct refusal *refusal)
{
    struct stat status;

    ERR_clear_error();
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return refuse(refusal, path, "not a regular file");
    return true;
}

/* The file alone; or all that the system trusts, which is no file of ours. */
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

/* In place of a question on the terminal. */
static int
no_passphrase(char *out, int room, int writing, void *asked)
{
    (void)out;
    (void)room;
    (void)writing;
    if (asked != NULL)
        *(bool *)asked = true;
    return -1;
}

static EVP_PKEY *
read_key(const char *path, const struct refusal *refusal)
{
    bool asked = false;
    EVP_PKEY *key = NULL;

    ERR_clear_error();
    BIO *file = BIO_new_file(path, "r");
    if (file != NULL)
        key = PEM_read_bio_PrivateKey(file, NULL, no_passphrase, &asked);
    BIO_free(file);
    if (key == NULL && asked)
        ERR_clear_error();
    if (key == NULL)
        (void)refuse(refusal, path,
            asked ? "has a passphrase, which nobody is there to give"
                  : "holds no private key in PEM format");
    return key;
}

static bool
load_key(SSL_CTX *context, const char *path, const struct refusal *refusal)
{
    EVP_PKEY *key = file_check(path, refusal) ? read_key(path, refusal) : NULL;
    const X509 *cert = SSL_CTX_get0_certificate(context);
    bool done = false;

    if (key == NULL)
        return false;
    if (X509_check_private_key(cert, key) != 1) {
        ERR_clear_error();
        (void)refuse(refusal, path, "does not fit the certificate");
    } else if (SSL_CTX_use_PrivateKey(context, key) != 1) {
        (void)refuse(refusal, path, "cannot be used");
    } else {
        done = true;
    }
    EVP_PKEY_free(key);
    return done;
}

static bool
load_own(SSL_CTX *context, const struct holdfast_tls_options *options,
    const struct refusal *refusal)
{
    if (options->cert == NULL && options->key == NULL)
        return true;
    if (options->cert == NULL || options->key == NULL) {
        (void)snprintf(refusal->why, refusal->bytes,
            "a certificate and its key go together");
        return false;
    }
    if (!file_check(options->cert, refusal))
        return false;
    if (SSL_CTX_use_certificate_chain_file(context, options->cert) != 1)
        return refuse(refusal, options->cert,
            "holds no certificate in PEM format that can be used");
    return load_key(context, options->key, refusal);
}

static bool
make_context(struct holdfast_tls *tls)
{
    tls->sockets = holdfast_tls_sockets();
    tls->context = SSL_CTX_new(TLS_client_method());
    if (tls->sockets == NULL || tls->context == NULL ||
        SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION) != 1)
        return false;
    SSL_CTX_set_default_passwd_cb(tls->context, no_passphrase);
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    (void)SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_options(tls->context,
        SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
    (void)SSL_CTX_set_mode(tls->context,
        SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
            SSL_MODE_RELEASE_BUFFERS);
    /* No byte beyond the present record is taken off the socket. */
    SSL_CTX_set_read_ahead(tls->context, 0);
    return true;
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
    if (tls == NULL || !make_context(tls)) {
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
