/*
 * TLS by OpenSSL, 1.2 or later, without renegotiation, resumption or
 * compression.
 *
 * The bytes go through a BIO of our own rather than OpenSSL's for sockets,
 * which writes so that a peer that is gone raises SIGPIPE. There is no
 * read-ahead: no byte beyond the present record is taken off the socket.
 *
 * OpenSSL keeps a queue of errors for the thread, which has to be empty before
 * each call, or what SSL_get_error() says may be another connection's.
 */
#include "daemon/io/tls.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define HOST_BYTES 256

struct tls {
    uint32_t refs;       /* its owner's, and one for each link */
    SSL_CTX *context;    /* owned */
    BIO_METHOD *sockets; /* owned */
    uint8_t digest[TLS_PARTS][SHA256_DIGEST_LENGTH]; /* of each file */
    char server_name[HOST_BYTES];
    bool any_name;
};

struct tls_link {
    struct tls *tls; /* ref, counted */
    SSL *ssl;        /* owned, with its BIO */
    int fd;
    int error; /* errno of the socket; 0: none */
    bool shaken;
    char name[HOST_BYTES]; /* what the certificate has to name */
    char why[HOST_BYTES + 100];
};

/* The socket */

static int
socket_result(BIO *bio, struct tls_link *link, ssize_t moved, int retry)
{
    BIO_clear_retry_flags(bio);
    if (moved >= 0)
        return (int)moved;
    if (errno == EAGAIN || errno == EINTR)
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    else
        link->error = errno;
    return -1;
}

