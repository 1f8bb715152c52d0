/*
 * The client library of Holdfast: locks by name from a broker.
 *
 * Link with libholdfast, which needs libc only; for TLS see holdfast_tls.h.
 * The library starts no thread, installs no signal handler, and never raises
 * SIGPIPE. Its descriptors are close-on-exec. One thread at a time may use a
 * connection; different connections are independent.
 *
 * Without blocking, from any loop:
 *
 *     holdfast_create("127.0.0.1:4653", &h);
 *     loop:
 *         poll holdfast_fd(h) for holdfast_events(h), for at most
 *             holdfast_timeout_ms(h)
 *         holdfast_process(h, revents)        (0 after the time-out)
 *         while (holdfast_next(h, &event))
 *             act on the event
 *
 * With blocking calls:
 *
 *     holdfast_create("127.0.0.1:4653", &h);
 *     holdfast_connect_wait(h, 5000);
 *     holdfast_lock(h, "job", NULL, &hold);
 *         work, and now and then holdfast_poll(h, 0) and holdfast_next()
 *     holdfast_unlock(h, &hold);
 *     holdfast_destroy(&h);
 *
 * Deadlines. A hold can be trusted until its deadline. The library moves the
 * deadline on: it asks the broker at a third of the time, and counts an answer
 * from the sending of the question. A program that is cut off still learns of
 * its loss (HOLDFAST_DEADLINE), if it calls holdfast_process() in time. A
 * stopped process does not, so a resource must compare the fence at each write.
 *
 * After HOLDFAST_DEADLINE the hold cannot be trusted, but the broker may still
 * renew it. If the session goes on, unlock the hold, or lock it again.
 *
 * Kept sessions. A session with keep_ms outlives its connection. If the
 * connection drops or the broker drains, the library connects to the next
 * address. It resumes the session, claims its holds, and repeats its requests,
 * which keep their numbers and their places in queues. The program sees
 * HOLDFAST_AWAY, HOLDFAST_BACK, and HOLDFAST_LOST for a hold that is gone.
 * Deadlines count meanwhile: only the answer of a broker moves them on.
 *
 * Fork. A connection belongs to the process that created it. In a child of
 * fork(2) the library closes the child's copy (pthread_atfork), and the session
 * goes on in the parent. In the child calls return HOLDFAST_NOT_CONNECTED,
 * holdfast_deadline_ms() is 0, and the next event is HOLDFAST_CLOSED. A child
 * must create its own connection, and daemon(3) must come before
 * holdfast_create(). A child of _Fork(3) or clone(2) must close holdfast_fd(),
 * or it keeps the parent's locks.
 *
 * Time. All times are milliseconds of CLOCK_BOOTTIME (holdfast_now_ms()), which
 * counts while the machine sleeps. The clock of poll() does not: on a machine
 * that sleeps, poll for at most a second, or use a timerfd of CLOCK_BOOTTIME.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a text, and names of a request, at most. */
#define HOLDFAST_NAME_MAX   255 /* of a lock's name */
#define HOLDFAST_OWNER_MAX  64
#define HOLDFAST_NOTE_MAX   128
#define HOLDFAST_WORD_MAX   64 /* of a session's name */
#define HOLDFAST_USER_MAX   64
#define HOLDFAST_SECRET_MAX 255
#define HOLDFAST_NAMES_MAX  16

#define HOLDFAST_KEEP_MAX_MS      3600000
#define HOLDFAST_HEARTBEAT_MS     2000 /* for programs with a loop */
#define HOLDFAST_HEARTBEAT_MIN_MS 100
#define HOLDFAST_HEARTBEAT_MAX_MS 3600000

#define HOLDFAST_FOREVER UINT64_MAX /* a wait without end */

/* One session with a broker, over one connection at a time. */
struct holdfast;

