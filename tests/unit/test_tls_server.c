/*
 * Tests of TLS as clients' server, against OpenSSL's client side in this
 * process. They show who is let in, what a certificate says of its owner, and
 * the ends. test_tls.c has the tests of both sides.
 */
#include "daemon/io/tls.h"

#include <check.h>
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

Suite *tls_server_suite(void);

#define GIVEN_BYTES   200
#define PATH_TEMPLATE "/tmp/holdfast-tls-XXXXXX"

static EVP_PKEY *key; /* everybody's */
static char cert_path[sizeof(PATH_TEMPLATE)];
static char key_path[sizeof(PATH_TEMPLATE)];
static struct tls *context;
static SSL_CTX *client_context;
static int sockets[2]; /* the client's, the server's */
static SSL *client;
static struct tls_conn *server;

/* Its own issuer. The alternatives are as OpenSSL's configuration has them, or
 * NULL; `days` until it ends. */
static X509 *
make_certificate(const char *common, const char *alternatives, int days)
{
    X509 *cert = X509_new();
    X509_NAME *name = X509_get_subject_name(cert);

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -90000);
    X509_time_adj_ex(X509_getm_notAfter(cert), days, 0, NULL);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(
        name, "CN", MBSTRING_UTF8, (const unsigned char *)common, -1, -1, 0);
    X509_set_issuer_name(cert, name);
    if (alternatives != NULL) {
        X509_EXTENSION *extension =
            X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, alternatives);
        ck_assert_ptr_nonnull(extension);
        X509_add_ext(cert, extension, -1);
        X509_EXTENSION_free(extension);
    }
    ck_assert_int_gt(X509_sign(cert, key, EVP_sha256()), 0);
    return cert;
}

static FILE *
open_file(char *path)
{
    memcpy(path, PATH_TEMPLATE, sizeof(PATH_TEMPLATE));
    return fdopen(mkstemp(path), "w");
}

/* A server who trusts the certificate `shown`, or asks for none: NULL; and a
 * client who shows it where `shows`. */
static void
begin(X509 *shown, bool shows, bool required)
{
    struct tls_settings settings = {.role = TLS_SERVER,
        .ca = "",
        .cert = cert_path,
        .key = key_path,
        .server_name = "",
        .required = required};
    char ca_path[sizeof(PATH_TEMPLATE)] = "";
    enum tls_part part;
    char why[200] = "";

    FILE *out = open_file(cert_path);
    X509 *own = make_certificate("broker", "DNS:broker.example", 1);
    PEM_write_X509(out, own);
    fclose(out);
    X509_free(own);
    out = open_file(key_path);
    PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL);
    fclose(out);
    if (shown != NULL) {
        out = open_file(ca_path);
        PEM_write_X509(out, shown);
        fclose(out);
        settings.ca = ca_path;
    }
    context = tls_create(&settings, &part, why, sizeof(why));
    ck_assert_msg(context != NULL, "%s", why);
    ck_assert(tls_is_current(context, &settings));
    settings.required = !required;
    ck_assert(!tls_is_current(context, &settings));
    unlink(cert_path);
    unlink(key_path);
    unlink(ca_path);
    client_context = SSL_CTX_new(TLS_client_method());
    if (shows) {
        SSL_CTX_use_certificate(client_context, shown);
        SSL_CTX_use_PrivateKey(client_context, key);
    }
    ck_assert_int_eq(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    client = SSL_new(client_context);
    SSL_set_fd(client, sockets[0]);
    SSL_set_connect_state(client);
    server = tls_conn_create(context, sockets[1], NULL);
    ck_assert_ptr_nonnull(server);
}

static void
end(void)
{
    ck_assert_uint_eq(ERR_peek_error(), 0);
    tls_conn_destroy(&server);
    tls_destroy(&context);
    SSL_free(client);
    SSL_CTX_free(client_context);
    ERR_clear_error();
    close(sockets[0]);
    close(sockets[1]);
}

/* Until the server is through with it. */
static enum tls_status
shake(void)
{
    enum tls_status status = TLS_WANTS_READ;

    for (int i = 0; i < 100 && status != TLS_DONE; i++) {
        (void)SSL_do_handshake(client);
        ERR_clear_error();
        status = tls_conn_handshake(server);
        if (status == TLS_BROKEN)
            return status;
    }
    ck_assert_int_eq(SSL_do_handshake(client), 1);
    return status;
}

static void
add_name(void *arg, struct text name)
{
    char *out = arg;
    size_t len = strlen(out);

    ck_assert_uint_lt(len + name.len + 1, GIVEN_BYTES);
    for (size_t i = 0; i < name.len; i++)
        out[len++] = name.at[i] == '\0' ? '0' : name.at[i];
    out[len++] = ';';
    out[len] = '\0';
}

