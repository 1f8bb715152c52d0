/*
 * Trusted CAs and the own certificate, from PEM files, as a context of OpenSSL.
 *
 * Anybody may make a server work. So it has only groups with a cheap handshake,
 * and certificates of clients have a limit.
 */
#include "daemon/io/tls_state.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Bytes of a client's certificates. */
#define CLIENT_CERTS_MAX 32768
/* Certificates between the client's own and its CA's. */
#define CLIENT_CERTS_DEPTH 8
/* Other groups, such as ffdhe8192, would let a client take 100 ms of our time.
 */
#define SERVER_GROUPS "X25519:P-256:P-384"
/* TLS 1.2: with kRSA, a key that is stolen later would decrypt all earlier
 * traffic. */
#define SERVER_CIPHERS "DEFAULT:!kRSA"

/* Writes `"PATH": what (OpenSSL's reason)`. */
static bool
refuse_file(const char *path, const char *what, char *why, size_t why_bytes)
{
    char quoted[96];
    unsigned long error = ERR_peek_error();

    log_quote(quoted, sizeof(quoted), text_from(path));
    if (error != 0 && ERR_GET_LIB(error) == ERR_LIB_SYS)
        snprintf(why, why_bytes, "%s: %s", quoted, holdfast_tls_text(error));
    else if (error != 0)
        snprintf(why, why_bytes, "%s: %s (%s)", quoted, what,
            holdfast_tls_text(error));
    else
        snprintf(why, why_bytes, "%s: %s", quoted, what);
    ERR_clear_error();
    return false;
}

static bool
load_ca(struct tls *tls, const char *path, char *why, size_t why_bytes)
{
    STACK_OF(X509_NAME) *names = NULL;

    ERR_clear_error();
    bool good = SSL_CTX_load_verify_locations(tls->context, path, NULL) == 1;
    /* Clients with several certificates choose by these names. */
    if (good && tls->role == TLS_SERVER)
        names = SSL_load_client_CA_file(path);
    if (!good || (tls->role == TLS_SERVER && names == NULL))
        return refuse_file(
            path, "holds no certificates in PEM format", why, why_bytes);
    if (names != NULL)
        SSL_CTX_set_client_CA_list(tls->context, names); /* owns them now */
    return true;
}

static void
note_expiry(struct tls *tls, const X509 *shown)
{
    struct tm end;
    time_t at;

    if (shown == NULL || ASN1_TIME_to_tm(X509_get0_notAfter(shown), &end) != 1)
        return;
    at = timegm(&end);
    uint64_t end_s = at > 0 ? (uint64_t)at : 1;
    if (tls->expiry_s == 0 || end_s < tls->expiry_s)
        tls->expiry_s = end_s;
}

static void
note_expiries(struct tls *tls)
{
    STACK_OF(X509) *chain = NULL;

    note_expiry(tls, SSL_CTX_get0_certificate(tls->context));
    if (SSL_CTX_get0_chain_certs(tls->context, &chain) != 1)
        return;
    for (int i = 0; i < sk_X509_num(chain); i++)
        note_expiry(tls, sk_X509_value(chain, i));
}

static bool
load_cert(struct tls *tls, const char *path, char *why, size_t why_bytes)
{
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(tls->context, path) != 1)
        return refuse_file(path,
            "holds no certificate in PEM format that can be used", why,
            why_bytes);
    note_expiries(tls);
    return true;
}

static bool
load_key(struct tls *tls, const char *path, char *why, size_t why_bytes)
{
    const char *wrong = holdfast_tls_load_key(tls->context, path);

    return wrong == NULL || refuse_file(path, wrong, why, why_bytes);
}

/* Reads the certificates of a file. A pipe is not waited for. */
static bool
digest_file(const char *path, uint8_t digest[SHA256_DIGEST_LENGTH], char *why,
    size_t why_bytes)
{
    struct stat status;
    char bytes[4096];
    int got = 0;

    ERR_clear_error();
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return refuse_file(path, "not a regular file", why, why_bytes);
    BIO *file = BIO_new_file(path, "r");
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool done = file != NULL && context != NULL &&
                EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    while (done && (got = BIO_read(file, bytes, sizeof(bytes))) > 0)
        done = EVP_DigestUpdate(context, bytes, (size_t)got) == 1;
    done = done && got == 0 && EVP_DigestFinal_ex(context, digest, NULL) == 1;
    EVP_MD_CTX_free(context);
    BIO_free(file);
    explicit_bzero(bytes, sizeof(bytes));
    return done || refuse_file(path, "cannot be read", why, why_bytes);
}

static const char *
file_of(const struct tls_settings *settings, enum tls_part part)
{
    const char *const files[TLS_PARTS] = {
        [TLS_PART_CA] = settings->ca,
        [TLS_PART_CERT] = settings->cert,
        [TLS_PART_KEY] = settings->key,
    };

    return files[part];
}