enum holdfast_status {
    HOLDFAST_SUCCESS,
    HOLDFAST_BAD_ADDRESS,   /* malformed, or too many addresses */
    HOLDFAST_NO_HOST,       /* the host's name cannot be resolved */
    HOLDFAST_NO_MEMORY,     /* or no descriptor */
    HOLDFAST_BAD_ARGUMENT,  /* empty, too long, or with a forbidden byte */
    HOLDFAST_NOT_CONNECTED, /* the connection has ended; holdfast_reason() */
    HOLDFAST_TIMED_OUT,     /* a blocking call got no answer in time */
    HOLDFAST_REFUSED,       /* the broker answered ERR */
    HOLDFAST_FULL,          /* too many bytes are not sent yet */
};

/* A phrase for people; static. */
const char *holdfast_status_text(enum holdfast_status status);

enum holdfast_kind {
    HOLDFAST_HELLO,    /* the greeting of the first broker; the first event */
    HOLDFAST_OK,       /* final answer to a request */
    HOLDFAST_ERR,      /* final answer to a request; word: the code */
    HOLDFAST_ITEM,     /* part of the answer to a request */
    HOLDFAST_QUEUED,   /* a lock requested with progress waits; position= */
    HOLDFAST_LOST,     /* a hold has ended; reason= */
    HOLDFAST_JEOPARDY, /* the renewal of a hold is late; still held */
    HOLDFAST_SAFE,     /* the hold is renewed again */
    HOLDFAST_DEADLINE, /* a hold's deadline is near, and no answer came */
    HOLDFAST_DRAIN,    /* the broker will stop; grace_ms= */
    HOLDFAST_BYE,      /* the broker ends the session; word: why */
    HOLDFAST_CLOSED,   /* the connection has ended; always the last event */
    HOLDFAST_AWAY,     /* no broker serves the kept session now */
    HOLDFAST_BACK,     /* a broker serves it again, and has all its holds */
    HOLDFAST_HELD,     /* a watched lock is held; name=, owner=, note= */
    HOLDFAST_FREE,     /* a watched lock is free */
    HOLDFAST_MEMBERS,  /* the list of members begins (begin=), or is complete */
    HOLDFAST_JOINED,   /* a member; session=, name=, owner=, note= */
    HOLDFAST_CHANGED,  /* it has another note, fewer permits, or is detached */
    HOLDFAST_LEFT,     /* it has left */
    HOLDFAST_WANTED,   /* a hold with wanted: others wait; waiters= */
};

/* A decoded `key=value` of a line. `len` does not count the NUL of `value`. */
struct holdfast_pair {
    const char *key;
    const char *value;
    size_t len;
};

/* An event. The pointers are valid until the next call with the connection;
 * holdfast_event_value(), _number() and _fences() do not count. */
struct holdfast_event {
    enum holdfast_kind kind;
    uint64_t request; /* the request answered, or that took the hold; or 0 */
    const char *word; /* lock's name, ERR's code, BYE's reason; or "" */
    size_t word_len;
    uint64_t fence;       /* of the first name; 0: none */
    uint64_t ttl_ms;      /* as sent by the broker */
    uint64_t deadline_ms; /* OK of a lock, DEADLINE; else 0 */
    const struct holdfast_pair *pairs;
    size_t pair_count;
    const char *text; /* for people; or "" */
};

/* The value of `key`, a ref into the event; NULL: the event has no such key. */
const char *holdfast_event_value(
    const struct holdfast_event *event, const char *key);

/* False: the event has no `key`, or its value is no decimal number. */
bool holdfast_event_number(
    const struct holdfast_event *event, const char *key, uint64_t *value);

/* The fences in the OK of a LOCK, in the order of its names. Returns their
 * number, of which at most `max` are filled in; 0: none. */
size_t holdfast_event_fences(
    const struct holdfast_event *event, uint64_t *fences, size_t max);

/*
 * Creates a connection and begins to connect. `address` is "HOST:PORT",
 * "[V6]:PORT", "HOST" (port 4653, or the transport's), or the path of a socket,
 * with a '/'. Several addresses, with commas, are brokers of the same Redis;
 * the library tries them in turn, from a random one on. It resolves names in
 * this call, which blocks as getaddrinfo() does, and leaves out a name that
 * cannot be resolved. HOLDFAST_CLOSED reports that no address could be reached.
 * The caller owns *out; it is NULL after an error.
 */