static int
socket_write(BIO *bio, const char *bytes, int len)
{
    struct tls_link *link = BIO_get_data(bio);

    return socket_result(bio, link,
        send(link->fd, bytes, (size_t)len, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static int
socket_read(BIO *bio, char *out, int room)
{
    struct tls_link *link = BIO_get_data(bio);

    return socket_result(
        bio, link, recv(link->fd, out, (size_t)room, 0), BIO_FLAGS_READ);
}

static long
socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *
socket_method(void)
{
    int type = BIO_get_new_index();
    BIO_METHOD *method =
        type == -1 ? NULL
                   : BIO_meth_new(type | BIO_TYPE_SOURCE_SINK, "redis link");

    if (method != NULL && BIO_meth_set_write(method, socket_write) == 1 &&
        BIO_meth_set_read(method, socket_read) == 1 &&
        BIO_meth_set_ctrl(method, socket_control) == 1)
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* Reasons */

static const char *
reason_text(unsigned long error)
{
    const char *reason;

    if (ERR_GET_LIB(error) == ERR_LIB_SYS)
        return strerror(ERR_GET_REASON(error));
    reason = ERR_reason_error_string(error);
    return reason == NULL ? "OpenSSL does not say why" : reason;
}

/* "PATH": what (OpenSSL's reason). */
static bool
refuse_file(const char *path, const char *what, char *why, size_t why_bytes)
{
    char quoted[96];
    unsigned long error = ERR_peek_error();

    log_quote(quoted, sizeof(quoted), text_from(path));
    if (error != 0 && ERR_GET_LIB(error) == ERR_LIB_SYS)
        snprintf(why, why_bytes, "%s: %s", quoted, reason_text(error));
    else if (error != 0)
        snprintf(
            why, why_bytes, "%s: %s (%s)", quoted, what, reason_text(error));
    else
        snprintf(why, why_bytes, "%s: %s", quoted, what);
    ERR_clear_error();
    return false;
}

/* Trust, and who we are */

static bool
load_ca(struct tls *tls, const char *path, char *why, size_t why_bytes)
{
    ERR_clear_error();
    if (SSL_CTX_load_verify_locations(tls->context, path, NULL) == 1)
        return true;
    return refuse_file(
        path, "holds no certificates in PEM format", why, why_bytes);
}

static bool
load_cert(struct tls *tls, const char *path, char *why, size_t why_bytes)
{
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(tls->context, path) == 1)
        return true;
    return refuse_file(path,
        "holds no certificate in PEM format that can be used", why, why_bytes);
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
read_key(const char *path, char *why, size_t why_bytes)
{
    bool asked = false;
    EVP_PKEY *key = NULL;

    ERR_clear_error();
    BIO *file = BIO_new_file(path, "r");
    if (file != NULL)
        key = PEM_read_bio_PrivateKey(file, NULL, no_passphrase, &asked);
    BIO_free(file);
    if (key == NULL && asked) {
        ERR_clear_error();
        refuse_file(path, "has a passphrase, which nobody is there to give",
            why, why_bytes);
    } else if (key == NULL) {
        refuse_file(path, "holds no private key in PEM format", why, why_bytes);
    }
    return key;
}

static bool
load_key(struct tls *tls, const char *path, char *why, size_t why_bytes)
{
    EVP_PKEY *key = read_key(path, why, why_bytes);
    const X509 *cert = SSL_CTX_get0_certificate(tls->context);
    bool done = false;

    if (key == NULL)
        return false;
    if (X509_check_private_key(cert, key) != 1) {
        ERR_clear_error();
        refuse_file(path, "does not fit the certificate of redis.tls.cert", why,
            why_bytes);
    } else if (SSL_CTX_use_PrivateKey(tls->context, key) != 1) {
        refuse_file(path, "cannot be used", why, why_bytes);
    } else {
        done = true;
    }
    EVP_PKEY_free(key);
    return done;
}

/* What it holds. Nobody waits for a pipe. */
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

static bool
make_context(struct tls *tls)
{
    tls->sockets = socket_method();
    tls->context = SSL_CTX_new(TLS_client_method());
    if (tls->sockets == NULL || tls->context == NULL ||
        SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION) != 1)
        return false;
    SSL_CTX_set_default_passwd_cb(tls->context, no_passphrase);
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(tls->context,
        SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
    SSL_CTX_set_mode(tls->context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                       SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                       SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(tls->context, 0);
    return true;
}

struct tls *
tls_create(const struct tls_settings *settings, enum tls_part *part, char *why,
    size_t why_bytes)
{
    struct tls *tls = calloc(1, sizeof(*tls));

    *part = TLS_PART_CA;
    if (tls != NULL)
        tls->refs = 1;
    if (tls == NULL || !make_context(tls)) {
        snprintf(why, why_bytes, "no memory for TLS");
        tls_destroy(&tls);
        return NULL;
    }
    snprintf(tls->server_name, sizeof(tls->server_name), "%s",
        settings->server_name);
    tls->any_name = settings->any_name;
    if (!load_files(tls, settings, part, why, why_bytes))
        tls_destroy(&tls);
    return tls;
}

static void
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

    if (strcmp(tls->server_name, settings->server_name) != 0 ||
        tls->any_name != settings->any_name)
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

/* One connection */

static bool
is_number(const char *host)
{
    struct in6_addr ignored;

    return inet_pton(AF_INET, host, &ignored) == 1 ||
           inet_pton(AF_INET6, host, &ignored) == 1;
}

/* What the certificate is to name; and the name is asked for, unless it is a
 * number, which the extension does not know (RFC 6066). */
static bool
link_expect(struct tls_link *link, const struct tls *tls)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(link->ssl);
    bool number = is_number(link->name);

    if (!number && SSL_set_tlsext_host_name(link->ssl, link->name) != 1)
        return false;
    if (tls->any_name)
        return true;
    if (number)
        return X509_VERIFY_PARAM_set1_ip_asc(param, link->name) == 1;
    SSL_set_hostflags(link->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(link->ssl, link->name) == 1;
}

/* Certificates have names without the dot of the root. */
static void
link_name(struct tls_link *link, const struct tls *tls, const char *host)
{
    const char *name = tls->server_name[0] != '\0' ? tls->server_name : host;
    size_t len = strcspn(name, "%"); /* a number's zone is ours alone */

    if (len >= sizeof(link->name))
        len = sizeof(link->name) - 1;
    memcpy(link->name, name, len);
    if (len > 1 && link->name[len - 1] == '.')
        link->name[len - 1] = '\0';
}

static bool
link_prepare(struct tls_link *link, const struct tls *tls)
{
    BIO *bio = BIO_new(tls->sockets);

    if (bio == NULL)
        return false;
    BIO_set_data(bio, link);
    BIO_set_init(bio, 1);
    link->ssl = SSL_new(tls->context);
    if (link->ssl == NULL) {
        BIO_free(bio);
        return false;
    }
    SSL_set_bio(link->ssl, bio, bio); /* owns it now */
    SSL_set_connect_state(link->ssl);
    return link_expect(link, tls);
}

struct tls_link *
tls_link_create(struct tls *tls, int fd, const char *host)
{
    struct tls_link *link = calloc(1, sizeof(*link));

    require(fd >= 0);
    if (link == NULL)
        return NULL;
    link->tls = tls;
    tls->refs++;
    link->fd = fd;
    link_name(link, tls, host);
    ERR_clear_error();
    if (!link_prepare(link, tls))
        tls_link_destroy(&link);
    ERR_clear_error();
    return link;
}

void
tls_link_destroy(struct tls_link **link)
{
    if (*link == NULL)
        return;
    SSL_free((*link)->ssl);
    ERR_clear_error();
    tls_unref((*link)->tls);
    free(*link);
    *link = NULL;
}

/* The peer's certificate was not taken. */
static void
why_refused(struct tls_link *link, long verified)
{
    bool name = verified == X509_V_ERR_HOSTNAME_MISMATCH ||
                verified == X509_V_ERR_IP_ADDRESS_MISMATCH;

    if (name)
        snprintf(link->why, sizeof(link->why),
            "its certificate does not name \"%s\", as redis.tls.verify asks",
            link->name);
    else
        snprintf(link->why, sizeof(link->why),
            "its certificate cannot be verified: %s",
            X509_verify_cert_error_string(verified));
}

/* The first word of the peer was none of TLS. */
static bool
is_foreign(unsigned long error)
{
    int reason = ERR_GET_REASON(error);

    return ERR_GET_LIB(error) == ERR_LIB_SSL &&
           (reason == SSL_R_WRONG_VERSION_NUMBER ||
               reason == SSL_R_HTTP_REQUEST ||
               reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
               reason == SSL_R_UNEXPECTED_MESSAGE ||
               reason == SSL_R_BAD_RECORD_TYPE);
}

static bool
is_alert(unsigned long error)
{
    return ERR_GET_LIB(error) == ERR_LIB_SSL &&
           ERR_GET_REASON(error) >= SSL_AD_REASON_OFFSET;
}

static void
why_failed(struct tls_link *link)
{
    unsigned long error = ERR_peek_error();
    long verified = SSL_get_verify_result(link->ssl);
    const char *what = "TLS failed";

    if (!link->shaken && verified != X509_V_OK) {
        why_refused(link, verified);
        return;
    }
    if (!link->shaken && is_foreign(error))
        what = "it does not speak TLS";
    else if (is_alert(error))
        what = "it ends TLS";
    snprintf(link->why, sizeof(link->why), "%s (%s)", what, reason_text(error));
}

/* It ended without a word of TLS, which RESP does not need to know its end. */
static bool
is_end(int status)
{
    unsigned long error = ERR_peek_error();

    if (status == SSL_ERROR_ZERO_RETURN || error == 0)
        return true;
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
    return ERR_GET_LIB(error) == ERR_LIB_SSL &&
           ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
#else
    return false;
#endif
}

/* After a call that gave `result`. */
static enum tls_status
link_status(struct tls_link *link, int result)
{
    int status = SSL_get_error(link->ssl, result);

    if (status == SSL_ERROR_NONE)
        return TLS_DONE;
    if (status == SSL_ERROR_WANT_READ)
        return TLS_WANTS_READ;
    if (status == SSL_ERROR_WANT_WRITE)
        return TLS_WANTS_WRITE;
    if (link->error != 0)
        snprintf(link->why, sizeof(link->why), "%s%s", strerror(link->error),
            link->shaken ? "" : " in the TLS handshake");
    else if (is_end(status))
        snprintf(link->why, sizeof(link->why), "closed by Redis%s",
            link->shaken ? "" : " in the TLS handshake");
    else
        why_failed(link);
    ERR_clear_error();
    return TLS_BROKEN;
}

enum tls_status
tls_link_shake(struct tls_link *link)
{
    require(!link->shaken);
    ERR_clear_error();
    enum tls_status status = link_status(link, SSL_do_handshake(link->ssl));
    link->shaken = status == TLS_DONE;
    return status;
}

enum tls_status
tls_link_read(struct tls_link *link, char *out, size_t room, size_t *got)
{
    require(link->shaken && room > 0);
    ERR_clear_error();
    return link_status(link, SSL_read_ex(link->ssl, out, room, got));
}

/*
 * The socket takes nothing any more. By TLS 1.3 a server that does not like our
 * certificate says so after the handshake, and goes: that may lie here unread.
 */
static void
find_last_word(struct tls_link *link)
{
    char ignored[1];
    size_t got;

    ERR_clear_error();
    if (SSL_read_ex(link->ssl, ignored, sizeof(ignored), &got) != 1 &&
        is_alert(ERR_peek_error()))
        why_failed(link);
    ERR_clear_error();
}

enum tls_status
tls_link_write(
    struct tls_link *link, const char *bytes, size_t len, size_t *sent)
{
    require(link->shaken && len > 0);
    ERR_clear_error();
    enum tls_status status =
        link_status(link, SSL_write_ex(link->ssl, bytes, len, sent));
    if (status == TLS_BROKEN && link->error != 0)
        find_last_word(link);
    return status;
}

const char *
tls_link_why(const struct tls_link *link)
{
    return link->why;
}
