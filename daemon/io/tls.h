/*
 * TLS, as a client of Redis and Sentinels, and as a server of clients. A
 * `struct tls` for each of the two has trusted CAs and the own certificate. A
 * tls_conn is one connection, on a connected socket.
 *
 * No call blocks. A call that must wait for the socket says so, and is made
 * again later. The owner keeps the socket and its time-outs. Only tls.c and
 * tls_conn.c know OpenSSL.
 */
#ifndef HOLDFAST_IO_TLS_H
#define HOLDFAST_IO_TLS_H

#include "daemon/base/text.h"

enum tls_role {
    TLS_CLIENT, /* of Redis */
    TLS_SERVER, /* of our clients */
};

/* Names of PEM files, absolute or from the working folder. */
struct tls_settings {
    enum tls_role role;
    const char *ca;   /* ref: certificates; empty (a server's): clients need
                         no certificate */
    const char *cert; /* ref: certificate, and its chain; empty: none */
    const char *key;  /* ref: its key; empty where there is no certificate */
    const char *server_name; /* ref: in place of the host's; empty: that */
    bool any_name;           /* the name in a certificate is not checked */
    bool required;           /* a server's: a client needs a certificate */
};

/* The reason of a refusal. */
enum tls_part {
    TLS_PART_CA,
    TLS_PART_CERT,
    TLS_PART_KEY,
    TLS_PARTS,
};

struct tls;

/*
 * Reads the files; `settings` is not needed after. NULL: `why` says in a line
 * what is wrong, and `part` names the file (TLS_PART_CA if memory is out).
 */
struct tls *tls_create(const struct tls_settings *settings, enum tls_part *part,
    char *why, size_t why_bytes);

/* Connections that use it keep it. */
void tls_destroy(struct tls **tls);

/* Whether tls_create() would give the same result now. It reads the files, but
 * does not parse them: that may take long with many CAs. */
bool tls_is_current(const struct tls *tls, const struct tls_settings *settings);

/* Whether both had the same bytes in the file of that part. */
bool tls_same(
    const struct tls *one, const struct tls *other, enum tls_part part);

/* The end of the own certificate or of its chain, the earliest of them, in
 * seconds since 1970; 0: there is none. */
uint64_t tls_expiry_s(const struct tls *tls);

enum tls_status {
    TLS_DONE,        /* of a read or write: some bytes at least */
    TLS_WANTS_READ,  /* call again when the socket can be read */
    TLS_WANTS_WRITE, /* call again when it can be written */
    TLS_ENDED,       /* of a read: the peer sends no more, and may still read */
    TLS_BROKEN,      /* for good; tls_conn_why() */
};

/* The kind of a failure. */
enum tls_failure {
    TLS_FAILED_GONE, /* the connection ended */
    TLS_FAILED_PROTOCOL,
    TLS_FAILED_CERTIFICATE, /* one side refused the certificate of the other */
};

struct tls_conn;

/*
 * Begins TLS on a connected non-blocking socket, which must outlive it. `host`
 * is the name or number of the server; a server has NULL. NULL: no memory.
 */
struct tls_conn *tls_conn_create(struct tls *tls, int fd, const char *host);

/* Frees it. The peer sees only the end of the socket. */
void tls_conn_destroy(struct tls_conn **conn);

/* Goes on with the handshake. Read and write come after TLS_DONE. */
enum tls_status tls_conn_handshake(struct tls_conn *conn);

/* The most bytes of a record. */
#define TLS_RECORD_BYTES 16384

/*
 * Reads up to `room` bytes (above 0), after the handshake. Call again until it
 * wants something: no poll() tells of bytes that OpenSSL has taken from the
 * socket. With room for TLS_RECORD_BYTES no such bytes remain.
 */
enum tls_status tls_conn_read(
    struct tls_conn *conn, char *out, size_t room, size_t *got);

/*
 * Writes some of `len` bytes, at least one. After a want, the next call has the
 * same bytes, wherever they lie, and maybe more behind them.
 */
enum tls_status tls_conn_write(
    struct tls_conn *conn, const char *bytes, size_t len, size_t *sent);

/* Tells the peer that no more comes. After TLS_DONE nothing may be written. */
enum tls_status tls_conn_end(struct tls_conn *conn);

/* Whether it has a partial record, and so memory for a whole one. */
bool tls_conn_is_within(const struct tls_conn *conn);

/* Why it is broken, for the log; valid until it is destroyed. */
const char *tls_conn_why(const struct tls_conn *conn);

/* The kind of failure of a broken connection. */
enum tls_failure tls_conn_failure(const struct tls_conn *conn);

typedef void tls_name(void *arg, struct text name);

/*
 * Gives each name of the peer's verified certificate: its subjectAltNames of
 * DNS, mail and URI, or else its common names. They may have any bytes, and any
 * number. False: the peer has no certificate.
 */
bool tls_conn_names(const struct tls_conn *conn, tls_name *name, void *arg);

#endif