enum holdfast_status holdfast_create(
    const char *address, struct holdfast **out);

/*
 * A layer between the library and its socket, such as TLS: see
 * holdfast_tls_transport() in holdfast_tls.h. For another transport:
 *
 * A link is one connection, on a connected socket that does not block. The
 * library owns the socket, which outlives the link. No function may block,
 * raise SIGPIPE, or keep an argument, except the socket. After END or BROKEN
 * the library calls only why() and destroy(); also read(), if write() or
 * finish() returned BROKEN.
 */
enum holdfast_moved {
    HOLDFAST_MOVED_DONE,        /* of read and write: at least one byte */
    HOLDFAST_MOVED_WANTS_READ,  /* call again when the socket is readable */
    HOLDFAST_MOVED_WANTS_WRITE, /* call again when the socket is writable */
    HOLDFAST_MOVED_END,         /* of shake and read: the peer has closed */
    HOLDFAST_MOVED_BROKEN,      /* an error; see why() */
};

struct holdfast_transport {
    const void *context; /* ref, for create() */
    const char *port;    /* ref: the default port */
    /* `host` is the name or number in the address. NULL: no memory. */
    void *(*create)(const void *context, int fd, const char *host);
    /* The handshake before any read or write, until DONE. */
    enum holdfast_moved (*shake)(void *link);
    enum holdfast_moved (*read)(
        void *link, char *out, size_t room, size_t *got);
    /* After a want the next call has the same bytes, maybe at another place and
     * with more after them. */
    enum holdfast_moved (*write)(
        void *link, const char *bytes, size_t len, size_t *sent);
    /* Tells the peer that no more bytes follow. Reading goes on. */
    enum holdfast_moved (*finish)(void *link);
    /* Whether read() has bytes that poll() does not show. */
    bool (*pending)(const void *link);
    /* The error, for people; valid until destroy(). */
    const char *(*why)(const void *link);
    /* Closes in an orderly way, if the socket has room. */
    void (*destroy)(void *link);
};

/* Options of a session. All but the address may be 0 or NULL. */
struct holdfast_options {
    const char *address; /* as of holdfast_create() */
    const char *name;    /* of the session, for people */
    /*
     * How long the session, with its holds and waits, outlives a connection; 0:
     * it ends with its connection. The locks of a killed process stay taken for
     * this time. It also adds to the time after which the broker gives up a
     * silent host. 30 s lets a broker restart.
     */
    uint64_t keep_ms;
    /*
     * The broker sends PINGs at this pace, which holdfast_process() answers.
     * After three of them without a byte the session ends, with its locks. 0:
     * none, since a program may work for longer between two calls. A program
     * with a loop uses HOLDFAST_HEARTBEAT_MS. Then the locks of a stopped
     * process, or of a host that is cut off, are free after 6 s.
     */
    uint64_t heartbeat_ms;
    /*
     * User and secret, for a broker with users; both or neither. AUTH comes
     * first on each connection. If the broker refuses it, the connection ends:
     * holdfast_is_refused().
     */
    const char *user;
    const char *secret;
    /* The transport of all addresses, which must not be paths; NULL: none. A
     * ref that outlives the connection; connections may share it. */
    const struct holdfast_transport *transport;
    uint64_t reserved[4]; /* 0 */
};

/* holdfast_create() with options, which are copied. A broker without kept
 * sessions makes keep_ms 0. */
enum holdfast_status holdfast_create_with(
    const struct holdfast_options *options, struct holdfast **out);

/*
 * Closes and frees; *h becomes NULL, and may be NULL. The broker releases the
 * holds at once. But if no broker serves a kept session now, or the socket has
 * no room, the holds end after keep_ms. In a child of fork(2) this frees memory
 * only.
 */
void holdfast_destroy(struct holdfast **h);

/* The descriptor to poll; -1: none now. It changes while the library connects,
 * so ask before each poll(). */
int holdfast_fd(const struct holdfast *h);