static bool
load_files(struct tls *tls, const struct tls_settings *settings,
    enum tls_part *part, char *why, size_t why_bytes)
{
    static bool (*const load[TLS_PARTS])(
        struct tls * tls, const char *path, char *why, size_t why_bytes) = {
        [TLS_PART_CA] = load_ca,
        [TLS_PART_CERT] = load_cert,
        [TLS_PART_KEY] = load_key,
    };

    for (*part = TLS_PART_CA; *part < TLS_PARTS; (*part)++) {
        const char *path = file_of(settings, *part);
        if (path[0] != '\0' &&
            (!digest_file(path, tls->digest[*part], why, why_bytes) ||
                !load[*part](tls, path, why, why_bytes)))
            return false;
    }
    return true;
}

/* Ends a handshake with a too long ClientHello; see tls_conn.c. */
static int
hello_read(SSL *ssl, int *alert, void *arg)
{
    const bool *is_long = SSL_get_app_data(ssl);

    (void)arg;
    *alert = SSL_AD_DECODE_ERROR;
    return *is_long ? SSL_CLIENT_HELLO_ERROR : SSL_CLIENT_HELLO_SUCCESS;
}

static bool
context_for_clients(SSL_CTX *context, const struct tls_settings *settings)
{
    char groups[] = SERVER_GROUPS; /* OpenSSL's macro wants no const */
    int asks = SSL_VERIFY_PEER;

    if (settings->ca[0] == '\0')
        asks = SSL_VERIFY_NONE;
    else if (settings->required)
        asks |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(context, asks, NULL);
    SSL_CTX_set_verify_depth(context, CLIENT_CERTS_DEPTH);
    /* The own chain comes from its file, and not from the clients' CAs. */
    (void)SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_max_cert_list(context, CLIENT_CERTS_MAX);
    SSL_CTX_set_client_hello_cb(context, hello_read, NULL);
    /* TLS 1.3 has other tickets than those of SSL_OP_NO_TICKET. */
    return SSL_CTX_set_num_tickets(context, 0) == 1 &&
           SSL_CTX_set_cipher_list(context, SERVER_CIPHERS) == 1 &&
           SSL_CTX_set1_groups_list(context, groups) == 1;
}

static bool
make_context(struct tls *tls, const struct tls_settings *settings)
{
    bool server = settings->role == TLS_SERVER;

    tls->sockets = holdfast_tls_sockets();
    tls->context = holdfast_tls_context(
        server ? TLS_server_method() : TLS_client_method());
    if (tls->sockets == NULL || tls->context == NULL)
        return false;
    return !server || context_for_clients(tls->context, settings);
}

struct tls *
tls_create(const struct tls_settings *settings, enum tls_part *part, char *why,
    size_t why_bytes)
{
    struct tls *tls = calloc(1, sizeof(*tls));

    *part = TLS_PART_CA;
    if (tls != NULL) {
        tls->refs = 1;
        tls->role = settings->role;
    }
    if (tls == NULL || !make_context(tls, settings)) {
        snprintf(why, why_bytes, "no memory for TLS");
        tls_destroy(&tls);
        return NULL;
    }
    snprintf(tls->server_name, sizeof(tls->server_name), "%s",
        settings->server_name);
    tls->any_name = settings->any_name;
    tls->required = settings->required;
    if (!load_files(tls, settings, part, why, why_bytes))
        tls_destroy(&tls);
    return tls;
}

uint64_t
tls_expiry_s(const struct tls *tls)
{
    return tls->expiry_s;
}

void
tls_unref(struct tls *tls)
{
    require(tls->refs > 0);
    if (--tls->refs > 0)
        return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->sockets);
    ERR_clear_error();
    free(tls);
}

void
tls_destroy(struct tls **tls)
{
    if (*tls != NULL)
        tls_unref(*tls);
    *tls = NULL;
}

bool
tls_is_current(const struct tls *tls, const struct tls_settings *settings)
{
    char why[256];

    require(tls->role == settings->role);
    if (strcmp(tls->server_name, settings->server_name) != 0 ||
        tls->any_name != settings->any_name ||
        tls->required != settings->required)
        return false;
    for (enum tls_part part = TLS_PART_CA; part < TLS_PARTS; part++) {
        const char *path = file_of(settings, part);
        uint8_t digest[SHA256_DIGEST_LENGTH] = {0};
        if (path[0] != '\0' && !digest_file(path, digest, why, sizeof(why)))
            return false;
        if (memcmp(digest, tls->digest[part], sizeof(digest)) != 0)
            return false;
    }
    return true;
}

bool
tls_same(const struct tls *one, const struct tls *other, enum tls_part part)
{
    require(part < TLS_PARTS);
    return memcmp(one->digest[part], other->digest[part],
               sizeof(one->digest[part])) == 0;
}
