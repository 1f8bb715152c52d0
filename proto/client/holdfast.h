/*
 * The client library of Holdfast: locks by name from a broker.
 *
 * Link with libholdfast.a; nothing but libc is needed, unless it is to speak
 * TLS: see holdfast_tls.h. The library starts no thread, installs no signal
 * handler, never raises SIGPIPE and keeps its descriptor close-on-exec.
 * Different connections are independent of each other; one connection belongs
 * to one thread at a time.
 *
 * Two ways to use it:
 *
 *   Without blocking, from any loop of one's own:
 *
 *     holdfast_create("127.0.0.1:4653", &h);
 *     loop:
 *         poll holdfast_fd(h) for holdfast_events(h), for at most
 *             holdfast_timeout_ms(h)
 *         holdfast_process(h, revents)        (also when the time is over: 0)
 *         while (holdfast_next(h, &event))
 *             act on the event
 *
 *   With blocking, for programs that have nothing else to do:
 *
 *     holdfast_create("127.0.0.1:4653", &h);
 *     holdfast_connect_wait(h, 5000);
 *     holdfast_lock(h, "job", NULL, &hold);
 *         work, and now and then holdfast_poll(h, 0) and holdfast_next()
 *     holdfast_unlock(h, &hold);
 *     holdfast_destroy(&h);
 *
 * A hold can be trusted until its deadline, which the library keeps by itself.
 * It asks the broker at a third of the remaining time. It counts each answer
 * from the sending of the question, never from its arrival. So a program that
 * is cut off silently still learns of its loss (HOLDFAST_DEADLINE), as long as
 * it calls holdfast_process() in time. A resource that must be safe against a
 * stopped process compares the fence at each write.
 *
 * After HOLDFAST_DEADLINE nothing of the hold can be trusted, but the broker
 * may have it still, and renew it: where the session goes on, give it back as
 * any other. A new request for the lock enters it once more instead.
 *
 * A session that is kept (keep_ms of struct holdfast_options) outlives its
 * connection. If that drops, or the broker drains, the library connects by
 * itself to the next of its addresses. It resumes the session there, claims its
 * holds, and repeats its waiting requests, which keep their places. The program
 * sees HOLDFAST_AWAY and HOLDFAST_BACK, HOLDFAST_LOST for what could not be
 * claimed, and the answers to its requests under the numbers that they had. A
 * hold can be trusted until its deadline meanwhile, and nothing but the answer
 * of a broker moves that on.
 *
 * A connection belongs to the process that created it. In a child of fork(2)
 * the library closes the child's copy (pthread_atfork): the session goes on in
 * the parent, and ends with it, however long the child lives. In the child
 * calls return HOLDFAST_NOT_CONNECTED, holdfast_deadline_ms() is 0, the next
 * event is HOLDFAST_CLOSED, and holdfast_reason() says why. A child that needs
 * locks creates a connection of its own; daemon(3) comes before
 * holdfast_create(). A child made by _Fork(3) or clone(2) keeps its copy, and
 * with it the parent's locks: close holdfast_fd() there.
 *
 * All times are milliseconds of CLOCK_BOOTTIME (holdfast_now_ms()), which runs
 * on while the machine sleeps. The clock of poll() does not. On machines that
 * sleep, cap its time at a second or so, or use a timerfd of CLOCK_BOOTTIME.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HOLDFAST_NAME_MAX  255 /* bytes of a lock's name */
#define HOLDFAST_OWNER_MAX 32  /* bytes of an owner */
#define HOLDFAST_NOTE_MAX  128 /* bytes of a note */
#define HOLDFAST_WORD_MAX  64  /* bytes of a session's name, for people */
#define HOLDFAST_NAMES_MAX 16  /* names in one request for a lock */

#define HOLDFAST_USER_MAX   64  /* bytes of a user */
#define HOLDFAST_SECRET_MAX 255 /* bytes of that one's secret */

#define HOLDFAST_KEEP_MAX_MS 3600000 /* the longest that a session is kept */

#define HOLDFAST_HEARTBEAT_MIN_MS 100
#define HOLDFAST_HEARTBEAT_MAX_MS 3600000

#define HOLDFAST_FOREVER UINT64_MAX /* a wait without an end */