/* The events to poll for: POLLIN, POLLOUT, both, or 0 once closed. Ask before
 * each poll(): with a transport they do not tell which way bytes go. */
short holdfast_events(const struct holdfast *h);

/* The time in ms until holdfast_process() is due; -1: no limit. */
int holdfast_timeout_ms(const struct holdfast *h);

/*
 * Reads, writes and checks deadlines; never blocks. `revents` is from poll(),
 * or 0 after the time-out. Beyond some thousand events for holdfast_next() it
 * stops reading; the blocking calls do not.
 */
void holdfast_process(struct holdfast *h, short revents);

/* The next event; false: none now. */
bool holdfast_next(struct holdfast *h, struct holdfast_event *event);

/* The session's ID and the broker's version, from the greeting; "" before it.
 * Refs into the connection. */
const char *holdfast_session(const struct holdfast *h);
const char *holdfast_server(const struct holdfast *h);

/* keep_ms as agreed by the broker; 0: the session is not kept, or the broker
 * has not answered yet. */
uint64_t holdfast_keep_ms(const struct holdfast *h);

/* Why the connection has ended, for people; "" before. */
const char *holdfast_reason(const struct holdfast *h);

/* Whether it has ended because the broker refused user and secret. */
bool holdfast_is_refused(const struct holdfast *h);

/* CLOCK_BOOTTIME in ms. */
uint64_t holdfast_now_ms(const struct holdfast *h);

/*
 * Makes an owner that no other lock of the session has, such as "~7". Two locks
 * of one owner on one name are one hold, entered twice. So give each task of a
 * program its own owner, in the options and in the calls about the hold. No
 * owner that a program names itself may begin with "~".
 */
void holdfast_new_owner(struct holdfast *h, char owner[HOLDFAST_OWNER_MAX + 1]);

/* The defaults of struct holdfast_lock_options, as for NULL. */
#define HOLDFAST_LOCK_DEFAULTS                                                \
    {                                                                         \
        HOLDFAST_FOREVER, 0, NULL, NULL, false, false, 0, 0, 0, false, false, \
            false, false,                                                     \
        {                                                                     \
            0, 0, 0, 0                                                        \
        }                                                                     \
    }

struct holdfast_lock_options {
    uint64_t wait_ms;  /* 0: no wait; HOLDFAST_FOREVER: until granted */
    uint64_t lease_ms; /* 0: renewed by the broker while the session lives */
    const char *owner; /* ref; NULL: the session's default owner */
    const char *note;  /* ref; for people; NULL: none */
    bool progress;     /* report HOLDFAST_QUEUED while waiting */
    bool shared;       /* a shared lock */
    uint64_t limit;    /* the permits of the semaphore; 0: no semaphore */
    uint64_t permits;  /* the permits to take; 0: one */
    uint64_t delay_ms; /* lock-delay after the death of this client */
    bool no_deadlock;  /* without deadlock detection */
    bool wanted;       /* report HOLDFAST_WANTED when others wait */
    bool upgradable;   /* beside shared holds. An exclusive lock of this owner
                        * is its upgrade then: a second hold with its own fence
                        * and unlock */
    bool tree;         /* names are paths: exclude the whole above, and parts */
    uint64_t reserved[4]; /* 0 */
};

/*
 * Requests. Each returns HOLDFAST_SUCCESS and the number of the request, which
 * its answer has too; or an error, and nothing is sent. They need not wait for
 * the greeting, nor for the answers to earlier requests.
 *
 * If no broker serves a kept session, the next broker gets the request. The
 * library also repeats requests without an answer when the connection drops. A
 * LOCK or AWAIT then waits for the rest of its wait. holdfast_submit() is not
 * repeated: it gets ERR INDOUBT.
 *
 * Names and words may have any bytes but NUL. The library encodes them.
 */
enum holdfast_status holdfast_submit_lock(struct holdfast *h, const char *name,
    const struct holdfast_lock_options *options, uint64_t *request);

/* Requests all of several names, or none. Each has its own unlock. */
enum holdfast_status holdfast_submit_lock_all(struct holdfast *h,
    const char *const *names, size_t name_count,
    const struct holdfast_lock_options *options, uint64_t *request);

