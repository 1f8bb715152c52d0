/*
 * A TLS connection, of a client or a server. OpenSSL's queue of errors is empty
 * before and after each call; see proto/tls/openssl.h.
 */
#include "daemon/io/tls_state.h"

#include "daemon/base/assert.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The limit of a ClientHello. OpenSSL takes 128 KiB, and keeps its ciphers and
 * protocol names for as long as the connection lasts. */
#define HELLO_BYTES 16384

struct tls_conn {
    struct tls *tls; /* ref, counted */
    SSL *ssl;        /* owned, with its BIO */
    struct tls_socket socket;
    bool handshaken;
    bool hello_is_long; /* a client's */
    enum tls_failure failure;
    char *name; /* owned; the name that the certificate must have, or NULL */
    char *why;  /* owned; NULL: not broken, or no memory */
};

/* Reasons */

static const char *
peer_of(const struct tls_conn *conn)
{
    return conn->tls->role == TLS_SERVER ? "the client" : "Redis";
}

static void conn_fail(struct tls_conn *conn, enum tls_failure failure,
    const char *format, ...) __attribute__((format(printf, 3, 4)));

static void
conn_fail(
    struct tls_conn *conn, enum tls_failure failure, const char *format, ...)
{
    char why[TLS_NAME_BYTES + 100];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    conn->failure = failure;
    free(conn->why);
    conn->why = strdup(why);
}

/* The peer's certificate was refused. */
static void
fail_certificate(struct tls_conn *conn, long verified)
{
    bool name = verified == X509_V_ERR_HOSTNAME_MISMATCH ||
                verified == X509_V_ERR_IP_ADDRESS_MISMATCH;

    if (name)
        conn_fail(conn, TLS_FAILED_CERTIFICATE,
            "its certificate does not name \"%s\", as redis.tls.verify "
            "requires",
            conn->name);
    else
        conn_fail(conn, TLS_FAILED_CERTIFICATE,
            "its certificate cannot be verified: %s",
            X509_verify_cert_error_string(verified));
}

/* One side refused the certificate of the other. */
static bool
is_about_certificate(unsigned long error)
{
    static const int reasons[] = {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE,
        SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
        SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
        SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED,
        SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
        SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, SSL_R_TLSV1_ALERT_UNKNOWN_CA,
        SSL_R_EXCESSIVE_MESSAGE_SIZE};

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (ERR_GET_REASON(error) == reasons[i])
            return ERR_GET_LIB(error) == ERR_LIB_SSL;
    return false;
}

static void
fail_protocol(struct tls_conn *conn)
{
    unsigned long error = ERR_peek_error();
    long verified = SSL_get_verify_result(conn->ssl);
    enum tls_failure failure = is_about_certificate(error)
                                   ? TLS_FAILED_CERTIFICATE
                                   : TLS_FAILED_PROTOCOL;
    const char *what = "TLS failed";

    if (!conn->handshaken && verified != X509_V_OK) {
        fail_certificate(conn, verified);
        return;
    }
    if (!conn->handshaken && holdfast_tls_is_foreign(error))
        what = "it does not speak TLS";
    else if (holdfast_tls_is_alert(error))
        what = "it ends TLS";
    conn_fail(conn, failure, "%s (%s)", what, holdfast_tls_text(error));
}

/* The status of a call that returned `result`. */
static enum tls_status
conn_status(struct tls_conn *conn, int result)
{
    int status = SSL_get_error(conn->ssl, result);
    const char *when = conn->handshaken ? "" : " in the TLS handshake";

    if (status == SSL_ERROR_NONE)
        return TLS_DONE;
    if (status == SSL_ERROR_WANT_READ)
        return TLS_WANTS_READ;
    if (status == SSL_ERROR_WANT_WRITE)
        return TLS_WANTS_WRITE;
    if (conn->socket.error != 0)
        conn_fail(
            conn, TLS_FAILED_GONE, "%s%s", strerror(conn->socket.error), when);
    else if (status == SSL_ERROR_ZERO_RETURN || holdfast_tls_is_end())
        conn_fail(conn, TLS_FAILED_GONE, "closed by %s%s", peer_of(conn), when);
    else
        fail_protocol(conn);
    ERR_clear_error();
    return status == SSL_ERROR_ZERO_RETURN ? TLS_ENDED : TLS_BROKEN;
}

/* One connection */

/* Called for each message; see SSL_set_msg_callback(3). */
static void
conn_message(int write, int version, int type, const void *message, size_t len,
    SSL *ssl, void *arg)
{
    struct tls_conn *conn = arg;
    const uint8_t *kind = message;

    (void)version;
    (void)ssl;
    if (write == 0 && type == SSL3_RT_HANDSHAKE && len > HELLO_BYTES &&
        kind[0] == SSL3_MT_CLIENT_HELLO)
        conn->hello_is_long = true;
}

/* `name` is the server's; NULL: the peer is a client. */
static bool
conn_prepare(struct tls_conn *conn, const struct tls *tls)
{
    conn->ssl = holdfast_tls_open(tls->context, tls->sockets, &conn->socket);
    if (conn->ssl == NULL)
        return false;
    if (tls->role == TLS_SERVER) {
        SSL_set_accept_state(conn->ssl);
        SSL_set_msg_callback(conn->ssl, conn_message);
        SSL_set_msg_callback_arg(conn->ssl, conn);
        return SSL_set_app_data(conn->ssl, &conn->hello_is_long) == 1;
    }
    SSL_set_connect_state(conn->ssl);
    return holdfast_tls_expect(conn->ssl, conn->name, tls->any_name);
}