/* One session with a broker, over one connection at a time. */
struct holdfast;

enum holdfast_status {
    HOLDFAST_SUCCESS,
    HOLDFAST_BAD_ADDRESS,   /* not understood, or too many */
    HOLDFAST_NO_HOST,       /* the host's name is not known (now) */
    HOLDFAST_NO_MEMORY,     /* or no descriptor */
    HOLDFAST_BAD_ARGUMENT,  /* empty, too long, or with bytes that cannot be */
    HOLDFAST_NOT_CONNECTED, /* the connection is over; holdfast_reason() */
    HOLDFAST_TIMED_OUT,     /* a blocking call had no answer in its time */
    HOLDFAST_REFUSED,       /* the broker answered ERR */
    HOLDFAST_FULL,          /* too much that was not sent yet */
};

/* A sentence without a full stop; static. */
const char *holdfast_status_text(enum holdfast_status status);

enum holdfast_kind {
    HOLDFAST_HELLO,    /* the first broker's greeting; once, first */
    HOLDFAST_OK,       /* final answer to a request */
    HOLDFAST_ERR,      /* final answer to a request; word: the code */
    HOLDFAST_ITEM,     /* part of the answer to a request */
    HOLDFAST_QUEUED,   /* a lock asked for with progress; position= */
    HOLDFAST_LOST,     /* a hold has ended; reason= */
    HOLDFAST_JEOPARDY, /* the renewal of a hold is late; still held */
    HOLDFAST_SAFE,     /* it is well again */
    HOLDFAST_DEADLINE, /* a hold's deadline is about to pass without word */
    HOLDFAST_DRAIN,    /* the broker will go; grace_ms= */
    HOLDFAST_BYE,      /* the broker closes, and all is over; word: why */
    HOLDFAST_CLOSED,   /* the connection is over; always the last event */
    HOLDFAST_AWAY,     /* of a session that is kept: no broker serves it now */
    HOLDFAST_BACK,     /* one serves it again, and has all that it holds */
    HOLDFAST_HELD,     /* a watched lock is held; name=, owner=, note= */
    HOLDFAST_FREE,     /* nobody holds a watched lock */
};

/* `key=value` of a line, decoded. `len` is without the NUL behind `value`. */
struct holdfast_pair {
    const char *key;
    const char *value;
    size_t len;
};

/*
 * One thing that happened. The pointers are good until the next call with the
 * same connection, except for holdfast_event_value() and
 * holdfast_event_number().
 */
struct holdfast_event {
    enum holdfast_kind kind;
    uint64_t request; /* that this answers, or that took the hold; 0: none */
    const char *word; /* lock's name, ERR's code, BYE's reason; or "" */
    size_t word_len;
    uint64_t fence;       /* 0: none told; of several names: the first's */
    uint64_t ttl_ms;      /* as the broker told it */
    uint64_t deadline_ms; /* OK of a lock, DEADLINE; else 0 */
    const struct holdfast_pair *pairs;
    size_t pair_count;
    const char *text; /* for people; or "" */
};

/* The value of `key` (ref into the event), NULL where it is absent. */
const char *holdfast_event_value(
    const struct holdfast_event *event, const char *key);

/* False where `key` is absent or not a decimal number. */
bool holdfast_event_number(
    const struct holdfast_event *event, const char *key, uint64_t *value);

/*
 * The fences of the names of one request, in their order, from the OK to it.
 * Returns how many there are, of which at most `max` are filled in; 0: none.
 */
size_t holdfast_event_fences(
    const struct holdfast_event *event, uint64_t *fences, size_t max);

/*
 * Creates a connection and begins to connect. `address` is "HOST:PORT",
 * "[V6]:PORT", "HOST" (port 4653, or that of the transport) or a socket's path
 * (with a '/' in it). It may be several of these with commas between them:
 * brokers before the same Redis. They are tried in turn, beginning with any. A
 * host that is a name is looked up here, which may block as getaddrinfo() does;
 * numbers and paths never block. Of several addresses those whose name is not
 * known now are left out. Failing to connect to any is told by HOLDFAST_CLOSED.
 * The caller owns *out; it is NULL after an error.
 */
enum holdfast_status holdfast_create(
    const char *address, struct holdfast **out);

