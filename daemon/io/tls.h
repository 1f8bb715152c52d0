/*
 * TLS, as a client of Redis and Sentinels, and as a server of clients. `struct
 * tls`, one for each of the two, has the trusted CAs and the own certificate. A
 * tls_link is one connection, on a connected socket.
 *
 * Nothing blocks: where the socket has nothing, or takes nothing, that is said
 * and the same call is to be made again when it does. The socket stays its
 * owner's, and so are time-outs. Only tls.c and tls_link.c know OpenSSL.
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
    const char *ca;   /* ref: one certificate or more; a server's, empty: no
                         client is asked for a certificate */
    const char *cert; /* ref: certificate, and its chain; empty: none */
    const char *key;  /* ref: its key; empty where there is no certificate */
    const char *server_name; /* ref: in place of the host's; empty: that */
    bool any_name;           /* the name in a certificate does not matter */
    bool required; /* a server's: who shows no certificate is refused */
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
 * what is wrong, and `part` with which file (TLS_PART_CA where memory is out).
 */
struct tls *tls_create(const struct tls_settings *settings, enum tls_part *part,
    char *why, size_t why_bytes);

/* Links that were made with it go on with it. */
void tls_destroy(struct tls **tls);

/* Whether tls_create() would make the same of these settings now. It reads the
 * files, but takes nothing of them apart, which may last where CAs are many. */
bool tls_is_current(const struct tls *tls, const struct tls_settings *settings);

/* Whether the file of that part held the same bytes for both. */
bool tls_same(
    const struct tls *one, const struct tls *other, enum tls_part part);

/* When the first of the certificates that are shown ends, that of `cert` or one
 * of its chain, in seconds since 1970; 0: none is shown. */
uint64_t tls_expiry_s(const struct tls *tls);

enum tls_status {
    TLS_DONE,        /* of a read or write: some bytes at least */
    TLS_WANTS_READ,  /* when the socket can be read, again */
    TLS_WANTS_WRITE, /* when it can be written, again */
    TLS_ENDED,       /* of a read: the peer sends no more, and may yet read */
    TLS_BROKEN,      /* for good; tls_link_why() */
};

/* The counter of a broken one, or of a failed handshake. */
enum tls_failure {
    TLS_FAILED_GONE, /* the connection ended */
    TLS_FAILED_PROTOCOL,
    TLS_FAILED_CERTIFICATE, /* one of us does not like the other's */
};

struct tls_link;

/*
 * On a connected non-blocking socket, which is to outlive it. `host` is the
 * name or number that was connected to; a server has NULL. NULL: no memory.
 */
struct tls_link *tls_link_create(struct tls *tls, int fd, const char *host);

/* Says nothing to the peer: the end of the socket tells it. */
void tls_link_destroy(struct tls_link **link);

/* The handshake, up to TLS_DONE; before that neither read nor write. */
enum tls_status tls_link_handshake(struct tls_link *link);

/* The bytes of a record at most. */
#define TLS_RECORD_BYTES 16384

/*
 * Reads up to `room` bytes, which is above 0, after the handshake. Call until
 * it wants something: no poll() tells of bytes that it has read from the socket
 * and not given yet. With room for TLS_RECORD_BYTES there is no such rest.
 */
enum tls_status tls_link_read(
    struct tls_link *link, char *out, size_t room, size_t *got);

/*
 * Some of `len` bytes, at least one; after a want the same bytes are to be
 * given again, wherever they lie, and more may follow them.
 */
enum tls_status tls_link_write(
    struct tls_link *link, const char *bytes, size_t len, size_t *sent);

/* Tells the peer that no more is sent; once done nothing may be written. */
enum tls_status tls_link_end(struct tls_link *link);

/* Whether it keeps a part of a record, and with it room for a whole one. */
bool tls_link_is_within(const struct tls_link *link);

/* Why it is broken, for the log; valid until it is destroyed. */
const char *tls_link_why(const struct tls_link *link);

/* The kind of failure of a link that is broken. */
enum tls_failure tls_link_failure(const struct tls_link *link);

typedef void tls_name(void *arg, struct text name);

/*
 * Gives each name of the peer's certificate, which has been verified: those of
 * DNS, mail and URI that it has as subjectAltName, or else its common names.
 * They may be any bytes, and of any number. False: it has shown none.
 */
bool tls_link_names(const struct tls_link *link, tls_name *name, void *arg);

#endif
