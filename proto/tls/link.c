/*
 * One connection by TLS, as a transport of the client library. Never blocks.
 *
 * The bytes go through a BIO of our own rather than OpenSSL's for sockets,
 * which writes so that a peer that is gone raises SIGPIPE.
 *
 * OpenSSL keeps a queue of errors for the thread, which has to be empty before
 * each call, or what SSL_get_error() says may be another connection's.
 *
 * The process that made a link is the only one that says anything over it. A
 * child that has inherited it would break it for its parent, with the first
 * record that both of them number alike.
 */
#define _GNU_SOURCE 1

#include "proto/tls/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct link {
    SSL *ssl;  /* owned, with its BIO */
    int fd;    /* ref */
    int error; /* errno of the socket in this call; 0: none */
    pid_t owner;
    bool shaken;
    bool finished; /* the peer was told that no more is to come */
    bool broken;
    char name[TLS_NAME_BYTES]; /* what the certificate has to name */
    char why[TLS_NAME_BYTES + 100];
};

/* The socket */

static int
socket_result(BIO *bio, struct link *link, ssize_t moved, int retry)
{
    BIO_clear_retry_flags(bio);
    if (moved >= 0)
        return (int)moved;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    else
        link->error = errno;
    return -1;
}

static int
socket_write(BIO *bio, const char *bytes, int len)
{
    struct link *link = BIO_get_data(bio);
    ssize_t moved;

    do {
        moved = send(link->fd, bytes, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (moved < 0 && errno == EINTR);
    return socket_result(bio, link, moved, BIO_FLAGS_WRITE);
}

static int
socket_read(BIO *bio, char *out, int room)
{
    struct link *link = BIO_get_data(bio);
    ssize_t moved;

    do {
        moved = recv(link->fd, out, (size_t)room, MSG_DONTWAIT);
    } while (moved < 0 && errno == EINTR);
    return socket_result(bio, link, moved, BIO_FLAGS_READ);
}

static long
socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD *
holdfast_tls_sockets(void)
{
    int type = BIO_get_new_index();
    BIO_METHOD *method =
        type == -1 ? NULL
                   : BIO_meth_new(type | BIO_TYPE_SOURCE_SINK, "holdfast");

    if (method != NULL && BIO_meth_set_write(method, socket_write) == 1 &&
        BIO_meth_set_read(method, socket_read) == 1 &&
        BIO_meth_set_ctrl(method, socket_control) == 1)
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* The beginning */

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
link_expect(struct link *link, const struct holdfast_tls *tls)
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
link_name(struct link *link, const struct holdfast_tls *tls, const char *host)
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
link_prepare(struct link *link, const struct holdfast_tls *tls)
{
    BIO *bio = BIO_new(tls->sockets);

    if (bio == NULL)
        return false;
    BIO_set_data(bio, link);
    BIO_set_init(bio, 1);
    link->ssl = SSL_new(tls->context);
    if (link->ssl == NULL) {
        (void)BIO_free(bio);
        return false;
    }
    SSL_set_bio(link->ssl, bio, bio); /* owns it now */
    SSL_set_connect_state(link->ssl);
    return link_expect(link, tls);
}

static void
link_free(struct link *link)
{
    SSL_free(link->ssl);
    ERR_clear_error();
    free(link);
}

static void *
link_create(const void *context, int fd, const char *host)
{
    const struct holdfast_tls *tls = context;
    struct link *link = calloc(1, sizeof(*link));

    if (link == NULL)
        return NULL;
    link->fd = fd;
    link->owner = getpid();
    link_name(link, tls, host);
    ERR_clear_error();
    bool done = link_prepare(link, tls);
    ERR_clear_error();
    if (done)
        return link;
    link_free(link);
    return NULL;
}

/* Reasons */

/* The peer's certificate was not taken. */
static void
why_refused(struct link *link, long verified)
{
    bool name = verified == X509_V_ERR_HOSTNAME_MISMATCH ||
                verified == X509_V_ERR_IP_ADDRESS_MISMATCH;

    if (name)
        (void)snprintf(link->why, sizeof(link->why),
            "its certificate does not name \"%s\"", link->name);
    else
        (void)snprintf(link->why, sizeof(link->why),
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
why_failed(struct link *link)
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
    (void)snprintf(link->why, sizeof(link->why), "%s (%s)", what,
        holdfast_tls_text(error));
}

/* It ended without a word of TLS. A connection that was cut means the same to
 * locks as one that was closed, so that needs no proof. */
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

/* Before each call. */
static void
link_begin(struct link *link)
{
    ERR_clear_error();
    link->error = 0;
}

/* After a call that gave `result`. */
static enum holdfast_moved
link_moved(struct link *link, int result)
{
    enum holdfast_moved moved = HOLDFAST_MOVED_BROKEN;
    int status = SSL_get_error(link->ssl, result);

    if (status == SSL_ERROR_NONE)
        return HOLDFAST_MOVED_DONE;
    if (status == SSL_ERROR_WANT_READ)
        return HOLDFAST_MOVED_WANTS_READ;
    if (status == SSL_ERROR_WANT_WRITE)
        return HOLDFAST_MOVED_WANTS_WRITE;
    if (link->error != 0) {
        (void)snprintf(link->why, sizeof(link->why), "%s%s",
            strerror(link->error),
            link->shaken ? "" : ", in the TLS handshake");
    } else if (is_end(status)) {
        moved = HOLDFAST_MOVED_END;
        (void)snprintf(link->why, sizeof(link->why), "closed by the broker%s",
            link->shaken ? "" : ", in the TLS handshake");
    } else {
        why_failed(link);
    }
    link->broken = true;
    ERR_clear_error();
    return moved;
}

/* Bytes */

static enum holdfast_moved
link_shake(void *opaque)
{
    struct link *link = opaque;

    link_begin(link);
    enum holdfast_moved moved = link_moved(link, SSL_do_handshake(link->ssl));
    link->shaken = moved == HOLDFAST_MOVED_DONE;
    return moved;
}

static enum holdfast_moved
link_read(void *opaque, char *out, size_t room, size_t *got)
{
    struct link *link = opaque;

    link_begin(link);
    return link_moved(link, SSL_read_ex(link->ssl, out, room, got));
}

/*
 * The socket takes nothing any more. By TLS 1.3 a server that does not like our
 * certificate says so after the handshake, and goes: that may lie here unread.
 */
static void
find_last_word(struct link *link)
{
    char ignored[1];
    size_t got;

    ERR_clear_error();
    if (SSL_peek_ex(link->ssl, ignored, sizeof(ignored), &got) != 1 &&
        is_alert(ERR_peek_error()))
        why_failed(link);
    ERR_clear_error();
}

static enum holdfast_moved
link_write(void *opaque, const char *bytes, size_t len, size_t *sent)
{
    struct link *link = opaque;

    link_begin(link);
    enum holdfast_moved moved =
        link_moved(link, SSL_write_ex(link->ssl, bytes, len, sent));
    if (moved == HOLDFAST_MOVED_BROKEN && link->error != 0)
        find_last_word(link);
    return moved == HOLDFAST_MOVED_END ? HOLDFAST_MOVED_BROKEN : moved;
}

/*
 * SSL_shutdown() says it at the first call, as far as there is room. Once it is
 * said another call would read, and throw away what it reads.
 */
static enum holdfast_moved
link_finish(void *opaque)
{
    struct link *link = opaque;

    if (link->finished)
        return HOLDFAST_MOVED_DONE;
    link_begin(link);
    int result = SSL_shutdown(link->ssl);
    link->finished = result >= 0;
    if (link->finished)
        return HOLDFAST_MOVED_DONE;
    enum holdfast_moved moved = link_moved(link, result);
    return moved == HOLDFAST_MOVED_END ? HOLDFAST_MOVED_BROKEN : moved;
}

static bool
link_pending(const void *opaque)
{
    const struct link *link = opaque;

    return SSL_pending(link->ssl) > 0;
}

static const char *
link_why(const void *opaque)
{
    const struct link *link = opaque;

    return link->why;
}

static void
link_destroy(void *opaque)
{
    struct link *link = opaque;

    if (link->shaken && !link->broken && link->owner == getpid())
        (void)link_finish(link);
    link_free(link);
}

const struct holdfast_transport holdfast_tls_functions = {
    .port = TLS_PORT,
    .create = link_create,
    .shake = link_shake,
    .read = link_read,
    .write = link_write,
    .finish = link_finish,
    .pending = link_pending,
    .why = link_why,
    .destroy = link_destroy,
};