/*
 * A layer between the library and its socket: TLS, from
 * holdfast_tls_transport() of holdfast_tls.h. For those who make another one:
 *
 * A link is one connection, on a socket that is connected and does not block.
 * The socket is the library's, and outlives the link. No function blocks,
 * raises SIGPIPE, or keeps what it is given for longer than the call, but for
 * the socket. Of a link that is broken, or at its end, nothing is asked but
 * why() and destroy(); and read(), where it was write() or finish() that broke.
 */
enum holdfast_moved {
    HOLDFAST_MOVED_DONE,        /* of a read or write: some bytes at least */
    HOLDFAST_MOVED_WANTS_READ,  /* again, when the socket can be read */
    HOLDFAST_MOVED_WANTS_WRITE, /* again, when it can be written */
    HOLDFAST_MOVED_END,         /* of shake and read: the peer has closed */
    HOLDFAST_MOVED_BROKEN,      /* for good; why() */
};

struct holdfast_transport {
    const void *context; /* ref, for create() */
    const char *port;    /* ref: of addresses that have none */
    /* `host` is what the address says, a name or a number. NULL: no memory. */
    void *(*create)(const void *context, int fd, const char *host);
    /* The handshake before any read or write, up to DONE. */
    enum holdfast_moved (*shake)(void *link);
    enum holdfast_moved (*read)(
        void *link, char *out, size_t room, size_t *got);
    /* After a want the same bytes are given again, from any place, and maybe
     * more behind them. */
    enum holdfast_moved (*write)(
        void *link, const char *bytes, size_t len, size_t *sent);
    /* All has been written, and no more is to be; the peer is told so. Its
     * input is still read. */
    enum holdfast_moved (*finish)(void *link);
    /* Whether there is something to read that no poll() tells of. */
    bool (*pending)(const void *link);
    /* Why it is broken, for people; good until it is destroyed. */
    const char *(*why)(const void *link);
    /* Tells the peer that it was no accident, if there is room to say so. */
    void (*destroy)(void *link);
};

/* Options of a session. All but the address may be 0 or NULL. */
struct holdfast_options {
    const char *address; /* as of holdfast_create() */
    const char *name;    /* of the session, for people */
    /*
     * For how long what the session holds and waits for outlives a connection.
     * 0: nothing does, and the end of the connection is the end of all. The
     * locks of a killed process stay taken for this time. It is also added to
     * the time after which a silent host is given up. Half a minute is a good
     * value: it lets a broker restart.
     */
    uint64_t keep_ms;
    uint64_t heartbeat_ms; /* the broker asks for signs of life; 0: not */
    /*
     * The user, for a broker that has users; both or neither. They are said on
     * each connection, and nothing else is until the broker has taken them. If
     * it does not, that is the end: holdfast_is_refused().
     */
    const char *user;
    const char *secret;
    /*
     * The transport for all addresses, none of which is a path then; NULL: the
     * socket alone. Not copied: it outlives the connection. Connections may
     * share one.
     */
    const struct holdfast_transport *transport;
};

/*
 * holdfast_create() with options, which are copied. A broker that does not know
 * of kept sessions makes keep_ms 0.
 */
enum holdfast_status holdfast_create_with(
    const struct holdfast_options *options, struct holdfast **out);

/*
 * Closes and frees; *h becomes NULL, and may be. The broker releases the holds
 * of the session at once. A kept session may have no broker now, or no room in
 * the socket to say so: then its holds end after keep_ms. In a child of fork(2)
 * this frees memory and ends nothing; see above.
 */
void holdfast_destroy(struct holdfast **h);

/*
 * The descriptor to poll, one at a time. It changes while connecting, and while
 * a session that is kept moves: ask before each poll(). -1: there is none now.
 */
int holdfast_fd(const struct holdfast *h);

/*
 * The events to poll for: POLLIN, POLLOUT. 0 once closed. By a transport it may
 * be either of them, whatever there is to be sent: ask before each poll().
 */
short holdfast_events(const struct holdfast *h);

/*
 * How long to poll for, in ms, until holdfast_process() is due for a deadline
 * of its own; -1: for as long as it takes.
 */
int holdfast_timeout_ms(const struct holdfast *h);

