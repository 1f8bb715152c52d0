/*
 * The client library with TLS (proto/tls) against an OpenSSL server in this
 * process, over sockets with little room. Then its link layer over a transport
 * of the test. The client is called only when poll() or its own time says so,
 * so that a forgotten event shows.
 */
#include "proto/tls/holdfast_tls.h"
#include "tests/unit/test_client.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *client_tls_suite(void);

#define SESSION "0123456789abcdef0123456789abcdef"
#define GREETING                                              \
    "* HELLO proto=1 server=holdfastd/0.1.0 session=" SESSION \
    " max_line=4096 lease_ms=9000\n"
#define BYTES ((size_t)1 << 20)

static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

/* Certificates, in files of a folder */

static char folder[64];
static EVP_PKEY *ca_key;
static X509 *ca_cert;

static const char *
path_of(const char *name)
{
    static char paths[4][128];
    static unsigned at;
    char *path = paths[at++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static X509 *
make_certificate(EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key,
    const char *names, long seconds)
{
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -7200);
    X509_gmtime_adj(X509_getm_notAfter(cert), seconds);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
        (const unsigned char *)(issuer == NULL ? "ca" : "a broker"), -1, -1, 0);
    X509_set_issuer_name(
        cert, issuer == NULL ? subject : X509_get_subject_name(issuer));
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL,
        issuer == NULL ? NID_basic_constraints : NID_subject_alt_name, names);
    ck_assert_ptr_nonnull(extension);
    X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
    ck_assert_int_gt(X509_sign(cert, issuer_key, EVP_sha256()), 0);
    return cert;
}

static void
write_key(const char *name, EVP_PKEY *key, const EVP_CIPHER *cipher)
{
    FILE *file = fopen(path_of(name), "w");
    char phrase[] = "phrase";

    PEM_write_PrivateKey(
        file, key, cipher, NULL, 0, NULL, cipher != NULL ? phrase : NULL);
    fclose(file);
}

static void
write_cert(const char *name, X509 *cert)
{
    FILE *file = fopen(path_of(name), "w");

    PEM_write_X509(file, cert);
    fclose(file);
}

/* Servers */

struct server {
    SSL_CTX *context; /* owned */
    int listener;     /* owned; -1: none */
    int fd;           /* owned; of the connection */
    SSL *ssl;         /* owned; NULL: none, or plain text */
    bool plain;
    bool shaken;
    char *in; /* owned; what was received, with a NUL */
    size_t in_len;
    const char *out; /* ref; what is to be sent */
    size_t out_len;
    unsigned connections;
};

static struct server servers[2];
static struct talk talk;
static struct holdfast_tls *tls;
static unsigned calls; /* of holdfast_process() by pump() */