/* Sets another note for a hold; `note` NULL: none. */
enum holdfast_status holdfast_submit_note(struct holdfast *h, const char *name,
    const char *owner, uint64_t fence, const char *note, uint64_t *request);

/*
 * Waits until nobody holds the lock, and takes nothing. OK has the fence of the
 * last grant, and its note=, if the broker knows them. `wait_ms`: 0 looks once;
 * HOLDFAST_FOREVER: no limit.
 */
enum holdfast_status holdfast_submit_await(
    struct holdfast *h, const char *name, uint64_t wait_ms, uint64_t *request);

/* Ends the wait of the LOCK or AWAIT with the number `target`. It gets ERR
 * CANCELLED, or OK if that was faster. */
enum holdfast_status holdfast_submit_cancel(
    struct holdfast *h, uint64_t target, uint64_t *request);

/* Releases one hold; `fence` 0: whatever its fence, and the upgrade before the
 * hold below it. From now on the hold has no
 * deadline. After ERR INDOUBT too: the broker continues the release. */
enum holdfast_status holdfast_submit_unlock(struct holdfast *h,
    const char *name, const char *owner, uint64_t fence, uint64_t *request);

/* holdfast_submit_unlock(), and nobody is granted the lock for `delay_ms`, at
 * most 24 hours, after the release. */
enum holdfast_status holdfast_submit_unlock_delayed(struct holdfast *h,
    const char *name, const char *owner, uint64_t fence, uint64_t delay_ms,
    uint64_t *request);

/*
 * Gives `permits` of a semaphore's hold back, and keeps the hold with the rest;
 * all of them release it. OK has count= and permits=, what is left. If the
 * connection ends before the answer, it gets ERR INDOUBT and is not repeated:
 * the hold has all its permits, or the rest.
 */
enum holdfast_status holdfast_submit_unlock_part(struct holdfast *h,
    const char *name, const char *owner, uint64_t fence, uint64_t permits,
    uint64_t *request);

/* Sets a new end for a hold. From then on the broker does not renew it. Until
 * the answer the deadline is that of the sooner end; after INDOUBT, UNAVAILABLE
 * or INTERNAL too. */
enum holdfast_status holdfast_submit_renew(struct holdfast *h, const char *name,
    const char *owner, uint64_t fence, uint64_t lease_ms, uint64_t *request);

/*
 * Begins watching a lock. HOLDFAST_HELD and HOLDFAST_FREE report its
 * state, then each change; of quick changes maybe only the last. A kept session
 * watches on at the next broker, which reports the state if it has changed.
 */
enum holdfast_status holdfast_submit_watch(
    struct holdfast *h, const char *name, uint64_t *request);

/* Begins watching each holder of a lock. The list of them comes first, between
 * two HOLDFAST_MEMBERS: begin=1, then members=N. It comes again after lost
 * messages, and at the next broker: an earlier list is void then. */
enum holdfast_status holdfast_submit_watch_members(
    struct holdfast *h, const char *name, uint64_t *request);

/* Ends either watch. */
enum holdfast_status holdfast_submit_unwatch(
    struct holdfast *h, const char *name, uint64_t *request);

/* Sends any other request, `text` without tag and LF; encode its words with
 * holdfast_encode(). The library keeps no deadlines of locks taken this way.
 * Use it for detached holds, such as `LOCK a lease=1h detached=1`: the library
 * does not repeat them, and their `fence` is in the event's keys. */
enum holdfast_status holdfast_submit(
    struct holdfast *h, const char *text, uint64_t *request);

/* Percent-encodes `len` bytes into a word of the wire, with a NUL. Returns its
 * length; 0: no room. 3 * len + 1 bytes are always enough. */
size_t holdfast_encode(
    const char *bytes, size_t len, char *out, size_t out_bytes);

/* Decodes in place, and adds a NUL, for which `word` has room. Returns the
 * length; SIZE_MAX: a '%' lacks its two hex digits. */
size_t holdfast_decode(char *word, size_t len);