/*
 * Reads, writes and looks at the deadlines; never blocks. `revents` is what
 * poll() said, 0 where the time was over. It stops reading while more than some
 * thousand events wait for holdfast_next(); the blocking calls below do not.
 */
void holdfast_process(struct holdfast *h, short revents);

/* The next thing that happened; false: nothing (more) yet. */
bool holdfast_next(struct holdfast *h, struct holdfast_event *event);

/* Of the greeting; "" before it. Refs into the connection. */
const char *holdfast_session(const struct holdfast *h);
const char *holdfast_server(const struct holdfast *h);

/*
 * For how long the session outlives a connection, as the broker has agreed to;
 * 0: not at all, or it has not answered yet.
 */
uint64_t holdfast_keep_ms(const struct holdfast *h);

/* Why the connection is over, for people; "" while it is not. */
const char *holdfast_reason(const struct holdfast *h);

/* Whether it is over as the broker does not take the user and secret. */
bool holdfast_is_refused(const struct holdfast *h);

/* CLOCK_BOOTTIME in ms. */
uint64_t holdfast_now_ms(const struct holdfast *h);

/* Options of a request for a lock. NULL, or this, asks for nothing special: */
#define HOLDFAST_LOCK_DEFAULTS                                        \
    {                                                                 \
        HOLDFAST_FOREVER, 0, NULL, NULL, false, false, 0, 0, 0, false \
    }

struct holdfast_lock_options {
    uint64_t wait_ms;  /* 0: do not wait; HOLDFAST_FOREVER: until granted */
    uint64_t lease_ms; /* 0: renewed by the broker while the session lives */
    const char *owner; /* ref; NULL: the session's default owner */
    const char *note;  /* ref; for people; NULL: none */
    bool progress;     /* tell HOLDFAST_QUEUED while waiting */
    bool shared;       /* together with others that share it */
    uint64_t limit;    /* so many permits there are; 0: it is no semaphore */
    uint64_t permits;  /* so many of them; 0: one */
    uint64_t delay_ms; /* nobody is granted it for so long after I die */
    bool no_deadlock;  /* do not look whether this wait can end */
};

/*
 * Requests. Each returns HOLDFAST_SUCCESS and the number of the request, by
 * which its answer will be known, or an error and nothing is sent. They may be
 * sent before the greeting has come, and without awaiting answers.
 *
 * While no broker serves a kept session they are taken as well, and sent to the
 * next one. So are those that had no answer when the connection dropped, the
 * wait of a lock being what is left of it; but for holdfast_submit(), which
 * gets ERR INDOUBT then.
 *
 * Names and words are any bytes but NUL; they are encoded here.
 */
enum holdfast_status holdfast_submit_lock(struct holdfast *h, const char *name,
    const struct holdfast_lock_options *options, uint64_t *request);

/*
 * Several names, at most HOLDFAST_NAMES_MAX: all or none. The OK has the fence
 * of each, holdfast_event_fences(). Each is given back by its own name.
 */
enum holdfast_status holdfast_submit_lock_all(struct holdfast *h,
    const char *const *names, size_t name_count,
    const struct holdfast_lock_options *options, uint64_t *request);

/*
 * Ends the wait of the lock that was asked for as `target`, which itself gets
 * ERR CANCELLED, or OK where that was faster.
 */
enum holdfast_status holdfast_submit_cancel(
    struct holdfast *h, uint64_t target, uint64_t *request);

/*
 * Gives one hold back. `fence` 0: whichever is held. A hold that is on its way
 * back no longer has a deadline, nor has it after ERR INDOUBT: the broker goes
 * on giving it back.
 */
enum holdfast_status holdfast_submit_unlock(struct holdfast *h,
    const char *name, const char *owner, uint64_t fence, uint64_t *request);

/* A new end for a lock taken with `lease_ms`. */
enum holdfast_status holdfast_submit_renew(struct holdfast *h, const char *name,
    const char *owner, uint64_t fence, uint64_t lease_ms, uint64_t *request);

/*
 * Hear of a lock from now on, or no more: HOLDFAST_HELD and HOLDFAST_FREE,
 * first what it is now, then each change, though of quick ones maybe only the
 * last. A kept session watches on at the next broker, and hears there what it
 * is now where that differs from what it has heard.
 */
enum holdfast_status holdfast_submit_watch(
    struct holdfast *h, const char *name, uint64_t *request);