static void
server_start(struct server *server, const char *names, long seconds)
{
    struct sockaddr_in local = {.sin_family = AF_INET};
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_certificate(key, ca_cert, ca_key, names, seconds);
    int room = 4096;

    memset(server, 0, sizeof(*server));
    server->fd = -1;
    server->in = calloc(1, 2 * BYTES);
    server->context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(server->context, cert);
    SSL_CTX_use_PrivateKey(server->context, key);
    SSL_CTX_set_mode(server->context,
        SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    X509_free(cert);
    EVP_PKEY_free(key);
    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    (void)setsockopt(
        server->listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    (void)setsockopt(
        server->listener, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    ck_assert_int_eq(
        bind(server->listener, (const struct sockaddr *)&local, sizeof(local)),
        0);
    ck_assert_int_eq(listen(server->listener, 8), 0);
}

static void
server_drop(struct server *server)
{
    SSL_free(server->ssl);
    server->ssl = NULL;
    server->shaken = false;
    if (server->fd >= 0)
        (void)close(server->fd);
    server->fd = -1;
    server->in_len = 0;
    server->out_len = 0;
}

static void
server_shut(struct server *server)
{
    if (server->listener >= 0)
        (void)close(server->listener);
    server->listener = -1;
}

/* Starts the server anew, with another certificate. */
static void
server_restart(struct server *server, const char *names, long seconds)
{
    server_drop(server);
    server_shut(server);
    SSL_CTX_free(server->context);
    free(server->in);
    server_start(server, names, seconds);
}

static const char *
address_of(const struct server *server)
{
    static char addresses[2][32];
    struct sockaddr_in local = {.sin_family = AF_INET};
    socklen_t len = sizeof(local);
    char *address = addresses[server - servers];

    ck_assert_int_eq(
        getsockname(server->listener, (struct sockaddr *)&local, &len), 0);
    (void)snprintf(address, sizeof(addresses[0]), "127.0.0.1:%u",
        (unsigned)ntohs(local.sin_port));
    return address;
}

static const char *
address_of_both(void)
{
    static char both[80];

    (void)snprintf(both, sizeof(both), "%s,%s", address_of(&servers[0]),
        address_of(&servers[1]));
    return both;
}

static bool
server_accept(struct server *server)
{
    int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK);
    int on = 1;

    if (fd < 0)
        return false;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    server_drop(server);
    server->connections++;
    server->fd = fd;
    if (server->plain) {
        (void)send(fd, GREETING, sizeof(GREETING) - 1, 0);
        return true;
    }
    server->ssl = SSL_new(server->context);
    SSL_set_fd(server->ssl, fd);
    SSL_set_accept_state(server->ssl);
    return true;
}

/* One step; whether anything moved. */
static bool
server_turn(struct server *server)
{
    size_t done = 0;
    bool moved = server->listener >= 0 && server_accept(server);

    ERR_clear_error();
    if (server->ssl == NULL)
        return moved;
    if (!server->shaken) {
        server->shaken = SSL_do_handshake(server->ssl) == 1;
        ERR_clear_error();
        return moved || server->shaken;
    }
    if (server->out_len > 0 &&
        SSL_write_ex(server->ssl, server->out, server->out_len, &done) == 1) {
        server->out += done;
        server->out_len -= done;
        moved = true;
    }
    ERR_clear_error();
    if (SSL_read_ex(server->ssl, server->in + server->in_len,
            2 * BYTES - 1 - server->in_len, &done) == 1) {
        server->in_len += done;
        server->in[server->in_len] = '\0';
        moved = true;
    }
    ERR_clear_error();
    return moved;
}

/* Calls the client if poll() or its time says so. False: it was not called. */
static bool
client_turn(void)
{
    struct pollfd entry = {
        .fd = holdfast_fd(talk.h), .events = holdfast_events(talk.h)};

    if (talk.h->link == LINK_CLOSED ||
        (poll(&entry, 1, 0) <= 0 && holdfast_timeout_ms(talk.h) != 0))
        return false;
    calls++;
    holdfast_process(talk.h, entry.revents);
    return true;
}

/* Runs both sides until nothing moves for some milliseconds, since loopback may
 * take a moment. */
static void
pump(void)
{
    for (unsigned still = 0; still < 20;) {
        bool moved = false;

        for (size_t i = 0; i < 2; i++)
            moved |= server_turn(&servers[i]);
        moved |= talk.h != NULL && client_turn();
        still = moved ? 0 : still + 1;
        if (!moved)
            (void)poll(NULL, 0, 1);
    }
}

static void
server_say(struct server *server, const char *text)
{
    server->out = text;
    server->out_len = strlen(text);
    pump();
    ck_assert_uint_eq(server->out_len, 0);
}

/* The events. */
static const char *
told(void)
{
    static char text[4096];
    struct holdfast_event event;
    size_t len = 0;

    text[0] = '\0';
    while (holdfast_next(talk.h, &event))
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%d/%s ",
            (int)event.kind, event.word);
    return text;
}

static uint64_t
test_clock(void *context)
{
    (void)context;
    return talk.now_ms;
}

static void
setup(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/holdfast-tls-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ca_key = EVP_EC_gen("P-256");
    ca_cert = make_certificate(ca_key, NULL, ca_key, "CA:TRUE", 3600);
    write_cert("ca.pem", ca_cert);
    for (size_t i = 0; i < 2; i++)
        server_start(&servers[i], "IP:127.0.0.1,DNS:broker.example", 3600);
    talk.h = NULL;
    talk.now_ms = 1000000;
    calls = 0;
}

static void
teardown(void)
{
    char command[128];

    holdfast_destroy(&talk.h);
    holdfast_tls_destroy(&tls);
    for (size_t i = 0; i < 2; i++) {
        server_drop(&servers[i]);
        server_shut(&servers[i]);
        SSL_CTX_free(servers[i].context);
        free(servers[i].in);
    }
    X509_free(ca_cert);
    EVP_PKEY_free(ca_key);
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* Creates `tls`, by default with the CA of this test. */
static void
trust(struct holdfast_tls_options how)
{
    char why[256] = "";

    if (how.ca == NULL)
        how.ca = path_of("ca.pem");
    tls = holdfast_tls_create(&how, why, sizeof(why));
    ck_assert_msg(tls != NULL, "%s", why);
}

static void
create(struct holdfast_options how)
{
    how.transport = holdfast_tls_transport(tls);
    ck_assert_int_eq(
        holdfast_create_at(&how, test_clock, NULL, &talk.h), HOLDFAST_SUCCESS);
}

/* Greeted by the first server, in this version of TLS. */
static void
begin(int version, uint64_t keep_ms)
{
    SSL_CTX_set_max_proto_version(servers[0].context, version);
    trust((struct holdfast_tls_options){.verify = HOLDFAST_TLS_FULL});
    create((struct holdfast_options){
        .address = address_of(&servers[0]), .keep_ms = keep_ms});
    pump();
    ck_assert(servers[0].shaken);
    server_say(&servers[0], GREETING);
    ck_assert_str_eq(told(), "0/ ");
}

/* Makes the client's send buffer small. */
static void
narrow(void)
{
    int room = 4096;

    ck_assert_int_eq(setsockopt(holdfast_fd(talk.h), SOL_SOCKET, SO_SNDBUF,
                         &room, sizeof(room)),
        0);
}

/* The reason why the connection ended before a greeting. */
static const char *
reason(void)
{
    pump();
    ck_assert_str_eq(told(), "11/ ");
    ck_assert_int_eq(holdfast_events(talk.h), 0);
    return holdfast_reason(talk.h);
}

static void
assert_in(const char *part, const char *whole)
{
    ck_assert_msg(
        strstr(whole, part) != NULL, "'%s' is not in '%s'", part, whole);
}

/* Tests */

START_TEST(a_lock)
{
    uint64_t request;

    begin(versions[_i], 0);
    ck_assert_int_eq(SSL_version(servers[0].ssl), versions[_i]);
    ck_assert_int_eq(
        holdfast_submit_lock(talk.h, "job", NULL, &request), HOLDFAST_SUCCESS);
    pump();
    ck_assert_str_eq(servers[0].in, "1 LOCK job\n");
    server_say(&servers[0], "1 OK fence=7 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(told(), "1/ ");
    calls = 0;
    pump();
    ck_assert_uint_eq(calls, 0); /* it rests */
}

END_TEST

/* Requests, AUTH included, wait for the end of the handshake. */
START_TEST(early_requests)
{
    uint64_t request;

    SSL_CTX_set_max_proto_version(servers[0].context, versions[_i]);
    trust((struct holdfast_tls_options){.verify = HOLDFAST_TLS_FULL});
    create((struct holdfast_options){
        .address = address_of(&servers[0]), .user = "me", .secret = "hidden"});
    (void)holdfast_submit_lock(talk.h, "job", NULL, &request);
    pump();
    ck_assert_str_eq(servers[0].in, "1 AUTH me hidden\n");
    server_say(&servers[0], GREETING "1 OK\n");
    ck_assert_str_eq(servers[0].in, "1 AUTH me hidden\n2 LOCK job\n");
}

END_TEST

/* More bytes than a record, a socket, a turn, and the queue of events take. No
 * byte is forgotten if the program takes its events late. */
START_TEST(a_burst_comes)
{
    struct holdfast_event event;
    unsigned count = 0;
    uint64_t request;
    size_t len = 0;
    char *lines = malloc(BYTES);

    begin(versions[_i], 0);
    (void)holdfast_submit(talk.h, "LOCKS", &request);
    pump();
    while (len < BYTES - 100)
        len += (size_t)snprintf(
            lines + len, 100, "1 ITEM name=lock-%u\n", count++);
    servers[0].out = lines;
    servers[0].out_len = len;
    for (unsigned next = 0; next < count;) {
        pump(); /* until the queue is full */
        while (!holdfast_next(talk.h, &event))
            pump(); /* loopback is busy with others */
        do {
            char name[40];
            (void)snprintf(name, sizeof(name), "lock-%u", next++);
            ck_assert_str_eq(holdfast_event_value(&event, "name"), name);
        } while (holdfast_next(talk.h, &event));
    }
    pump();
    ck_assert_uint_eq(servers[0].out_len, 0);
    ck_assert(!holdfast_next(talk.h, &event));
    free(lines);
}

END_TEST

/* The queue of events is full within the last record. The rest lies in TLS, and
 * poll() shows no more input. */
START_TEST(the_rest_of_a_record)
{
    static char lines[4681 * 7 + 1]; /* two records of 16 KiB, but for a byte */
    struct holdfast_event event;
    unsigned count = 0;
    uint64_t request;

    begin(versions[_i], 0);
    (void)holdfast_submit(talk.h, "LOCKS", &request);
    for (size_t i = 0; i < 4681; i++)
        memcpy(lines + 7 * i, "1 ITEM\n", 7);
    server_say(&servers[0], lines);
    ck_assert_int_eq(holdfast_events(talk.h), 0);
    while (holdfast_next(talk.h, &event))
        count++;
    ck_assert_uint_eq(count, 4680);
    pump();
    ck_assert(holdfast_next(talk.h, &event));
}

END_TEST

START_TEST(a_burst_goes)
{
    static char text[4000];
    unsigned sent = 0;
    size_t at = 0;
    uint64_t request;

    begin(versions[_i], 0);
    narrow();
    memset(text, 'x', sizeof(text) - 1);
    memcpy(text, "PING ", 5);
    while (holdfast_submit(talk.h, text, &request) == HOLDFAST_SUCCESS)
        sent++;
    ck_assert_uint_gt(sent, 200);
    pump();
    for (unsigned i = 1; i <= sent; i++) {
        size_t len = strcspn(servers[0].in + at, "\n");
        ck_assert_uint_eq(strtoul(servers[0].in + at, NULL, 10), i);
        ck_assert_uint_ge(len, sizeof(text));
        at += len + 1;
    }
    ck_assert_uint_eq(at, servers[0].in_len);
}

END_TEST

/* The name in the certificate: the host of the address, or server_name. */
START_TEST(names)
{
    static const struct {
        const char *names; /* of the certificate */
        const char *name;  /* that is asked for */
        enum holdfast_tls_verify verify;
        const char *why; /* "": it is well */
    } cases[] = {
        {"IP:127.0.0.1", NULL, HOLDFAST_TLS_FULL, ""},
        {"IP:127.0.0.2", NULL, HOLDFAST_TLS_FULL,
            "its certificate does not name \"127.0.0.1\""},
        {"DNS:127.0.0.1", NULL, HOLDFAST_TLS_FULL, "does not name"},
        {"IP:127.0.0.2", NULL, HOLDFAST_TLS_CA, ""},
        {"DNS:one.example", "one.example", HOLDFAST_TLS_FULL, ""},
        {"DNS:one.example", "one.example.", HOLDFAST_TLS_FULL, ""},
        {"DNS:*.a.example", "one.a.example", HOLDFAST_TLS_FULL, ""},
        {"DNS:o*.a.example", "one.a.example", HOLDFAST_TLS_FULL,
            "does not name"},
        {"DNS:one.example", "two.example", HOLDFAST_TLS_FULL,
            "its certificate does not name \"two.example\""},
        {"DNS:one.example", "two.example", HOLDFAST_TLS_CA, ""},
        {"IP:127.0.0.1", "one.example", HOLDFAST_TLS_FULL, "does not name"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server *server = &servers[0];
        server_restart(server, cases[i].names, 3600);
        trust((struct holdfast_tls_options){
            .server_name = cases[i].name, .verify = cases[i].verify});
        create((struct holdfast_options){.address = address_of(server)});
        if (cases[i].why[0] != '\0') {
            assert_in(cases[i].why, reason());
            ck_assert_uint_eq(server->in_len, 0);
        } else {
            pump();
            ck_assert_msg(server->shaken, "%s: %s", cases[i].names,
                holdfast_reason(talk.h));
            if (cases[i].name != NULL)
                ck_assert_int_eq(strncmp(SSL_get_servername(server->ssl,
                                             TLSEXT_NAMETYPE_host_name),
                                     cases[i].name, 11),
                    0);
        }
        holdfast_destroy(&talk.h);
        holdfast_tls_destroy(&tls);
    }
}

END_TEST

START_TEST(not_trusted)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_certificate(key, NULL, key, "CA:TRUE", 3600);

    write_cert("other.pem", cert);
    X509_free(cert);
    EVP_PKEY_free(key);
    SSL_CTX_set_max_proto_version(servers[0].context, versions[_i]);
    trust((struct holdfast_tls_options){
        .ca = path_of("other.pem"), .verify = HOLDFAST_TLS_CA});
    create((struct holdfast_options){
        .address = address_of(&servers[0]), .user = "u", .secret = "s"});
    assert_in("its certificate cannot be verified: ", reason());
    ck_assert_uint_eq(servers[0].in_len, 0);
}

END_TEST

START_TEST(its_time_is_over)
{
    server_restart(&servers[0], "IP:127.0.0.1", -60);
    trust((struct holdfast_tls_options){.verify = HOLDFAST_TLS_FULL});
    create((struct holdfast_options){.address = address_of(&servers[0])});
    assert_in("certificate has expired", reason());
}

END_TEST

START_TEST(plain_text)
{
    servers[0].plain = true;
    trust((struct holdfast_tls_options){.verify = HOLDFAST_TLS_FULL});
    create((struct holdfast_options){.address = address_of(&servers[0])});
    assert_in("it does not speak TLS", reason());
}

END_TEST

/* The broker requires a certificate, which the client does not have, or has. */
START_TEST(own_certificate)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_certificate(key, ca_cert, ca_key, "DNS:me", 3600);

    SSL_CTX_set_verify(servers[0].context,
        SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(servers[0].context), ca_cert);
    SSL_CTX_set_max_proto_version(servers[0].context, versions[_i]);
    write_cert("me.pem", cert);
    write_key("me.key", key, NULL);
    X509_free(cert);
    EVP_PKEY_free(key);

    trust((struct holdfast_tls_options){.verify = HOLDFAST_TLS_FULL});
    create((struct holdfast_options){
        .address = address_of(&servers[0]), .name = "x"});
    assert_in(versions[_i] == TLS1_3_VERSION
                  ? "it ends TLS (tlsv13 alert certificate required)"
                  : "it ends TLS (sslv3 alert handshake failure)",
        reason());
    holdfast_destroy(&talk.h);
    holdfast_tls_destroy(&tls);

    trust((struct holdfast_tls_options){
        .cert = path_of("me.pem"), .key = path_of("me.key")});
    create((struct holdfast_options){.address = address_of(&servers[0])});
    pump();
    ck_assert(servers[0].shaken);
    server_say(&servers[0], GREETING);
    ck_assert_str_eq(told(), "0/ ");
}

END_TEST

/* After a broker with a bad certificate the client tries the next one. */
START_TEST(next_address)
{
    static struct server *bad = &servers[0];
    bool met = false;

    server_restart(bad, "IP:127.0.0.2", 3600);
    for (unsigned i = 0; i < 40 && !met; i++) {
        trust((struct holdfast_tls_options){.verify = HOLDFAST_TLS_FULL});
        create((struct holdfast_options){.address = address_of_both()});
        pump();
        server_say(&servers[1], GREETING);
        ck_assert_str_eq(told(), "0/ ");
        met = bad->connections > 0;
        ck_assert_uint_eq(bad->in_len, 0);
        holdfast_destroy(&talk.h);
        holdfast_tls_destroy(&tls);
    }
    ck_assert(met); /* the order is random */
}

END_TEST

/* Of several errors the error of a handshake is the reason. */
START_TEST(the_reason_that_counts)
{
    char both[80];

    (void)snprintf(both, sizeof(both), "%s", address_of_both());
    server_shut(&servers[1]);
    trust((struct holdfast_tls_options){.server_name = "other.example"});
    for (unsigned i = 0; i < 10; i++) { /* in any order */
        create((struct holdfast_options){.address = both});
        assert_in("does not name \"other.example\"", reason());
        holdfast_destroy(&talk.h);
    }
}

END_TEST

/* A server accepts and stays silent. */
START_TEST(silence)
{
    servers[0].plain = true; /* and nobody steps on what was accepted */
    server_shut(&servers[1]);
    trust((struct holdfast_tls_options){.verify = HOLDFAST_TLS_FULL});
    int listener = servers[0].listener;
    create((struct holdfast_options){.address = address_of(&servers[0])});
    servers[0].listener = -1;
    pump();
    ck_assert_int_eq(talk.h->link, LINK_SHAKING);
    int left_ms = holdfast_timeout_ms(talk.h);
    ck_assert_int_gt(left_ms, 0);
    ck_assert_int_le(left_ms, 10000);
    talk.now_ms += (uint64_t)left_ms - 1;
    pump();
    ck_assert_str_eq(told(), "");
    talk.now_ms++;
    ck_assert_str_eq(reason(), "connected, but the handshake does not end");
    servers[0].listener = listener;
}

END_TEST

/* A kept session moves to the other broker with its hold. */
START_TEST(moves)
{
    const struct holdfast_options how = {
        .address = address_of_both(), .keep_ms = 30000};
    uint64_t request;

    SSL_CTX_set_max_proto_version(servers[0].context, versions[_i]);
    trust((struct holdfast_tls_options){.verify = HOLDFAST_TLS_FULL});
    create(how);
    pump();
    struct server *first = servers[0].fd >= 0 ? &servers[0] : &servers[1];
    struct server *second = first == servers ? &servers[1] : &servers[0];
    server_say(first, GREETING);
    ck_assert_str_eq(first->in, "1 HELLO keep=30000\n");
    server_say(first, "1 OK session=" SESSION " proto=1 keep_ms=30000\n");
    (void)holdfast_submit_lock(talk.h, "job", NULL, &request);
    pump();
    server_say(first, "2 OK fence=7 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(told(), "0/ 1/ ");
    server_drop(first);
    server_shut(first);
    pump();
    ck_assert_str_eq(told(), "12/ ");
    talk.now_ms += 200;
    pump();
    ck_assert(second->shaken);
    server_say(second, GREETING);
    ck_assert_str_eq(
        second->in, "3 HELLO keep=30000 resume=" SESSION " gen=2\n");
    server_say(second, "3 OK session=" SESSION " gen=2 keep_ms=30000\n");
    assert_in("CLAIM job fence=7 count=1\n", second->in);
    server_say(second, "4 OK fence=7 ttl_ms=9000\n");
    ck_assert_str_eq(told(), "13/ ");
}

END_TEST

/* QUIT and close_notify are sent at once. */
START_TEST(destroyed)
{
    begin(versions[_i], 30000);
    server_say(&servers[0], "1 OK session=" SESSION " keep_ms=30000\n");
    servers[0].in_len = 0;
    holdfast_destroy(&talk.h);
    pump();
    ck_assert_str_eq(servers[0].in, "QUIT\n");
    ck_assert_int_eq(SSL_get_shutdown(servers[0].ssl) & SSL_RECEIVED_SHUTDOWN,
        SSL_RECEIVED_SHUTDOWN);
}

END_TEST

START_TEST(destroyed_without_a_session)
{
    begin(versions[_i], 0);
    holdfast_destroy(&talk.h);
    pump();
    ck_assert_uint_eq(servers[0].in_len, 0);
    ck_assert_int_eq(SSL_get_shutdown(servers[0].ssl) & SSL_RECEIVED_SHUTDOWN,
        SSL_RECEIVED_SHUTDOWN);
}

END_TEST

/* The socket is full: destroying does not wait. */
START_TEST(destroyed_when_full)
{
    static char text[4000];
    uint64_t request;

    begin(versions[_i], 30000);
    server_say(&servers[0], "1 OK session=" SESSION " keep_ms=30000\n");
    narrow();
    memset(text, 'x', sizeof(text) - 1);
    memcpy(text, "PING ", 5);
    for (int i = 0; i < 200; i++)
        (void)holdfast_submit(talk.h, text, &request);
    while (client_turn())
        ; /* the server does not read */
    ck_assert_uint_gt(talk.h->out_end, talk.h->out_start);
    holdfast_destroy(&talk.h);
}

END_TEST

/* The child of a fork says nothing over its parent's connection. */
START_TEST(forked)
{
    uint64_t request;
    int status;

    begin(versions[_i], 0);
    pid_t child = fork();
    if (child == 0) {
        bool closed =
            holdfast_fd(talk.h) == -1 &&
            holdfast_submit(talk.h, "PING", &request) == HOLDFAST_NOT_CONNECTED;
        holdfast_process(talk.h, POLLIN | POLLOUT);
        holdfast_destroy(&talk.h);
        _exit(closed && talk.h == NULL ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    pump();
    (void)holdfast_submit_lock(talk.h, "job", NULL, &request);
    pump();
    ck_assert_str_eq(servers[0].in, "1 LOCK job\n");
    server_say(&servers[0], "1 OK fence=7 ttl_ms=9000 count=1\n");
    ck_assert_str_eq(told(), "1/ ");
}

END_TEST

/* The broker is gone: the connection ends without SIGPIPE. */
START_TEST(gone)
{
    uint64_t request;

    begin(versions[_i], 0);
    (void)signal(SIGPIPE, SIG_DFL);
    server_drop(&servers[0]);
    for (int i = 0; i < 3; i++) {
        (void)holdfast_submit(talk.h, "PING", &request);
        holdfast_link_flush(talk.h);
        (void)poll(NULL, 0, 2);
    }
    pump();
    assert_in("11/ ", told());
    ck_assert_str_ne(holdfast_reason(talk.h), "");
    ck_assert_uint_eq(ERR_peek_error(), 0);
}

END_TEST

/* A last line is read, even if no more can be written. */
START_TEST(last_word)
{
    begin(versions[_i], 0);
    servers[0].out = "* BYE drained\n";
    servers[0].out_len = strlen(servers[0].out);
    (void)server_turn(&servers[0]);
    (void)SSL_shutdown(servers[0].ssl);
    server_drop(&servers[0]);
    pump();
    ck_assert_str_eq(told(), "10/drained 11/ ");
    ck_assert_str_eq(holdfast_reason(talk.h), "the broker said BYE drained");
}

END_TEST

/* Files */

/* Names of files in the folder; NULL: none. */
static void
refused(const char *part, const char *ca, const char *cert, const char *key)
{
    const struct holdfast_tls_options how = {
        .ca = path_of(ca),
        .cert = cert != NULL ? path_of(cert) : NULL,
        .key = key != NULL ? path_of(key) : NULL,
    };
    char why[300];

    ck_assert_ptr_null(holdfast_tls_create(&how, why, sizeof(why)));
    ck_assert_uint_eq(ERR_peek_error(), 0);
    assert_in(part, why);
}

START_TEST(files)
{
    static const struct {
        const char *why;
        const char *ca;
        const char *cert;
        const char *key;
    } cases[] = {
        {"/none: No such file", "none", NULL, NULL},
        {"/empty: holds no certificates", "empty", NULL, NULL},
        {"not a regular file", ".", NULL, NULL},
        {"are both needed", "ca.pem", "me.pem", NULL},
        {"are both needed", "ca.pem", NULL, "me.pem"},
        {"/empty: holds no certificate", "ca.pem", "empty", "me.key"},
        {"/empty: holds no private key", "ca.pem", "me.pem", "empty"},
        {"/locked.key: has a passphrase", "ca.pem", "me.pem", "locked.key"},
        {"/other.key: does not fit the certificate", "ca.pem", "me.pem",
            "other.key"},
    };

    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_certificate(key, ca_cert, ca_key, "DNS:me", 3600);
    char long_name[300];
    char why[300];

    write_cert("me.pem", cert);
    write_key("me.key", key, NULL);
    write_key("locked.key", key, EVP_aes_128_cbc());
    write_key("other.key", ca_key, NULL);
    fclose(fopen(path_of("empty"), "w"));
    X509_free(cert);
    EVP_PKEY_free(key);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refused(cases[i].why, cases[i].ca, cases[i].cert, cases[i].key);
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    const struct holdfast_tls_options longer = {.server_name = long_name};
    ck_assert_ptr_null(holdfast_tls_create(&longer, why, sizeof(why)));
    assert_in("too long", why);
    trust((struct holdfast_tls_options){
        .cert = path_of("me.pem"), .key = path_of("me.key")});
    holdfast_tls_destroy(&tls);
    /* The CAs of the system. */
    const struct holdfast_tls_options nothing = {.ca = NULL};
    tls = holdfast_tls_create(&nothing, why, sizeof(why));
    ck_assert_ptr_nonnull(tls);
}

END_TEST

START_TEST(addresses)
{
    trust((struct holdfast_tls_options){.verify = HOLDFAST_TLS_FULL});
    struct holdfast_options how = {.address = "127.0.0.1,[::1],127.0.0.1:9",
        .transport = holdfast_tls_transport(tls)};

    ck_assert_int_eq(
        holdfast_create_at(&how, test_clock, NULL, &talk.h), HOLDFAST_SUCCESS);
    ck_assert_uint_eq(talk.h->peer_count, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct holdfast_peer *peer = &talk.h->peers[i];
        struct sockaddr_in6 address;

        memcpy(&address, &peer->address, sizeof(address)); /* port: of both */
        const char *host = talk.h->hosts[peer->origin];
        ck_assert_str_eq(
            host, address.sin6_family == AF_INET6 ? "::1" : "127.0.0.1");
        ck_assert(
            ntohs(address.sin6_port) == 4655 || ntohs(address.sin6_port) == 9);
    }
    holdfast_destroy(&talk.h);
    how.address = "127.0.0.1,/run/holdfast.sock";
    ck_assert_int_eq(holdfast_create_at(&how, test_clock, NULL, &talk.h),
        HOLDFAST_BAD_ADDRESS);
}

END_TEST

/* The link layer over a transport that says what it wants */

static enum holdfast_moved fake_reads = HOLDFAST_MOVED_WANTS_READ;
static enum holdfast_moved fake_writes = HOLDFAST_MOVED_WANTS_WRITE;
static enum holdfast_moved fake_shakes = HOLDFAST_MOVED_WANTS_READ;
static bool fake_holds; /* something that no poll() tells of */
static unsigned fake_links;

static void *
fake_create(const void *context, int fd, const char *host)
{
    (void)context;
    ck_assert_int_ge(fd, 0);
    ck_assert_str_eq(host, "127.0.0.1");
    fake_links++;
    return &fake_links;
}

static enum holdfast_moved
fake_shake(void *link)
{
    (void)link;
    return fake_shakes;
}

static enum holdfast_moved
fake_read(void *link, char *out, size_t room, size_t *got)
{
    (void)link;
    ck_assert_uint_gt(room, 100);
    if (fake_reads == HOLDFAST_MOVED_DONE) {
        *got = sizeof(GREETING) - 1;
        memcpy(out, GREETING, *got);
        fake_reads = HOLDFAST_MOVED_WANTS_READ;
        return HOLDFAST_MOVED_DONE;
    }
    return fake_reads;
}

static enum holdfast_moved
fake_write(void *link, const char *bytes, size_t len, size_t *sent)
{
    (void)link;
    (void)bytes;
    *sent = fake_writes == HOLDFAST_MOVED_DONE ? len : 0;
    return fake_writes;
}

static enum holdfast_moved
fake_finish(void *link)
{
    (void)link;
    return HOLDFAST_MOVED_DONE;
}

static bool
fake_pending(const void *link)
{
    (void)link;
    return fake_holds;
}

static const char *
fake_why(const void *link)
{
    (void)link;
    return "the test says so";
}

static void
fake_destroy(void *link)
{
    (void)link;
    fake_links--;
}

static const struct holdfast_transport fake = {
    .port = "1",
    .create = fake_create,
    .shake = fake_shake,
    .read = fake_read,
    .write = fake_write,
    .finish = fake_finish,
    .pending = fake_pending,
    .why = fake_why,
    .destroy = fake_destroy,
};

static void
fake_begin(void)
{
    const struct holdfast_options how = {
        .address = address_of(&servers[0]), .transport = &fake};

    ck_assert_int_eq(
        holdfast_create_at(&how, test_clock, NULL, &talk.h), HOLDFAST_SUCCESS);
    ck_assert_int_eq(holdfast_events(talk.h), POLLOUT);
    holdfast_process(talk.h, POLLOUT);
}

START_TEST(wants)
{
    uint64_t request;

    fake_begin();
    ck_assert_int_eq(holdfast_events(talk.h), POLLIN);
    fake_shakes = HOLDFAST_MOVED_WANTS_WRITE;
    holdfast_process(talk.h, POLLIN);
    ck_assert_int_eq(holdfast_events(talk.h), POLLOUT);
    fake_shakes = HOLDFAST_MOVED_DONE;
    fake_reads = HOLDFAST_MOVED_DONE; /* the greeting, with the handshake */
    holdfast_process(talk.h, POLLOUT);
    ck_assert_str_eq(told(), "0/ ");
    ck_assert_int_eq(holdfast_events(talk.h), POLLIN);
    fake_reads = HOLDFAST_MOVED_WANTS_WRITE;
    holdfast_process(talk.h, POLLIN);
    ck_assert_int_eq(holdfast_events(talk.h), POLLOUT);
    fake_reads = HOLDFAST_MOVED_WANTS_READ;
    holdfast_process(talk.h, POLLOUT);
    ck_assert_int_eq(holdfast_events(talk.h), POLLIN);
    (void)holdfast_submit(talk.h, "PING", &request);
    holdfast_process(talk.h, 0);
    ck_assert_int_eq(holdfast_events(talk.h), POLLIN | POLLOUT);
    fake_writes = HOLDFAST_MOVED_WANTS_READ;
    holdfast_process(talk.h, 0);
    ck_assert_int_eq(holdfast_events(talk.h), POLLIN);
    fake_writes = HOLDFAST_MOVED_DONE;
    holdfast_process(talk.h, 0);
    ck_assert_uint_eq(talk.h->out_end, 0);
    ck_assert_int_ne(holdfast_timeout_ms(talk.h), 0);
    fake_holds = true;
    ck_assert_int_eq(holdfast_timeout_ms(talk.h), 0);
}

END_TEST

START_TEST(breaks)
{
    uint64_t request;

    fake_begin();
    fake_shakes = HOLDFAST_MOVED_BROKEN;
    holdfast_process(talk.h, POLLIN);
    ck_assert_str_eq(holdfast_reason(talk.h), "the test says so");
    ck_assert_uint_eq(fake_links, 0);
    holdfast_destroy(&talk.h);
    for (int writing = 0; writing < 2; writing++) {
        fake_shakes = HOLDFAST_MOVED_DONE;
        fake_reads = HOLDFAST_MOVED_DONE;
        fake_writes = HOLDFAST_MOVED_WANTS_WRITE;
        fake_begin();
        ck_assert_str_eq(told(), "0/ ");
        (void)holdfast_submit(talk.h, "PING", &request);
        *(writing ? &fake_writes : &fake_reads) = HOLDFAST_MOVED_BROKEN;
        holdfast_process(talk.h, POLLIN);
        ck_assert_str_eq(told(), "11/ ");
        ck_assert_str_eq(holdfast_reason(talk.h), "the test says so");
        ck_assert_uint_eq(fake_links, 0);
        holdfast_destroy(&talk.h);
    }
}

END_TEST

Suite *
client_tls_suite(void)
{
    Suite *suite = suite_create("client_tls");
    TCase *cases = tcase_create("cases");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, a_lock, 0, 2);
    tcase_add_loop_test(cases, early_requests, 0, 2);
    tcase_add_loop_test(cases, a_burst_comes, 0, 2);
    tcase_add_loop_test(cases, the_rest_of_a_record, 0, 2);
    tcase_add_loop_test(cases, a_burst_goes, 0, 2);
    tcase_add_test(cases, names);
    tcase_add_loop_test(cases, not_trusted, 0, 2);
    tcase_add_test(cases, its_time_is_over);
    tcase_add_test(cases, plain_text);
    tcase_add_loop_test(cases, own_certificate, 0, 2);
    tcase_add_test(cases, next_address);
    tcase_add_test(cases, the_reason_that_counts);
    tcase_add_test(cases, silence);
    tcase_add_loop_test(cases, moves, 0, 2);
    tcase_add_loop_test(cases, destroyed, 0, 2);
    tcase_add_loop_test(cases, destroyed_without_a_session, 0, 2);
    tcase_add_loop_test(cases, destroyed_when_full, 0, 2);
    tcase_add_loop_test(cases, forked, 0, 2);
    tcase_add_loop_test(cases, gone, 0, 2);
    tcase_add_loop_test(cases, last_word, 0, 2);
    tcase_add_test(cases, files);
    tcase_add_test(cases, addresses);
    tcase_add_test(cases, wants);
    tcase_add_test(cases, breaks);
    tcase_set_timeout(cases, 10);
    suite_add_tcase(suite, cases);
    return suite;
}
