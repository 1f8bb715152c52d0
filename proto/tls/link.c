/*
 * One TLS connection, as a transport of the client library. It never blocks.
 *
 * Only the process that created a link writes to it. A record of a child would
 * have the same number as one of the parent, and break the connection.
 */
#define _GNU_SOURCE 1

#include "proto/tls/tls.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct link {
    SSL *ssl; /* owned, with its BIO */
    struct tls_socket socket;
    pid_t owner;
    bool shaken;
    bool finished; /* close_notify was sent */
    bool broken;
    char name[TLS_NAME_BYTES]; /* the name that the certificate must have */
    char why[TLS_NAME_BYTES + 100];
};

/* The beginning */

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
    link->socket.fd = fd;
    link->owner = getpid();
    holdfast_tls_name(
        tls->server_name[0] != '\0' ? tls->server_name : host, link->name);
    ERR_clear_error();
    link->ssl = holdfast_tls_open(tls->context, tls->sockets, &link->socket);
    bool done = link->ssl != NULL &&
                holdfast_tls_expect(link->ssl, link->name, tls->any_name);
    if (done)
        SSL_set_connect_state(link->ssl);
    ERR_clear_error();
    if (done)
        return link;
    link_free(link);
    return NULL;
}

/* Reasons */

/* The peer's certificate is bad. */
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
    if (!link->shaken && holdfast_tls_is_foreign(error))
        what = "it does not speak TLS";
    else if (holdfast_tls_is_alert(error))
        what = "it ends TLS";
    (void)snprintf(link->why, sizeof(link->why), "%s (%s)", what,
        holdfast_tls_text(error));
}

/* Before each call. */
static void
link_begin(struct link *link)
{
    ERR_clear_error();
    link->socket.error = 0;
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
    if (link->socket.error != 0) {
        (void)snprintf(link->why, sizeof(link->why), "%s%s",
            strerror(link->socket.error),
            link->shaken ? "" : ", in the TLS handshake");
    } else if (status == SSL_ERROR_ZERO_RETURN || holdfast_tls_is_end()) {
        /* For locks a cut connection means the same as a closed one. */
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

    assert(!link->shaken);
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

/* The socket takes no more output. In TLS 1.3 a server refuses a certificate
 * after the handshake: its alert may be unread. */
static void
find_last_word(struct link *link)
{
    char ignored[1];
    size_t got;

    ERR_clear_error();
    if (SSL_peek_ex(link->ssl, ignored, sizeof(ignored), &got) != 1 &&
        holdfast_tls_is_alert(ERR_peek_error()))
        why_failed(link);
    ERR_clear_error();
}

static enum holdfast_moved
link_write(void *opaque, const char *bytes, size_t len, size_t *sent)
{
    struct link *link = opaque;

    assert(link->shaken && !link->finished);
    link_begin(link);
    enum holdfast_moved moved =
        link_moved(link, SSL_write_ex(link->ssl, bytes, len, sent));
    if (moved == HOLDFAST_MOVED_BROKEN && link->socket.error != 0)
        find_last_word(link);
    return moved == HOLDFAST_MOVED_END ? HOLDFAST_MOVED_BROKEN : moved;
}

/* The first SSL_shutdown() sends close_notify, if there is room. A call after
 * that would read, and drop the input. */
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