START_TEST(names)
{
    static const struct {
        const char *common;
        const char *names;
        const char *expected;
    } table[] = {
        {"shop", NULL, "shop;"},
        {"K\xc3\xa4se", NULL, "K\xc3\xa4se;"},
        {"shop", "DNS:a.example", "a.example;"},
        {"shop", "email:a@b.example,URI:spiffe://a/b,DNS:*.x",
            "a@b.example;spiffe://a/b;*.x;"},
        {"shop", "IP:10.0.0.1", "shop;"},
        {"shop", "IP:10.0.0.1,DNS:a", "a;"},
        {"shop", "RID:1.2.3", "shop;"},
    };

    char given[GIVEN_BYTES] = "";

    key = EVP_EC_gen("P-256");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        X509 *cert = make_certificate(table[i].common, table[i].names, 1);
        begin(cert, true, false);
        ck_assert_int_eq(shake(), TLS_DONE);
        given[0] = '\0';
        ck_assert(tls_conn_names(server, add_name, given));
        ck_assert_str_eq(given, table[i].expected);
        end();
        X509_free(cert);
    }
    EVP_PKEY_free(key);
}

END_TEST

/* A name that ends before its end is another one. */
START_TEST(name_with_a_zero)
{
    char given[GIVEN_BYTES] = "";

    key = EVP_EC_gen("P-256");
    X509 *cert = make_certificate("shop", NULL, 1);
    GENERAL_NAMES *all = GENERAL_NAMES_new();
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_IA5STRING *text = ASN1_IA5STRING_new();
    ASN1_STRING_set(text, "ops\0.example", 12);
    GENERAL_NAME_set0_value(name, GEN_DNS, text);
    sk_GENERAL_NAME_push(all, name);
    ck_assert_int_eq(
        X509_add1_ext_i2d(cert, NID_subject_alt_name, all, 0, 0), 1);
    GENERAL_NAMES_free(all);
    ck_assert_int_gt(X509_sign(cert, key, EVP_sha256()), 0);
    begin(cert, true, false);
    ck_assert_int_eq(shake(), TLS_DONE);
    ck_assert(tls_conn_names(server, add_name, given));
    ck_assert_str_eq(given, "ops0.example;");
    end();
    X509_free(cert);
    EVP_PKEY_free(key);
}

END_TEST

/* asked, and none shown; not asked; required, and shown, and not; expired;
 * another one's. */
START_TEST(who_is_let_in)
{
    static const struct {
        int days;
        bool shows;
        bool required;
        bool other;
        const char *why; /* NULL: is let in */
    } table[] = {
        {1, false, false, false, NULL},
        {1, true, false, false, NULL},
        {1, true, true, false, NULL},
        {1, false, true, false,
            "TLS failed (peer did not return a certificate)"},
        {-1, true, false, false,
            "its certificate cannot be verified: certificate has expired"},
        {1, true, false, true,
            "its certificate cannot be verified: self-signed certificate"},
    };

    char given[GIVEN_BYTES] = "";

    key = EVP_EC_gen("P-256");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        X509 *cert = make_certificate("shop", "DNS:a", table[i].days);
        X509 *other = make_certificate("other", "DNS:a", 1);
        begin(cert, table[i].shows, table[i].required);
        if (table[i].other)
            SSL_use_certificate(client, other);
        enum tls_status status = shake();
        ck_assert_int_eq(status, table[i].why == NULL ? TLS_DONE : TLS_BROKEN);
        if (table[i].why == NULL) {
            ck_assert(
                tls_conn_names(server, add_name, given) == table[i].shows);
        } else {
            ck_assert_str_eq(tls_conn_why(server), table[i].why);
            ck_assert_int_eq(tls_conn_failure(server), TLS_FAILED_CERTIFICATE);
        }
        end();
        X509_free(cert);
        X509_free(other);
    }
    begin(NULL, false, false);
    ck_assert_int_eq(shake(), TLS_DONE);
    ck_assert(!tls_conn_names(server, add_name, given));
    end();
    EVP_PKEY_free(key);
}

END_TEST

static void
check_client_gets(const char *expected, int ends)
{
    char out[100] = "";
    size_t got = 0;

    if (expected[0] != '\0')
        ck_assert_int_eq(SSL_read_ex(client, out, sizeof(out) - 1, &got), 1);
    ck_assert_str_eq(out, expected);
    int result = SSL_read_ex(client, out, 1, &got);
    ck_assert_int_eq(SSL_get_error(client, result), ends);
    ERR_clear_error();
}

