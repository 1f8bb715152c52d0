/*
 * The commands of `holdfast`, their exit statuses, and shared functions.
 *
 *     main.c      the options before the command, and the call of the command
 *     complain.c  errors on stderr
 *     options.c   command lines and durations
 *     help.c      the words and the help page of each command
 *     connect.c   a connection for the short commands, and their errors
 *     settings.c  whether the options of a connection fit each other
 *     secret.c    the secret of all connections; the command secret
 *     tls.c       TLS of all connections
 *     list.c      show, locks, sessions, slow, status, audit; out.c prints
 *                 lists, escape.c escapes bytes
 *     top.c       the command top; screen.c takes the whole terminal
 *     order.c     await, break, kill, drain
 *     bench.c ping.c raw.c watch.c   one command each
 *     loop.c      signals, time and sockets, for run and lock
 *     acquire.c   takes and releases the locks of run and lock
 *     lock.c      the command lock
 *     run.c       the command run; child.c is the program's process group,
 *                 terminal.c the owner of the terminal
 *     guard.c     a process that acts when this process is killed; group.c
 */
#ifndef HOLDFAST_COMMAND_COMMAND_H
#define HOLDFAST_COMMAND_COMMAND_H

#include "proto/clients/c/holdfast.h"

enum exit_status {
    STATUS_FINE = 0,
    STATUS_REFUSED = 1, /* the broker answered ERR */
    STATUS_USAGE = 64,
    STATUS_LOST = 123,
    STATUS_NOT_ACQUIRED = 124,
    STATUS_TROUBLE = 125,
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128, /* plus the signal's number */
};

enum out_format {
    OUT_AUTOMATIC, /* columns on a terminal, else tabs */
    OUT_COLUMNS,
    OUT_TABS,
    OUT_JSON,
};

/* Options that may stand before or after the command. */
struct settings {
    const char *address;     /* ref; with commas several; NULL: default */
    const char *user;        /* ref; NULL: none */
    const char *secret_file; /* ref; NULL: none */
    bool tls;                /* any of the next ones implies it */
    const char *tls_ca;      /* refs; NULL: none */
    const char *tls_cert;
    const char *tls_key;
    const char *tls_name;
    const char *tls_verify;
    enum out_format format;
    char **argv; /* ref: of the process, for the title of the guard */
    int argc;
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* `argv` follows the command's name. Returns the exit status. */
typedef int command_function(struct settings *settings, char **argv);

command_function command_run, command_lock, command_show, command_locks,
    command_sessions, command_slow, command_status, command_audit, command_ping,
    command_raw, command_watch, command_await, command_break, command_resize,
    command_unlock, command_renew, command_kill, command_drain, command_secret,
    command_top, command_bench;

/* help.c: the command line of a command, without its options. */
struct usage {
    const char *name;
    size_t words_min;
    size_t words_max;
    const char *takes; /* the words, for complaints */
    const char *help;  /* the page of -h */
};

/* NULL: there is no such command. */
const struct usage *usage_find(const char *name);

/* The page of holdfast -h. */
extern const char help_all[];

/* Prints one line to stderr, after "holdfast: ". Text of other programs must
 * pass escape_text() first. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* secret.c: sets the user and the secret of a connection, if there are any. The
 * first call reads the file. False after a complaint. */
bool secret_take(
    const struct settings *settings, struct holdfast_options *options);

/* tls.c: whether the options of TLS fit each other and the address. False after
 * a complaint. */
bool tls_fit(const struct settings *settings);

/* Sets the transport of a connection, if TLS is wanted. The first call
 * reads the files. False after a complaint. */
bool tls_take(
    const struct settings *settings, struct holdfast_options *options);

/* A hint if a broker does not greet: a TLS port waits for the client. Static;
 * "" if the port cannot be one. */
const char *tls_hint(const struct settings *settings);

/* settings.c: false after a complaint, if a value may be a secret: a URL or a
 * user as address, a file's text as its name. That complaint shows no value. Or
 * if the options of TLS do not fit. */
bool settings_fit(const struct settings *settings);

/* Whether the user and the file of the secret are both given, or none. False
 * after a complaint. */
bool secret_fit(const struct settings *settings);

/*
 * connect.c: sets address, user, secret and transport of a connection. False
 * after a complaint. After the first success it always succeeds, and reads
 * neither files nor arguments, except a given address.
 */
bool connect_options(
    const struct settings *settings, struct holdfast_options *options);

/* The address of all connections; a ref. */
const char *connect_address(const struct settings *settings);

/* connect.c: a connection that is greeted, within five seconds. The caller owns
 * it. NULL after a complaint. */
struct holdfast *connect_broker(const struct settings *settings);

/* As connect_broker(), with a session that is kept for `keep_ms`. */
struct holdfast *connect_kept(
    const struct settings *settings, uint64_t keep_ms);

/*
 * The text of `status`, or the reason why the connection ended. Returns `text`.
 */
const char *broker_trouble(const struct holdfast *h,
    enum holdfast_status status, char *text, size_t text_bytes);

/* order.c: sends `line` and waits for the answer. Returns the exit status;
 * complains unless it is STATUS_FINE. The caller destroys *h. */
int order_give(const struct settings *settings, const char *what,
    const char *line, uint64_t timeout_ms, struct holdfast **h,
    struct holdfast_event *event);

/* Time for the answer to a request that does not wait. */
#define ORDER_MS 15000

/* The largest fence. */
#define FENCE_MAX 9007199254740991u

/* Complains about an ERR; `more` follows its text. */
void complain_refused(
    const char *what, const struct holdfast_event *event, const char *more);

/* A KEY has 1 to HOLDFAST_NAME_MAX bytes. False after a complaint. */
bool key_check(const char *command, const char *key);

#define KEY_WORD_BYTES (3 * HOLDFAST_NAME_MAX + 1)

/* The KEY as a word of the wire. False after a complaint. */
bool key_encode(
    const char *command, const char *key, char word[KEY_WORD_BYTES]);

#endif