/* Sets the time from HOLDFAST_DEADLINE to the deadline. Default: a tenth of the
 * ttl, at least 20 ms and at most 500 ms. */
void holdfast_set_margin(struct holdfast *h, uint64_t margin_ms);

/* A hold. Filled in by holdfast_lock(); plain data. */
struct holdfast_hold {
    char name[HOLDFAST_NAME_MAX + 1];
    char owner[HOLDFAST_OWNER_MAX + 1]; /* "": the session's default */
    uint64_t fence;
    uint64_t count; /* entries of this owner */
    uint64_t ttl_ms;
    uint64_t deadline_ms; /* at first; it moves on */
};

/* The present deadline of the hold; 0: the hold is lost, unlocked or overdue,
 * or the session has ended. */
uint64_t holdfast_deadline_ms(
    const struct holdfast *h, const struct holdfast_hold *hold);

/*
 * The blocking calls. They take their own answer out of the queue of
 * holdfast_next(), and leave the rest. Call holdfast_next() now and then, since
 * it reports losses; also before your own poll(), which does not see the queue.
 */

/* Polls for at most `timeout_ms` (-1: no limit) and processes once. */
void holdfast_poll(struct holdfast *h, int timeout_ms);

/* Waits for the final answer to `request`, at most `timeout_ms` or
 * HOLDFAST_FOREVER. HOLDFAST_SUCCESS and HOLDFAST_REFUSED fill in *event. */
enum holdfast_status holdfast_wait(struct holdfast *h, uint64_t request,
    uint64_t timeout_ms, struct holdfast_event *event);

/* Waits for the greeting, and the OK to AUTH, if there is a user. */
enum holdfast_status holdfast_connect_wait(
    struct holdfast *h, uint64_t timeout_ms);

/*
 * Takes a lock. HOLDFAST_REFUSED: the code is in holdfast_error().
 * HOLDFAST_TIMED_OUT: no answer came within ten seconds after the wait, and the
 * lock may be held; holdfast_destroy() releases it.
 */
enum holdfast_status holdfast_lock(struct holdfast *h, const char *name,
    const struct holdfast_lock_options *options, struct holdfast_hold *hold);

/* Takes all of several names, or none, into name_count holds. */
enum holdfast_status holdfast_lock_all(struct holdfast *h,
    const char *const *names, size_t name_count,
    const struct holdfast_lock_options *options, struct holdfast_hold *holds);

/* Releases the hold; waits at most ten seconds for the answer. */
enum holdfast_status holdfast_unlock(
    struct holdfast *h, const struct holdfast_hold *hold);

/* Releases the hold, and keeps the lock from everybody for `delay_ms`. */
enum holdfast_status holdfast_unlock_delayed(
    struct holdfast *h, const struct holdfast_hold *hold, uint64_t delay_ms);

/* Releases each of HOLDFAST_NAMES_MAX holds at most, by an UNLOCK of its own.
 * Returns the first trouble, in the order of the holds; the others are released
 * all the same. */
enum holdfast_status holdfast_unlock_all(
    struct holdfast *h, const struct holdfast_hold *holds, size_t hold_count);

/* Gives some permits of a semaphore's hold back, and keeps the rest. */
enum holdfast_status holdfast_unlock_part(
    struct holdfast *h, const struct holdfast_hold *hold, uint64_t permits);

/* Sets another note for a hold; `note` NULL: none. */
enum holdfast_status holdfast_note(
    struct holdfast *h, struct holdfast_hold *hold, const char *note);

/* Sets a new end for a hold, which has a lease from then on. */
enum holdfast_status holdfast_renew(
    struct holdfast *h, struct holdfast_hold *hold, uint64_t lease_ms);

/* Sends PING; *microseconds is the time of the round trip. */
enum holdfast_status holdfast_ping(
    struct holdfast *h, uint64_t timeout_ms, uint64_t *microseconds);

/* The code of the last ERR to a blocking call, such as "BUSY"; or "". */
const char *holdfast_error(const struct holdfast *h);

#ifdef __cplusplus
}
#endif

#endif
