/*
 * Tests of daemon/io/tls.c against an OpenSSL server in this process, over
 * sockets with little room. Bytes arrive whole and in order, however they are
 * cut.
 */
#include "daemon/io/tls.h"

#include "daemon/base/random.h"

#include <check.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

Suite *tls_suite(void);

#define BYTES ((size_t)3 * 1024 * 1024)

static char ca_path[] = "/tmp/holdfast-tls-XXXXXX";
static SSL_CTX *server_context;
static struct tls *client_context;
static int sockets[2]; /* the server's, the client's */
static SSL *server;
static struct tls_conn *client;
static char *sent;
static char *received;
static struct random random_state;

/* Its own issuer, for the name "redis.example". */
static X509 *
make_certificate(EVP_PKEY *key)
{
    X509 *cert = X509_new();
    X509_NAME *name = X509_get_subject_name(cert);
    X509_EXTENSION *names = X509V3_EXT_conf_nid(
        NULL, NULL, NID_subject_alt_name, "DNS:redis.example");

    ck_assert_ptr_nonnull(names);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(
        name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
    X509_set_issuer_name(cert, name);
    X509_add_ext(cert, names, -1);
    X509_EXTENSION_free(names);
    ck_assert_int_gt(X509_sign(cert, key, EVP_sha256()), 0);
    return cert;
}

static void
make_contexts(int version)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_certificate(key);
    int file = mkstemp(ca_path);
    FILE *out = fdopen(file, "w");
    struct tls_settings settings = {
        .ca = ca_path, .cert = "", .key = "", .server_name = ""};
    enum tls_part part;
    char why[200] = "";

    PEM_write_X509(out, cert);
    fclose(out);
    server_context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(server_context, cert);
    SSL_CTX_use_PrivateKey(server_context, key);
    SSL_CTX_set_max_proto_version(server_context, version);
    SSL_CTX_set_mode(server_context,
        SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    X509_free(cert);
    EVP_PKEY_free(key);
    client_context = tls_create(&settings, &part, why, sizeof(why));
    ck_assert_msg(client_context != NULL, "%s", why);
    unlink(ca_path);
    memset(ca_path + sizeof(ca_path) - 7, 'X', 6);
}

static void
begin(int version, const char *host)
{
    int room = 4096;

    make_contexts(version);
    ck_assert_int_eq(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            setsockopt(sockets[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)),
            0);
    server = SSL_new(server_context);
    SSL_set_fd(server, sockets[0]);
    SSL_set_accept_state(server);
    client = tls_conn_create(client_context, sockets[1], host);
    ck_assert_ptr_nonnull(client);
    sent = malloc(BYTES);
    received = malloc(BYTES);
    random_init(&random_state, 6379);
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (char)random_next(&random_state);
}

static void
end(void)
{
    tls_conn_destroy(&client);
    ck_assert_ptr_null(client);
    tls_destroy(&client_context);
    SSL_free(server);
    SSL_CTX_free(server_context);
    close(sockets[0]);
    close(sockets[1]);
    free(sent);
    free(received);
}

/* Until both are done, or the client is broken. */
static enum tls_status
shake(void)
{
    enum tls_status status = TLS_WANTS_READ;

    for (int i = 0; i < 1000; i++) {
        if (status != TLS_DONE)
            status = tls_conn_handshake(client);
        if (status == TLS_BROKEN)
            return status;
        if (SSL_do_handshake(server) == 1 && status == TLS_DONE)
            return status;
        ERR_clear_error();
    }
    return status;
}

static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

/* The server sends in records of any size; each look takes all there is. */
START_TEST(reading)
{
    static char out[4 * TLS_RECORD_BYTES];
    size_t given = 0;
    size_t taken = 0;
    size_t len = 0;

    begin(versions[_i], "redis.example");
    ck_assert_int_eq(shake(), TLS_DONE);
    while (taken < BYTES) {
        size_t done = 0;
        size_t got = 0;
        if (len == 0) /* else it is to be tried again with as many */
            len = 1 + random_below(&random_state, 40000);
        len = len < BYTES - given ? len : BYTES - given;
        if (len > 0 && SSL_write_ex(server, sent + given, len, &done) == 1) {
            given += done;
            len = 0;
        }
        ERR_clear_error();
        enum tls_status status;
        while ((status = tls_conn_read(client, out, sizeof(out), &got)) ==
               TLS_DONE) {
            ck_assert_uint_gt(got, 0);
            memcpy(received + taken, out, got);
            taken += got;
        }
        ck_assert_int_eq(status, TLS_WANTS_READ);
    }
    ck_assert_mem_eq(sent, received, BYTES);
    end();
}

END_TEST

/* More than the socket takes: the same bytes again, elsewhere, and more. */
START_TEST(writing)
{
    size_t given = 0;
    size_t taken = 0;
    unsigned blocked = 0;

    begin(versions[_i], "redis.example");
    ck_assert_int_eq(shake(), TLS_DONE);
    while (taken < BYTES) {
        size_t done = 0;
        if (given < BYTES) {
            size_t len = BYTES - given;
            char *elsewhere = malloc(len);
            memcpy(elsewhere, sent + given, len);
            enum tls_status status =
                tls_conn_write(client, elsewhere, len, &done);
            free(elsewhere);
            if (status == TLS_DONE) {
                ck_assert_uint_gt(done, 0);
                given += done;
                continue;
            }
            ck_assert_int_eq(status, TLS_WANTS_WRITE);
            blocked++;
        }
        if (SSL_read_ex(server, received + taken, BYTES - taken, &done) == 1)
            taken += done;
        ERR_clear_error();
    }
    ck_assert_uint_gt(blocked, 10);
    ck_assert_mem_eq(sent, received, BYTES);
    end();
}

END_TEST

/* With room for a record nothing stays that the socket does not tell of. */
START_TEST(nothing_is_kept_back)
{
    static char out[TLS_RECORD_BYTES];
    size_t done = 0;
    size_t got = 0;

    begin(versions[_i], "redis.example");
    ck_assert_int_eq(shake(), TLS_DONE);
    ck_assert_int_eq(tls_conn_read(client, out, sizeof(out), &got),
        TLS_WANTS_READ); /* tickets, if any */
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(SSL_write_ex(server, sent, 400, &done), 1);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(recv(sockets[1], out, 1, MSG_PEEK), 1);
        ck_assert_int_eq(
            tls_conn_read(client, out, sizeof(out), &got), TLS_DONE);
        ck_assert_uint_eq(got, 400);
    }
    ck_assert_int_eq(recv(sockets[1], out, 1, MSG_PEEK), -1);
    end();
}