/* No tickets; what it sends before its end, and what it is told after. */
START_TEST(ends)
{
    char out[TLS_RECORD_BYTES];
    size_t got = 0;

    key = EVP_EC_gen("P-256");
    begin(NULL, false, false);
    ck_assert_int_eq(shake(), TLS_DONE);
    check_client_gets("", SSL_ERROR_WANT_READ);
    ck_assert_int_eq(SSL_SESSION_is_resumable(SSL_get0_session(client)), 0);
    ck_assert_int_eq(SSL_write_ex(client, "LOCK a\n", 7, &got), 1);
    ck_assert_int_eq(SSL_shutdown(client), 0);
    ck_assert_int_eq(tls_conn_read(server, out, sizeof(out), &got), TLS_DONE);
    ck_assert_mem_eq(out, "LOCK a\n", got);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(
            tls_conn_read(server, out, sizeof(out), &got), TLS_ENDED);
    ck_assert_int_eq(tls_conn_write(server, "* BYE\n", 6, &got), TLS_DONE);
    ck_assert_int_eq(tls_conn_end(server), TLS_DONE);
    check_client_gets("* BYE\n", SSL_ERROR_ZERO_RETURN);
    end();
    begin(NULL, false, false);
    ck_assert_int_eq(shake(), TLS_DONE);
    shutdown(sockets[0], SHUT_WR);
    ck_assert_int_eq(tls_conn_read(server, out, sizeof(out), &got), TLS_BROKEN);
    ck_assert_int_eq(tls_conn_failure(server), TLS_FAILED_GONE);
    ck_assert_str_eq(tls_conn_why(server), "closed by the client");
    end();
    EVP_PKEY_free(key);
}

END_TEST

/* A part of a record is within, and nothing else is. */
START_TEST(within_a_record)
{
    char sealed[1000];
    char out[TLS_RECORD_BYTES];
    size_t got = 0;

    key = EVP_EC_gen("P-256");
    begin(NULL, false, false);
    ck_assert_int_eq(shake(), TLS_DONE);
    ck_assert(!tls_conn_is_within(server));
    ck_assert_int_eq(SSL_write_ex(client, "LOCK a\n", 7, &got), 1);
    ssize_t len = recv(sockets[1], sealed, sizeof(sealed), 0);
    for (ssize_t i = 0; i < len; i++) {
        ck_assert_int_eq(
            tls_conn_read(server, out, sizeof(out), &got), TLS_WANTS_READ);
        ck_assert(tls_conn_is_within(server) == (i > 0));
        ck_assert_int_eq(send(sockets[0], sealed + i, 1, 0), 1);
    }
    ck_assert_int_eq(tls_conn_read(server, out, sizeof(out), &got), TLS_DONE);
    ck_assert(!tls_conn_is_within(server));
    end();
    EVP_PKEY_free(key);
}

END_TEST

/* Input that is not TLS, and input that would cost too much. */
START_TEST(other_words)
{
    static const char *const words[] = {
        "LOCK a\n", "GET / HTTP/1.1\r\n", "\x16\x03\x01\xff\xff?????"};

    key = EVP_EC_gen("P-256");
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        begin(NULL, false, false);
        ck_assert_int_gt(send(sockets[0], words[i], strlen(words[i]), 0), 0);
        ck_assert_int_eq(tls_conn_handshake(server), TLS_BROKEN);
        ck_assert_int_eq(tls_conn_failure(server), TLS_FAILED_PROTOCOL);
        ck_assert_ptr_nonnull(
            strstr(tls_conn_why(server), "it does not speak TLS ("));
        end();
    }
    begin(NULL, false, false);
    char group[] = "ffdhe2048";
    ck_assert_int_eq(SSL_set1_groups_list(client, group), 1);
    ck_assert_int_eq(shake(), TLS_BROKEN);
    ck_assert_int_eq(tls_conn_failure(server), TLS_FAILED_PROTOCOL);
    end();
    begin(NULL, false, false);
    SSL_set_security_level(client, 0);
    SSL_set_min_proto_version(client, TLS1_VERSION);
    SSL_set_max_proto_version(client, TLS1_1_VERSION);
    ck_assert_int_eq(shake(), TLS_BROKEN);
    ck_assert_str_eq(tls_conn_why(server), "TLS failed (unsupported protocol)");
    end();
    begin(NULL, false, false);
    shutdown(sockets[0], SHUT_WR);
    ck_assert_int_eq(tls_conn_handshake(server), TLS_BROKEN);
    ck_assert_int_eq(tls_conn_failure(server), TLS_FAILED_GONE);
    ck_assert_str_eq(
        tls_conn_why(server), "closed by the client in the TLS handshake");
    end();
    EVP_PKEY_free(key);
}

END_TEST

Suite *
tls_server_suite(void)
{
    Suite *suite = suite_create("tls_server");
    TCase *cases = tcase_create("tls_server");

    tcase_add_test(cases, names);
    tcase_add_test(cases, name_with_a_zero);
    tcase_add_test(cases, who_is_let_in);
    tcase_add_test(cases, ends);
    tcase_add_test(cases, within_a_record);
    tcase_add_test(cases, other_words);
    tcase_set_timeout(cases, 30);
    suite_add_tcase(suite, cases);
    return suite;
}