enum holdfast_status holdfast_submit_unwatch(
    struct holdfast *h, const char *name, uint64_t *request);

/*
 * Any other request as it goes over the wire, without tag and LF, words encoded
 * by holdfast_encode(). Locks that are taken this way are not known to the
 * library: no deadline is kept for them.
 */
enum holdfast_status holdfast_submit(
    struct holdfast *h, const char *text, uint64_t *request);

/*
 * Percent-encodes `len` bytes into a word of the wire, with a NUL. Returns its
 * length, or 0 where `out_bytes` are too few (three for each byte, and one, are
 * always enough).
 */
size_t holdfast_encode(
    const char *bytes, size_t len, char *out, size_t out_bytes);

/*
 * Decodes in place; returns the new length, with a NUL after it, or SIZE_MAX
 * where a '%' is not followed by two hex digits. `word` has room for its NUL.
 */
size_t holdfast_decode(char *word, size_t len);

/*
 * How long before a hold's deadline HOLDFAST_DEADLINE is told. Default: a tenth
 * of what the broker promised, at least 20 ms and at most 500 ms.
 */
void holdfast_set_margin(struct holdfast *h, uint64_t margin_ms);

/* A lock that is held. Filled in by holdfast_lock(); plain data. */
struct holdfast_hold {
    char name[HOLDFAST_NAME_MAX + 1];
    char owner[HOLDFAST_OWNER_MAX + 1]; /* "": the session's default */
    uint64_t fence;
    uint64_t count; /* how often this owner holds it */
    uint64_t ttl_ms;
    uint64_t deadline_ms; /* when it was taken; it moves on */
};

/*
 * Until when a hold can be trusted by what is known now; 0 where it cannot: it
 * is lost, given back, overdue, or its session is over.
 */
uint64_t holdfast_deadline_ms(
    const struct holdfast *h, const struct holdfast_hold *hold);

/*
 * The blocking calls. They take their own answer out of the queue of
 * holdfast_next(), and leave the rest there. Call holdfast_next() now and then:
 * it reports losses. Call it before a poll() of your own, which knows nothing
 * of that queue.
 */

/* Polls for at most `timeout_ms` (-1: no end) and processes once. */
void holdfast_poll(struct holdfast *h, int timeout_ms);

/*
 * Waits for the final answer to `request`. HOLDFAST_SUCCESS and
 * HOLDFAST_REFUSED fill in *event. HOLDFAST_FOREVER waits without end.
 */
enum holdfast_status holdfast_wait(struct holdfast *h, uint64_t request,
    uint64_t timeout_ms, struct holdfast_event *event);

/* Waits for the greeting, and until the broker has taken the user, if any. */
enum holdfast_status holdfast_connect_wait(
    struct holdfast *h, uint64_t timeout_ms);

/*
 * Takes a lock, waiting as `options` say. After HOLDFAST_REFUSED the code is
 * holdfast_error(). After HOLDFAST_TIMED_OUT (the broker answered nothing ten
 * seconds after the wait) it is unknown whether the lock is held: destroy the
 * connection, which releases it.
 */
enum holdfast_status holdfast_lock(struct holdfast *h, const char *name,
    const struct holdfast_lock_options *options, struct holdfast_hold *hold);

/* Takes all of several names, or none: holds[0 .. name_count] are filled in. */
enum holdfast_status holdfast_lock_all(struct holdfast *h,
    const char *const *names, size_t name_count,
    const struct holdfast_lock_options *options, struct holdfast_hold *holds);

/* Gives it back; waits for the answer for at most ten seconds. */
enum holdfast_status holdfast_unlock(
    struct holdfast *h, const struct holdfast_hold *hold);

/* Gives a hold that was taken with a lease a new end. */
enum holdfast_status holdfast_renew(
    struct holdfast *h, struct holdfast_hold *hold, uint64_t lease_ms);

/* A round trip; *microseconds says how long it took. */
enum holdfast_status holdfast_ping(
    struct holdfast *h, uint64_t timeout_ms, uint64_t *microseconds);

/* The code of the last ERR that a blocking call met, "BUSY" for one; or "". */
const char *holdfast_error(const struct holdfast *h);

#ifdef __cplusplus
}
#endif

#endif