END_TEST

START_TEST(another_name)
{
    begin(versions[_i], "other.example");
    ck_assert_int_eq(shake(), TLS_BROKEN);
    ck_assert_ptr_nonnull(
        strstr(tls_conn_why(client), "does not name \"other.example\""));
    end();
}

END_TEST

/* It says why and goes: that is told, though nothing can be written. */
START_TEST(refused)
{
    size_t done = 0;

    begin(versions[_i], "redis.example");
    SSL_set_verify(
        server, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    while (tls_conn_handshake(client) == TLS_WANTS_READ) {
        if (SSL_do_handshake(server) != 1 && ERR_peek_error() != 0)
            break;
        ERR_clear_error();
    }
    ERR_clear_error();
    if (versions[_i] == TLS1_3_VERSION) {
        ck_assert_int_eq(SSL_do_handshake(server), -1);
        shutdown(sockets[0], SHUT_RDWR);
        ck_assert_int_eq(tls_conn_write(client, sent, 100, &done), TLS_BROKEN);
        ck_assert_str_eq(tls_conn_why(client),
            "it ends TLS (tlsv13 alert certificate required)");
    } else {
        shutdown(sockets[0], SHUT_RDWR);
        ck_assert_int_eq(tls_conn_handshake(client), TLS_BROKEN);
        ck_assert_str_eq(tls_conn_why(client),
            "it ends TLS (sslv3 alert handshake failure)");
    }
    ck_assert_uint_eq(ERR_peek_error(), 0);
    end();
}

END_TEST

/* The peer is gone: an error, and no SIGPIPE; nothing is left in OpenSSL's
 * queue for another connection. */
START_TEST(gone)
{
    size_t done = 0;
    char out[10];

    begin(versions[_i], "redis.example");
    ck_assert_int_eq(shake(), TLS_DONE);
    shutdown(sockets[0], SHUT_RDWR);
    ck_assert_int_eq(tls_conn_write(client, sent, 100, &done), TLS_BROKEN);
    ck_assert_str_eq(tls_conn_why(client), "Broken pipe");
    ck_assert_uint_eq(ERR_peek_error(), 0);
    end();
    begin(versions[_i], "redis.example");
    ck_assert_int_eq(shake(), TLS_DONE);
    shutdown(sockets[0], SHUT_RDWR);
    ck_assert_int_eq(
        tls_conn_read(client, out, sizeof(out), &done), TLS_BROKEN);
    ck_assert_str_eq(tls_conn_why(client), "closed by Redis");
    ck_assert_uint_eq(ERR_peek_error(), 0);
    end();
}

END_TEST

/* A link keeps the settings of its creation. */
START_TEST(its_settings_are_gone)
{
    size_t done = 0;
    char out[10];

    begin(versions[_i], "redis.example");
    tls_destroy(&client_context);
    ck_assert_int_eq(shake(), TLS_DONE);
    ck_assert_int_eq(SSL_write_ex(server, sent, 10, &done), 1);
    ck_assert_int_eq(tls_conn_read(client, out, sizeof(out), &done), TLS_DONE);
    ck_assert_mem_eq(out, sent, done);
    end();
}

END_TEST

/* An error that an earlier call left is not taken for a new one. */
START_TEST(errors_of_others)
{
    size_t done = 0;
    char out[10];

    begin(versions[_i], "redis.example");
    ck_assert_int_eq(shake(), TLS_DONE);
    ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
    ck_assert_int_eq(
        tls_conn_read(client, out, sizeof(out), &done), TLS_WANTS_READ);
    ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
    ck_assert_int_eq(tls_conn_write(client, sent, 100, &done), TLS_DONE);
    end();
}

END_TEST

Suite *
tls_suite(void)
{
    Suite *suite = suite_create("tls");
    TCase *links = tcase_create("links");

    tcase_add_loop_test(links, reading, 0, 2);
    tcase_add_loop_test(links, writing, 0, 2);
    tcase_add_loop_test(links, nothing_is_kept_back, 0, 2);
    tcase_add_loop_test(links, another_name, 0, 2);
    tcase_add_loop_test(links, refused, 0, 2);
    tcase_add_loop_test(links, gone, 0, 2);
    tcase_add_loop_test(links, its_settings_are_gone, 0, 2);
    tcase_add_loop_test(links, errors_of_others, 0, 2);
    tcase_set_timeout(links, 30);
    suite_add_tcase(suite, links);
    return suite;
}