static char *
name_for(const struct tls *tls, const char *host)
{
    char name[TLS_NAME_BYTES];

    holdfast_tls_name(
        tls->server_name[0] != '\0' ? tls->server_name : host, name);
    return strdup(name);
}

struct tls_conn *
tls_conn_create(struct tls *tls, int fd, const char *host)
{
    struct tls_conn *conn = calloc(1, sizeof(*conn));

    require(fd >= 0 && (host == NULL) == (tls->role == TLS_SERVER));
    if (conn == NULL)
        return NULL;
    conn->tls = tls;
    tls->refs++;
    conn->socket.fd = fd;
    if (host != NULL)
        conn->name = name_for(tls, host);
    ERR_clear_error();
    if ((host != NULL && conn->name == NULL) || !conn_prepare(conn, tls))
        tls_conn_destroy(&conn);
    ERR_clear_error();
    return conn;
}

void
tls_conn_destroy(struct tls_conn **conn)
{
    if (*conn == NULL)
        return;
    SSL_free((*conn)->ssl);
    ERR_clear_error();
    tls_unref((*conn)->tls);
    free((*conn)->name);
    free((*conn)->why);
    free(*conn);
    *conn = NULL;
}

enum tls_status
tls_conn_handshake(struct tls_conn *conn)
{
    require(!conn->handshaken);
    ERR_clear_error();
    enum tls_status status = conn_status(conn, SSL_do_handshake(conn->ssl));
    if (status == TLS_BROKEN && conn->hello_is_long)
        conn_fail(conn, TLS_FAILED_PROTOCOL, "its ClientHello is too long");
    conn->handshaken = status == TLS_DONE;
    return status;
}

enum tls_status
tls_conn_read(struct tls_conn *conn, char *out, size_t room, size_t *got)
{
    require(conn->handshaken && room > 0);
    ERR_clear_error();
    return conn_status(conn, SSL_read_ex(conn->ssl, out, room, got));
}

/*
 * The socket takes nothing any more. A TLS 1.3 server refuses our certificate
 * after the handshake, and closes: the reason may lie here unread.
 */
static void
find_last_word(struct tls_conn *conn)
{
    char ignored[1];
    size_t got;

    ERR_clear_error();
    if (SSL_read_ex(conn->ssl, ignored, sizeof(ignored), &got) != 1 &&
        holdfast_tls_is_alert(ERR_peek_error()))
        fail_protocol(conn);
    ERR_clear_error();
}

enum tls_status
tls_conn_write(
    struct tls_conn *conn, const char *bytes, size_t len, size_t *sent)
{
    require(conn->handshaken && len > 0);
    ERR_clear_error();
    enum tls_status status =
        conn_status(conn, SSL_write_ex(conn->ssl, bytes, len, sent));
    if (status == TLS_BROKEN && conn->socket.error != 0)
        find_last_word(conn);
    return status;
}

enum tls_status
tls_conn_end(struct tls_conn *conn)
{
    require(conn->handshaken);
    ERR_clear_error();
    int result = SSL_shutdown(conn->ssl);
    /* 0: the peer has not ended TLS yet, which is not waited for */
    if (result >= 0)
        return TLS_DONE;
    return conn_status(conn, result);
}

bool
tls_conn_is_within(const struct tls_conn *conn)
{
    /* With only its header, nothing is pending. */
    return SSL_has_pending(conn->ssl) == 1 ||
           strcmp(SSL_rstate_string(conn->ssl), "RB") == 0;
}

const char *
tls_conn_why(const struct tls_conn *conn)
{
    return conn->why != NULL ? conn->why : "no memory to say why";
}

enum tls_failure
tls_conn_failure(const struct tls_conn *conn)
{
    return conn->failure;
}

/* Names of the certificate's owner. */

/* Gives the subjectAltNames. True: there are some. */
static bool
give_alternatives(const X509 *cert, tls_name *name, void *arg)
{
    GENERAL_NAMES *names =
        X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    bool any = false;

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *one = sk_GENERAL_NAME_value(names, i);
        if (one->type != GEN_DNS && one->type != GEN_EMAIL &&
            one->type != GEN_URI)
            continue;
        any = true;
        const ASN1_IA5STRING *text = one->d.ia5;
        name(arg, text_make((const char *)ASN1_STRING_get0_data(text),
                      (size_t)ASN1_STRING_length(text)));
    }
    GENERAL_NAMES_free(names);
    return any;
}

static void
give_common_names(const X509 *cert, tls_name *name, void *arg)
{
    const X509_NAME *subject = X509_get_subject_name(cert);

    for (int at = -1;
         (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
        unsigned char *bytes = NULL;
        int len = ASN1_STRING_to_UTF8(
            &bytes, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
        if (len >= 0)
            name(arg, text_make((const char *)bytes, (size_t)len));
        OPENSSL_free(bytes);
    }
}

bool
tls_conn_names(const struct tls_conn *conn, tls_name *name, void *arg)
{
    require(conn->handshaken);
    const X509 *cert = SSL_get0_peer_certificate(conn->ssl);

    if (cert == NULL || SSL_get_verify_result(conn->ssl) != X509_V_OK)
        return false;
    ERR_clear_error();
    if (!give_alternatives(cert, name, arg))
        give_common_names(cert, name, arg);
    ERR_clear_error();
    return true;
}
