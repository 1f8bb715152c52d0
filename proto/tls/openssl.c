/*
 * See openssl.h. It knows nothing of its callers, nor of sessions.
 */
#define _GNU_SOURCE 1

#include "proto/tls/openssl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/socket.h>

/*
 * Reads in a row, before one reports that the socket is empty; a record takes
 * two. OpenSSL itself reads on after a record without data, such as KeyUpdate.
 * So a peer that sends them fast would keep it reading.
 */
#define SOCKET_READS 128

/* The socket */

static int
socket_result(BIO *bio, struct tls_socket *socket, ssize_t moved, int retry)
{
    BIO_clear_retry_flags(bio);
    if (moved >= 0)
        return (int)moved;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    else
        socket->error = errno;
    return -1;
}

static int
socket_write(BIO *bio, const char *bytes, int len)
{
    struct tls_socket *socket = BIO_get_data(bio);
    ssize_t moved;

    do {
        moved =
            send(socket->fd, bytes, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (moved < 0 && errno == EINTR);
    return socket_result(bio, socket, moved, BIO_FLAGS_WRITE);
}

static int
socket_read(BIO *bio, char *out, int room)
{
    struct tls_socket *socket = BIO_get_data(bio);
    ssize_t moved = -1;

    errno = EAGAIN;
    if (socket->reads < SOCKET_READS) {
        do {
            moved = recv(socket->fd, out, (size_t)room, MSG_DONTWAIT);
        } while (moved < 0 && errno == EINTR);
    }
    socket->reads = moved > 0 ? socket->reads + 1 : 0;
    return socket_result(bio, socket, moved, BIO_FLAGS_READ);
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

SSL *
holdfast_tls_open(
    SSL_CTX *context, const BIO_METHOD *sockets, struct tls_socket *socket)
{
    BIO *bio = BIO_new(sockets);

    if (bio == NULL)
        return NULL;
    BIO_set_data(bio, socket);
    BIO_set_init(bio, 1);
    SSL *ssl = SSL_new(context);
    if (ssl == NULL)
        (void)BIO_free(bio);
    else
        SSL_set_bio(ssl, bio, bio); /* owns it now */
    return ssl;
}

/* Contexts */

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

SSL_CTX *
holdfast_tls_context(const SSL_METHOD *method)
{
    SSL_CTX *context = SSL_CTX_new(method);

    if (context == NULL ||
        SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(context);
        return NULL;
    }
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_options(context,
        SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
    (void)SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                        SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 0);
    return context;
}

const char *
holdfast_tls_load_key(SSL_CTX *context, const char *path)
{
    bool asked = false;
    EVP_PKEY *key = NULL;
    const char *wrong = NULL;

    ERR_clear_error();
    BIO *file = BIO_new_file(path, "r");
    if (file != NULL)
        key = PEM_read_bio_PrivateKey(file, NULL, no_passphrase, &asked);
    BIO_free(file);
    if (key == NULL && asked) {
        ERR_clear_error();
        return "has a passphrase, which is not supported";
    }
    if (key == NULL)
        return "holds no private key in PEM format";
    if (X509_check_private_key(SSL_CTX_get0_certificate(context), key) != 1) {
        ERR_clear_error();
        wrong = "does not fit the certificate beside it";
    } else if (SSL_CTX_use_PrivateKey(context, key) != 1) {
        wrong = "cannot be used";
    }
    EVP_PKEY_free(key);
    return wrong;
}

/* Names */

static bool
is_number(const char *host)
{
    struct in6_addr ignored;

    return inet_pton(AF_INET, host, &ignored) == 1 ||
           inet_pton(AF_INET6, host, &ignored) == 1;
}

void
holdfast_tls_name(const char *host, char out[TLS_NAME_BYTES])
{
    size_t len = strcspn(host, "%");

    if (len >= TLS_NAME_BYTES)
        len = TLS_NAME_BYTES - 1;
    if (len > 1 && host[len - 1] == '.')
        len--;
    memcpy(out, host, len);
    out[len] = '\0';
}

bool
holdfast_tls_expect(SSL *ssl, char *name, bool any_name)
{
    bool number = is_number(name);

    if (!number && SSL_set_tlsext_host_name(ssl, name) != 1)
        return false;
    if (any_name)
        return true;
    if (number)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, name) == 1;
}

/* Reasons */

const char *
holdfast_tls_text(unsigned long error)
{
    const char *text;

    if (ERR_GET_LIB(error) == ERR_LIB_SYS)
        return strerror(ERR_GET_REASON(error));
    text = ERR_reason_error_string(error);
    return text != NULL ? text : "OpenSSL does not say why";
}

bool
holdfast_tls_is_foreign(unsigned long error)
{
    int reason = ERR_GET_REASON(error);

    return ERR_GET_LIB(error) == ERR_LIB_SSL &&
           (reason == SSL_R_WRONG_VERSION_NUMBER ||
               reason == SSL_R_HTTP_REQUEST ||
               reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
               reason == SSL_R_UNEXPECTED_MESSAGE ||
               reason == SSL_R_BAD_RECORD_TYPE);
}

bool
holdfast_tls_is_alert(unsigned long error)
{
    return ERR_GET_LIB(error) == ERR_LIB_SSL &&
           ERR_GET_REASON(error) >= SSL_AD_REASON_OFFSET;
}

bool
holdfast_tls_is_end(void)
{
    unsigned long error = ERR_peek_error();

    if (error == 0)
        return true;
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
    return ERR_GET_LIB(error) == ERR_LIB_SSL &&
           ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
#else
    return false;
#endif
}
