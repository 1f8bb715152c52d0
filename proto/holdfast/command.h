/*
 * The commands of `holdfast`, their exit statuses, what they have in common.
 *
 *     main.c      options before the command; which command
 *     complain.c  errors for people
 *     options.c   options of a command; durations
 *     help.c      what -h prints
 *     connect.c   a connection for the short commands, and their errors
 *     secret.c    who one is, for all connections; secrets for brokers' users
 *     tls.c       whom to trust, likewise
 *     list.c out.c escape.c    show, locks, sessions, slow, status, audit,
 *                              how they are printed
 *     top.c       screen.c all of a terminal for a while
 *     bench.c
 *     ping.c raw.c
 *     order.c     break, kill, drain
 *     watch.c
 *     loop.c      signals, time and sockets together, for run and lock
 *     acquire.c   from an address to a lock that is held
 *     lock.c
 *     guard.c     who ends what this process cannot, since it was killed;
 *                 group.c
 *     run.c       a program under a lock: child.c its process group, terminal.c
 *                 whose the terminal is
 */
#ifndef HOLDFAST_COMMAND_COMMAND_H
#define HOLDFAST_COMMAND_COMMAND_H

#include "proto/client/holdfast.h"

enum exit_status {
    STATUS_FINE = 0,
    STATUS_REFUSED = 1, /* the broker answered ERR */
    STATUS_USAGE = 64,
    STATUS_LOST = 123,
    STATUS_NOT_ACQUIRED = 124,
    STATUS_TROUBLE = 125,
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128, /* and the signal's number */
};

enum out_format {
    OUT_AUTOMATIC, /* columns on a terminal, else tabs */
    OUT_COLUMNS,
    OUT_TABS,
    OUT_JSON,
};

/* Options that may stand before or after the command. */
struct settings {
    const char *address;     /* ref; one, or several with commas; NULL: usual */
    const char *user;        /* ref; NULL: none */
    const char *secret_file; /* ref; NULL: none */
    bool tls;                /* also where any of these is there */
    const char *tls_ca;      /* refs; NULL: none */
    const char *tls_cert;
    const char *tls_key;
    const char *tls_name;
    const char *tls_verify;
    enum out_format format;
    char **argv; /* ref: the process' own, for its title */
    int argc;
};

/* Each takes what follows its name and returns the exit status. */
typedef int command_function(struct settings *settings, int argc, char **argv);

command_function command_run;
command_function command_lock;
command_function command_show;
command_function command_locks;
command_function command_sessions;
command_function command_slow;
command_function command_status;
command_function command_audit;
command_function command_ping;
command_function command_raw;
command_function command_watch;
command_function command_break;
command_function command_kill;
command_function command_drain;
command_function command_secret;
command_function command_top;
command_function command_bench;

/* Prints the help of a command, NULL: of all. False: there is no such one. */
bool help_print(const char *command);

/*
 * One line to stderr behind "holdfast: ". Text from elsewhere goes through
 * escape_text() first.
 */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * secret.c: user and secret of a connection, as far as there are any. The file
 * is read at the first call, and not again. False after a complaint.
 */
bool secret_take(
    const struct settings *settings, struct holdfast_options *options);

/*
 * tls.c: what to speak through, as far as that is asked for. The files are read
 * at the first call, and not again. False after a complaint.
 */
bool tls_take(
    const struct settings *settings, struct holdfast_options *options);

/* The likely fault if a broker that was reached does not greet: a port for TLS
 * waits for the client. Static; "" where that is not it. */
const char *tls_hint(const struct settings *settings);

/* connect.c: false after a complaint that shows none of the values, where one
 * may be a secret: a URL or a user as address, a file's text as its name. */
bool settings_fit(const struct settings *settings);

/*
 * connect.c: address, user, secret and transport of a connection. False after a
 * complaint. After the first time that it was true it always is, and needs
 * neither files nor arguments, but for an address that was given.
 */
bool connect_options(
    const struct settings *settings, struct holdfast_options *options);

/* Which address it is; a ref. */
const char *connect_address(const struct settings *settings);

/*
 * connect.c: a connection with its greeting, or NULL after a complaint; waits
 * five seconds at most. Owned by the caller.
 */
struct holdfast *connect_broker(const struct settings *settings);

/* The same, with a session that outlives its connection. */
struct holdfast *connect_kept(
    const struct settings *settings, uint64_t keep_ms);

/*
 * The text of `status`, or the reason of the end of the connection, in `text`,
 * which is returned.
 */
const char *broker_trouble(const struct holdfast *h,
    enum holdfast_status status, char *text, size_t text_bytes);

/* Complains about an ERR; `more` is put behind it. */
void complain_refused(
    const char *what, const struct holdfast_event *event, const char *more);

/*
 * KEY as a word of the wire, which has 1 to HOLDFAST_NAME_MAX bytes before
 * that. False after a complaint.
 */
bool key_encode(
    const char *command, const char *key, char *word, size_t word_bytes);

#define KEY_WORD_BYTES (3 * HOLDFAST_NAME_MAX + 1)

#endif
