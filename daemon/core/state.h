/*
 * The core's own state, for the files of daemon/core only.
 *
 * A *session* is a client's connection. A *ticket* is the standing of one owner
 * of one session with one lock, from the first LOCK to the last trace of it in
 * Redis; there is at most one for each (session, owner, lock). A *pending*
 * request is one that has not had its final reply. Requests on one ticket take
 * effect in the order sent: they queue at it, and the first is being served.
 *
 *              acquire             granted
 *     IDLE ------------> ASKING -------------> HELD
 *      ^ |                 | queued              |  \  UNLOCK, end of the
 *      | | nobody left     v          granted    |   \ session, deadline
 *      | +------> (gone)  WAITING ---------------+    \
 *      |                   | cancel, time-out          v
 *      +-------------------+----------------------> LEAVING
 *                     struck out of the record, or lease over
 *
 * Who changes what, from below: times.c, lock.c locks, owner.c owners,
 * session_table.c finds sessions, ages.c the lists by age, ticket.c tickets
 * (and it alone writes ticket->state), pending.c pending requests, source.c
 * counts connections, rights.c knows who may do what, leave.c strikes tickets
 * out, final.c answers requests, recent.c remembers what operators may ask
 * for. deadlock.c looks for circles of waits (by look_queue.c, looks.c and
 * probe.c).
 *
 * A ticket's requests are served by the loop in advance.c, by the rules of the
 * states in wait.c, hold.c and bundle.c. question.c asks Redis; the answers
 * come in acquire.c, grant.c, renew.c and release.c, and events in
 * ticket_event.c.
 *
 * Above these: watch.c, releases.c (what was given back of late), audit.c
 * (looks over all that is in Redis; finding.c tells of what it finds),
 * message.c (tells other brokers), session.c sessions, unattended.c their
 * tickets, auth.c, listing.c and top.c read, command.c turns request lines
 * into calls of these, session_time.c and core.c are on top.
 */
#ifndef HOLDFAST_CORE_STATE_H
#define HOLDFAST_CORE_STATE_H

#include "daemon/base/random.h"
#include "daemon/base/slab.h"
#include "daemon/base/slot.h"
#include "daemon/base/table.h"
#include "daemon/base/wheel.h"
#include "daemon/core/contention.h"
#include "daemon/core/core.h"
#include "daemon/core/spaces.h"
#include "proto/reply.h"
#include "proto/request.h"

#define NEVER WHEEL_NEVER

#define SHORT_ID_BYTES 8 /* of a session's id, for people */

/* " user=", and a user's name in quotes. */
#define AUTH_LOG_BYTES (6 + 4 * PROTO_USER_MAX + 3)

#define WATCH_PART     64     /* events of a session before it must read */
#define WATCH_TICKETS  512    /* that an inspection shows */
#define WATCH_RETRY_US 500000 /* where Redis cannot be asked */

/* What a wheel node is part of. */
enum timer_kind {
    TIMER_SESSION,
    TIMER_TICKET,
    TIMER_PENDING,
    TIMER_LOCK,
    TIMER_WATCH,
    TIMER_RELEASES,
    TIMER_AUDIT,
    TIMER_LOOK,
    TIMER_LOOKS,
};

enum session_state {
    SESSION_OPEN,
    SESSION_CLOSING, /* no more requests; ends when all have been answered */
    SESSION_GONE,    /* has ended; its tickets are given up in portions */
};

struct session {
    struct slab_node node;
    struct table_node table; /* by id */
    enum session_state state;
    bool away;   /* has no connection, and is kept until one comes */
    bool killed; /* by an operator: nothing is kept */
    bool tcp;
    bool drained;    /* has been told of the broker's stop */
    bool ending;     /* on core->ending */
    bool quits;      /* QUIT is to be answered, by `quit_tag` */
    bool no_reentry; /* HELLO reenter=0 */
    bool fin_behind; /* FIN came behind an AUTH, and has its turn after it */
    char quit_tag[PROTO_TAG_MAX + 1];
    bool watch_waits;    /* until the client has read what it was told */
    bool recheck;        /* there are other users since it was looked at */
    bool revoked;        /* its user is no more */
    uint8_t told_id[16]; /* secret: what its client knows it by */
    uint8_t id[16];      /* secret: see session_table.c */
    uint32_t generation; /* the client's count of its connections */
    uint32_t watch_count;
    struct user *user;     /* ref; NULL: it is not known who it is */
    struct source *source; /* ref; NULL: not counted, or no connection */
    uint64_t keep_us;      /* how long its locks outlive the connection */
    char short_id[SHORT_ID_BYTES + 1];
    char client[PROTO_CLIENT_MAX];
    uint8_t client_len;
    char peer[54];
    const char *bye; /* ref, static: why it closes */
    enum counter bye_counter;
    uint32_t user_mark; /* by what it is known who it is */
    uint64_t opened_us;
    uint64_t heard_us;     /* of the last line */
    uint64_t heartbeat_us; /* 0: none */
    uint64_t ping_serial;
    struct wheel_node timer; /* the soonest of these; stop */
    uint64_t beat_due_us;
    uint64_t keep_due_us; /* away: its end; else that of unattended tickets */
    struct list tickets;  /* by session_link, oldest first */
    struct list pendings; /* by session_link, oldest first */
    struct list behind;   /* lines that came behind an AUTH, by link */
    uint32_t auths;       /* AUTHs without a reply */
    uint32_t behind_count;
    struct list ending_link;
    struct list watches; /* by session_link */
    struct list news;    /* by news_link: watches that may have some */
    uint32_t ticket_count;
    uint32_t pending_count;
    uint32_t held;        /* tickets that are HELD */
    uint32_t waiting;     /* tickets that are WAITING */
    uint64_t least_us;    /* none that was claimed, and has no lease=, has a
                           * sooner deadline */
    uint64_t leased_us;   /* nor has one with lease= before this */
    uint64_t least_at_us; /* when that was looked up */
};

#define BEHIND_MAX 512 /* struct behind, of all sessions */

/* A line that came while an AUTH of its session had no reply; see behind.c. */
struct behind {
    struct slab_node node;
    struct list link;
    bool too_long; /* `line` is its start */
    uint32_t len;
    char line[PROTO_LINE_MAX];
};

/* Of a session, while it has tickets; see owner.c. */
struct owner {
    struct slab_node node;
    struct table_node table; /* by session and hash */
    struct session *session; /* ref */
    uint64_t hash;           /* of its word; 0: it has none */
    struct list waits;       /* its tickets that are WAITING, by wait_link */
    uint32_t tickets;
    uint32_t held; /* those that are HELD */
    uint32_t waiting;
};

/* An address that sessions come from; see source.c. */
struct source {
    struct slab_node node;
    struct table_node table; /* by address */
    struct list idle_link;   /* core->idle_sources: no connections at all */
    uint8_t address[16];
    uint32_t connections;
    uint32_t lingering; /* connections without a session */
    uint32_t waiting;   /* AUTHs that have failed, and are not answered yet */
    uint32_t failures;  /* of late */
    uint64_t failed_us; /* the last one */
};

/* What is known of a watched lock. */
struct lock_news {
    bool known;
    uint32_t holders;
    uint64_t fence; /* the newest holder's, as these */
    uint8_t client_len;
    uint8_t owner_len;
    uint8_t note_len;
    char client[PROTO_CLIENT_MAX];
    char owner[PROTO_OWNER_MAX];
    char note[PROTO_NOTE_MAX];
};

/* A session that wants to hear of a lock. */
struct watch {
    struct slab_node node;
    struct session *session; /* ref */
    struct lock *lock;       /* ref, counted */
    struct list session_link;
    struct list lock_link;
    struct list news_link;
    struct handle pending; /* the WATCH that is not answered yet */
    bool asked;            /* an inspection has been sent since it began */
    bool due;              /* one has come, and it has not been told */
    bool told;
    uint32_t told_holders;
    uint64_t told_fence;
};

struct look;

struct lock {
    struct slab_node node;
    struct table_node table;
    struct wheel_node timer; /* when to ask Redis about it again */
    bool all_waiters;        /* about all of our tickets that wait */
    uint64_t lapse_us;       /* a grant to another broker may lapse then */
    struct list tickets;     /* by lock_link, in order of arrival here */
    struct list holders;     /* by holder_link: those of them that are HELD */
    uint32_t waiting;        /* tickets that are WAITING */
    uint32_t waits;          /* tickets on a list of waits, see top.c */
    uint32_t refs;       /* tickets, operations, watches, the timer, the look */
    struct list watches; /* by lock_link */
    struct wheel_node watch_timer;
    struct list tell_link;  /* not all who watch it have been told */
    struct handle watch_op; /* an inspection under way */
    struct look *look;      /* ref; NULL: none is wanted; see look_queue.c */
    bool watch_again;       /* another one after it */
    struct lock_news news;
    uint16_t slot;
    uint8_t space; /* in core->spaces as they were at space_serial */
    uint32_t space_serial;
    uint16_t name_len;
    char name[PROTO_NAME_MAX + 1];
};

enum ticket_state {
    TICKET_IDLE,    /* nothing in Redis; on its way to ASKING or away */
    TICKET_ASKING,  /* acquire is under way */
    TICKET_WAITING, /* stands in the queue */
    TICKET_HELD,
    TICKET_LEAVING, /* release is under way, or will be tried again */
};

struct ticket {
    struct slab_node node;
    enum ticket_state state;
    struct list session_link;
    struct list lock_link;
    struct list holder_link;
    struct list stir_link; /* in core->stirred */
    struct list age_link;  /* in core->ages; see top.c */
    struct list wait_link; /* who->waits */
    struct table_node table;
    struct wheel_node timer;
    struct session *session; /* ref; NULL: it has ended */
    struct owner *who;       /* ref; NULL as the session */
    struct lock *lock;       /* ref, counted */
    struct list pendings;    /* by ticket_link; the first is being served */
    struct handle main_op;   /* acquire or release under way */
    struct handle renew_op;
    uint64_t serial; /* grows; the order of creation */
    /* as in the record */
    uint8_t session_id[16];
    uint32_t generation;
    uint64_t owner_hash;
    uint32_t place;
    uint64_t arrival;
    uint64_t fence;
    struct ask ask;
    /* of a hold */
    uint32_t holds;       /* re-entries and the first */
    uint64_t hard_end_us; /* of lease=, NEVER: none */
    uint64_t stands_us;   /* others see that lease until then; NEVER: none */
    uint64_t granted_us;
    uint64_t deadline_us; /* believed no longer than this */
    uint64_t foreign_us;  /* by what another broker has told, this long */
    uint64_t jeopardy_us; /* when to warn; NEVER: has been done */
    uint64_t renew_us;    /* when to renew; NEVER: not again */
    /* of a wait */
    uint64_t waits_us;   /* when it began, at this broker */
    uint64_t heard_us;   /* when Redis last spoke of it */
    uint64_t settles_us; /* nobody is granted it before; 0: not so */
    uint64_t over_us;    /* ASKING, too: see op.h */
    uint64_t refresh_us;
    uint64_t probe_us; /* when to look for a deadlock; NEVER: not */
    uint32_t looked;   /* after so many, up to a few */
    uint32_t refused;  /* of late, for want of room, likewise */
    /* of leaving */
    uint64_t leave_until_us; /* by then its lease is over in any case */
    bool abandoned;          /* ASKING: to be released when the answer comes */
    bool forgotten; /* ASKING: the answer is nobody's, another broker goes on */
    bool doubt;     /* an answer was lost: it may have been granted, or freed */
    bool hinted;    /* a grant was announced while a question was under way */
    bool unheard;   /* the last question got no answer */
    bool lost;      /* LEAVING after LOST was sent */
    bool jeopardy;  /* JEOPARDY was sent */
    bool given_up;  /* LEAVING: its client ended it in jeopardy */
    bool sharing;   /* it shares from now on, and Redis has not confirmed it */
    bool moving;    /* it was claimed, and Redis has not confirmed it */
    bool announced; /* its LOCK was told that it is queued */
    bool downgraded; /* it was exclusive, and shares */
    bool unclean;    /* LEAVING, and nobody gave it back */
    bool unattended; /* whose connection ended; its LOCK may come again */
    bool used;       /* its request id has been used */
    bool reclaiming; /* renew_op is a reclaim, which has words of ours */
    bool reborn;     /* it was put again, and not claimed since */
    bool stray;      /* put again without an answer: its number is not known */
    bool requeued;   /* it was gone, perhaps to a later connection's broker */
    uint32_t taken;  /* that generation has it, elsewhere; 0: none */
    uint8_t owner_len;
    uint8_t client_len;
    uint8_t note_len;
    char owner[PROTO_OWNER_MAX];
    char client[PROTO_CLIENT_MAX]; /* the session's, when it asked */
    char note[PROTO_NOTE_MAX];
};

#define PROBE_NODES 32 /* the longest circle that is found */

#define SEARCH_MARKS 16384

/* What a search for circles has come to lately; see deadlock.c. */
struct search_mark {
    uint64_t hash;
    uint64_t arrival; /* at a lock: of the hindmost wait */
};

/* What a request is to a LOCK of several names. */
enum part_state {
    PART_NONE,  /* nothing: it is of its own */
    PART_WAITS, /* for the names before it: nothing is asked yet */
    PART_ASKS,
    PART_HAD, /* keeps its turn at the ticket until all are had */
};

/* A name of a LOCK of several. */
struct bundle_part {
    uint16_t offset; /* in text */
    uint16_t len;
    uint32_t position;     /* in the request */
    struct handle pending; /* the LOCK of that name */
    struct handle ticket;  /* NONE: its hold was lost */
    uint64_t fence;        /* of its hold */
};

/* A LOCK of several names that is under way; see bundle.c. */
struct bundle {
    struct slab_node node;
    struct handle whole; /* the request */
    uint32_t count;
    uint32_t got; /* so many of them, from the first, are had */
    struct bundle_part parts[LOCK_NAMES_MAX];
    uint8_t owner_len;
    char owner[PROTO_OWNER_MAX];
    char text[PROTO_LINE_MAX];
};

struct pending {
    struct slab_node node;
    struct list session_link;
    struct list ticket_link;
    struct table_node tag_table;
    struct wheel_node timer; /* wait= is over */
    struct session *session; /* ref */
    struct ticket *ticket;   /* ref; NULL: SHOW, HELD, LOCK of several names */
    struct handle bundle;    /* that it is, or is a part of */
    enum part_state part;
    struct lock *watched; /* ref: WATCH */
    struct lock *broken;  /* ref, counted: BREAK; NULL: not yet */
    enum command command;
    bool progress;
    bool no_deadlock; /* deadlock=0: this wait is not its owner's only doing */
    bool asked;       /* its own operation is under way */
    bool denied;      /* its user has lost the right to it */
    bool ended;       /* LOCK: is refused once Redis has nothing of it */
    enum error_code end_code; /* by that */
    const char *end_why;      /* ref, static; or NULL */
    uint64_t began_us;
    uint64_t wait_us; /* NEVER: as long as it takes */
    struct ask ask;   /* LOCK; RENEW: hold_ms */
    uint64_t fence;   /* fence=, 0: not given */
    uint32_t holds;   /* CLAIM: count= */
    uint64_t cursor;  /* HELD: serial of the last ticket shown */
    uint32_t shown;
    char tag[PROTO_TAG_MAX + 1];
    uint8_t note_len;
    char note[PROTO_NOTE_MAX];
};

/* Whether the request is a member of a multi-lock that keeps its turn at its
 * ticket: neither it nor what is behind it can be served now. */
static inline bool
pending_stands(const struct pending *pending)
{
    return pending->part == PART_WAITS || pending->part == PART_HAD;
}

#define RELEASES_KINDS 2
#define RELEASES_OUT   256 /* of a kind that are repeated at a time */

/* Those of late of a kind; see releases.c. */
struct releases {
    struct slab ring; /* of settings.releases_kept; none is ever freed */
    uint64_t count;   /* ever noted; the last one is at count - 1 */
    uint64_t left;    /* those before it are to be looked at in this pass */
    uint32_t out;     /* operations under way */
    bool again;       /* some of this pass were not taken */
    bool later;       /* some are to be repeated after a rest */
    uint64_t
        since_us; /* when the latest history was met; 0: none since start */
    struct wheel_node timer;
};

enum recent_kind {
    RECENT_SLOW,     /* an operation that took long */
    RECENT_LOST,     /* a hold that was lost */
    RECENT_DEADLOCK, /* a wait that was ended as it would have been for ever */
    RECENT_KINDS
};

#define RECENT_KEPT           128 /* of each kind */
#define RECENT_CYCLE_BYTES    800
#define RECENT_SESSIONS_BYTES ((SHORT_ID_BYTES + 1) * PROBE_NODES)

/* What is remembered of one; see recent.c. */
struct recent {
    uint64_t serial; /* grows, over all kinds */
    uint64_t at_us;
    char session[SHORT_ID_BYTES + 1]; /* or empty */
    uint8_t client_len;
    uint8_t owner_len;
    uint8_t name_len;
    char client[PROTO_CLIENT_MAX];
    char owner[PROTO_OWNER_MAX];
    char name[PROTO_NAME_MAX];

    union {
        /* One operation, or a stretch of tries: then sums. */
        struct {
            enum op_kind op;
            enum op_status status; /* of the last try */
            uint64_t owner;        /* of each try: see recent_owner() */
            uint32_t tries;
            uint64_t queued_us;  /* until it was sent, the last time */
            uint64_t redis_us;   /* then until Redis answered */
            uint64_t confirm_us; /* then until replicas had it */
        } slow;

        struct {
            const char *reason; /* ref, static */
            uint64_t fence;
            uint64_t held_us;
            uint64_t late_us; /* after its deadline */
        } lost;

        struct {
            uint16_t cycle_len;
            uint16_t sessions_len;
            char cycle[RECENT_CYCLE_BYTES];
            char sessions[RECENT_SESSIONS_BYTES];
        } deadlock;
    };
};

struct recents {
    uint64_t count; /* ever; the last one is at count - 1, modulo RECENT_KEPT */
    struct recent kept[RECENT_KEPT];
};
struct audit;

/* What there is of a namespace now; see ages.c. */
struct ages {
    struct list holds; /* tickets by age_link, the oldest first */
    struct list waits; /* likewise */
    uint32_t held;
    uint32_t waiting; /* those that stand in the queue now */
};

struct core {
    struct core_settings settings;
    struct counters *counters;   /* ref */
    const struct health *health; /* ref; NULL: nothing is known of Redis */
    struct effects *effects;     /* ref, during a step */
    uint64_t now_us;
    uint64_t awake_us; /* end of the last stall */
    struct slab sessions;
    struct slab locks;
    struct slab tickets;
    struct slab owners;
    struct slab pendings;
    struct slab ops;
    struct slab bundles;
    struct slab watches;
    struct slab probes;
    struct slab looks;
    struct slab messages;
    struct slab behind;
    struct table lock_table;    /* by name */
    struct table ticket_table;  /* by session, owner, lock */
    struct table owner_table;   /* by session and owner */
    struct table tag_table;     /* by session and tag */
    struct table session_table; /* by id */
    struct table source_table;  /* by address */
    struct slab sources;
    struct list idle_sources; /* the oldest first */
    uint32_t idle_count;
    struct hash_key hash_key;
    struct random random;
    struct wheel wheel;
    struct releases releases[RELEASES_KINDS];
    struct recents recents[RECENT_KINDS];
    uint64_t recent_serial;
    struct spaces spaces;
    struct contention contention;
    struct ages ages[SPACES_MAX + 1];
    struct slab audits;  /* of one */
    struct audit *audit; /* ref */
    struct list stirred; /* tickets to advance when the step ends */
    struct list bulk;    /* likewise, after those, of sessions that close */
    struct list telling; /* locks some of whose watchers are still to be told */
    struct list ending;  /* sessions to look at when the step ends */
    uint32_t portion;    /* so many tickets and timers more before CORE_TIME */
    uint64_t serial;
    uint32_t held;
    uint32_t waiting;
    uint32_t away; /* sessions without a connection */
    bool stopping;
    uint64_t stop_us;              /* NEVER; when grace is over; 0: it is */
    struct list looks_due[2];      /* looks to be sent: for few, and for many */
    unsigned looks_turn;           /* whose it is */
    struct wheel_node looks_timer; /* there is time for one */
    uint64_t looks_paid_us;        /* Redis' time is used up until then */
    struct search_mark search_marks[SEARCH_MARKS];
    uint64_t fence_seen[SLOT_COUNT];
};

/* Milliseconds to microseconds, NEVER where it does not fit. */
static inline uint64_t
us_from_ms(uint64_t ms)
{
    return ms > NEVER / 1000 ? NEVER : ms * 1000;
}

/* a + b, NEVER where it does not fit. */
static inline uint64_t
us_add(uint64_t a, uint64_t b)
{
    return a > NEVER - b ? NEVER : a + b;
}

static inline uint64_t
us_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* answer.c: lines to a session; each call of _end sends one. */
struct reply answer_begin(struct core *core, const char *tag, const char *word);
struct reply answer_event(struct core *core, enum event_code event);
void reply_pair_if(struct reply *reply, const char *key, struct text value);
void answer_end(
    struct core *core, const struct session *session, struct reply *reply);
void answer_error_begin(struct core *core, struct reply *reply, const char *tag,
    enum error_code code);
void answer_error(struct core *core, const struct session *session,
    const char *tag, enum error_code code, const char *why);
void answer_limit(struct core *core, const struct session *session,
    const char *tag, const char *limit);

/* Sends OK with the tag of the request and nothing else. */
void answer_ok(
    struct core *core, struct session *session, const struct request *request);

/* How many items one answer has, by limit= of the request. */
uint32_t listing_limit(const struct request *request);

/* Ends a list with OK, the number of items, and the cursor of the next part; 0:
 * there is none. */
void listing_end(struct core *core, struct session *session, const char *tag,
    uint32_t shown, uint32_t next);

/* Adds the kind of a hold: shared, or its permits. Nothing is said of an
 * exclusive hold. */
void listing_kind(struct reply *reply, const struct ask *ask);

/* session.c */
void session_open(struct core *core, struct core_event *event);
const char *session_resume(struct core *core, struct session *session,
    const uint8_t told[16], uint32_t generation);
void session_kill(struct core *core, struct session *session);
void session_moved(struct core *core, struct text news);
void session_hear(struct core *core, struct session *session);
void session_eof(struct core *core, struct session *session);
void session_close(struct core *core, struct session *session, const char *bye,
    enum counter counter);
void session_drop(
    struct core *core, struct session *session, enum counter counter);
void session_expel(
    struct core *core, struct session *session, enum core_expel why);
void session_heartbeat(
    struct core *core, struct session *session, uint64_t heartbeat_us);

void session_expel_user(struct core *core, struct session *session);

/* Sets the session's timer to the soonest of its times. */
void session_arm(struct core *core, struct session *session);

/* Refuses all requests of the session, LOCKs with `code`. A step has room for
 * these answers, as none of them tells why Redis is away. */
void session_refuse_pendings(
    struct core *core, struct session *session, enum error_code code);

/* Gives up the tickets of a session that is GONE, and frees it after the last
 * one. False: the rest comes in a later step. */
bool session_dissolve(struct core *core, struct session *session);

/* Ends the session and counts why. Nobody hears of it any more, nor finds
 * it. */
void session_free(
    struct core *core, struct session *session, enum counter counter);

/* Ends a session of a broker that stops: what it has in Redis stays for its
 * client to claim. */
void session_forget(
    struct core *core, struct session *session, enum counter counter);

/* Says BYE and ends the connection. The session may be gone afterwards. */
void session_end(struct core *core, struct session *session);

/* auth.c */
void auth_set_timeout(struct core *core, uint64_t auth_us);
void auth_answer(struct core *core, struct pending *pending);
void auth_set_users(struct core *core, const struct users *users);
void auth_end_wait(struct core *core, struct pending *pending);
bool auth_recheck(struct core *core, struct session *session);
void auth_check(const struct core *core);

/* lock.c */
struct lock *lock_find(const struct core *core, struct text name);
struct lock *lock_obtain(struct core *core, struct text name);
void lock_ref(struct lock *lock);
void lock_unref(struct core *core, struct lock *lock);
void lock_ask_at(struct core *core, struct lock *lock, uint64_t at_us);
void lock_ask_after_lapse(struct core *core, struct lock *lock);
void lock_refresh_soon(struct core *core, struct lock *lock);
void lock_see_fence(struct core *core, const struct lock *lock, uint64_t fence);

/* The name of the lock; it lives as long as the lock. */
struct text lock_name(const struct lock *lock);

/* ticket.c */
struct ticket *ticket_find(const struct core *core,
    const struct session *session, const struct lock *lock, struct text owner);
struct ticket *ticket_create(struct core *core, struct session *session,
    struct lock *lock, struct text owner);
struct ticket *ticket_obtain(struct core *core, struct session *session,
    struct text name, struct text owner, const char **limit);
void ticket_stir(struct core *core, struct ticket *ticket);
void ticket_stir_late(struct core *core, struct ticket *ticket);
void ticket_rebind(
    struct core *core, struct ticket *ticket, struct session *session);
void ticket_count_deadline(const struct ticket *ticket);
uint64_t ticket_ttl_ms(const struct core *core, const struct ticket *ticket);
uint32_t ticket_known_holds(const struct ticket *ticket);
struct text ticket_owner(const struct ticket *ticket);
struct text ticket_note(const struct ticket *ticket);
struct text ticket_client(const struct ticket *ticket);

/* When the waiting ticket begins a search for a deadlock; NEVER: not. */
void ticket_probe_at(struct core *core, struct ticket *ticket, uint64_t at_us);

/* owner.c */
bool owner_init(struct core *core);
void owner_fini(struct core *core);
struct owner *owner_find(
    const struct core *core, const struct session *session, uint64_t hash);
void owner_joined(struct core *core, struct ticket *ticket);
void owner_left(struct core *core, struct ticket *ticket);
void owner_state(struct ticket *ticket, enum ticket_state state);
bool owner_is_in_between(const struct owner *owner);
void owner_check(const struct core *core);

/* wait.c: tickets that ask or wait */
bool ticket_cancel(struct core *core, struct ticket *ticket,
    struct pending *pending, enum error_code code, const char *why);

/* Asks Redis about the lock: about the first waiter of this broker, about all
 * of them, or about the lock alone. */
void lock_timer(struct core *core, struct lock *lock);

/* hold.c: tickets that hold */
void ticket_set_lease(
    struct core *core, struct ticket *ticket, uint64_t hold_ms);

/* tally.c: what is counted for a namespace */
struct space *space_of(struct core *core, struct lock *lock);
void tally_granted(struct core *core, const struct pending *pending,
    const struct ticket *ticket);
void tally_refused(
    struct core *core, const struct pending *pending, enum error_code code);
void tally_turned_away(
    struct core *core, struct text name, enum error_code code);
void tally_unheard(struct core *core, const struct pending *pending);
void tally_finding(
    struct core *core, struct text name, enum space_counter counter);

/* pending.c */
struct pending *pending_create(
    struct core *core, struct session *session, const struct request *request);
void pending_free(struct core *core, struct pending *pending);
struct pending *pending_create_part(
    struct core *core, const struct pending *whole);
void pending_begin_part(
    struct core *core, struct pending *part, const struct pending *whole);
struct pending *pending_of_tag(
    const struct core *core, const struct session *session, const char *tag);

/* Creates the request of a session. NULL: a limit forbids it, and the client
 * has been told. */
struct pending *command_pending(
    struct core *core, struct session *session, const struct request *request);

/* The name of member `place`. */
struct text bundle_name(const struct bundle *bundle, uint32_t place);

/* The multi-lock that the request is, or is a member of; NULL: none. */
struct bundle *bundle_of(
    const struct core *core, const struct pending *pending);

/* The LOCK of member `place`; NULL: it is gone. */
struct pending *bundle_part(
    const struct core *core, const struct bundle *bundle, uint32_t place);

/* The hold that member `place` has; NULL: it is gone. */
struct ticket *bundle_hold(
    const struct core *core, const struct bundle *bundle, uint32_t place);

/* Keeps the members that were had, for a LOCK that may come again. */
void bundle_leave(struct core *core, struct bundle *bundle);

/* Frees the members. Requests behind them have their turn at the end of the
 * step. */
void bundle_drop_parts(struct core *core, struct bundle *bundle);

/* Sets the request of the multi-lock and the name that it waits for. False:
 * `part` is no member. */
bool bundle_waits(const struct core *core, const struct pending *part,
    const struct pending **whole, struct text *name);

/* A member waits: requests behind the other members may have to be refused,
 * at the end of the step. Members only stand behind older requests, so this
 * ends. */
void bundle_stir(struct core *core, const struct pending *asks);

/* bundle.c */
void bundle_begin(
    struct core *core, struct pending *whole, const struct request *request);
void bundle_granted(
    struct core *core, struct pending *part, struct ticket *ticket);
void bundle_lost(struct core *core, const struct pending *had);
bool bundle_is_waiting(const struct core *core, const struct pending *part);
bool bundle_cancel(struct core *core, const struct pending *pending,
    enum error_code code, const char *why);

/* watch.c */
void watch_begin(
    struct core *core, struct pending *pending, const struct request *request);
bool watch_end(struct core *core, struct session *session, struct text name);
void watch_free(struct core *core, struct watch *watch);
void watch_flush(struct core *core, struct session *session);
void watch_timer(struct core *core, struct lock *lock);
void watch_hint(struct core *core, struct text key);
void watch_tell_all(struct core *core);
void watch_unheard(struct core *core);
void watch_looked(struct core *core, struct lock *lock, enum op_status status);
void watch_inspected(struct core *core, struct op *op);
void watch_give_up(struct core *core, struct pending *pending);

/* deadlock.c */
void deadlock_waits(struct core *core, struct ticket *ticket);
void deadlock_held(struct core *core, const struct owner *owner);
uint64_t deadlock_look(struct core *core, struct ticket *ticket);
void deadlock_message(struct core *core, struct text message);

/* looks.c */
void looks_send(struct core *core);
void looks_timer(struct core *core, struct wheel_node *node);
void looks_done(struct core *core, const struct op *op);
void looks_check(const struct core *core);

/* audit.c */
bool audit_init(struct core *core);
void audit_set_limits(struct core *core, const struct audit_limits *limits);
void audit_fini(struct core *core);
bool audit_request(struct core *core, struct pending *pending);
void audit_stop(struct core *core);
void audit_timer(struct core *core);
void audit_stepped(struct core *core, struct op *op);
void audit_inspected(struct core *core, const struct op *op);
void audit_broken(struct core *core, const struct op *op);
void audit_told(struct core *core, struct text words);
void audit_news(struct core *core, struct text news);

/* releases.c */
bool releases_init(struct core *core);
void releases_fini(struct core *core);
void releases_note(
    struct core *core, const struct ticket *ticket, uint64_t sent_us);
void releases_repeat(struct core *core);
void releases_timer(struct core *core, struct releases *releases);
void releases_answered(struct core *core, const struct op *op);

/* recent.c */
void recent_slow(struct core *core, const struct op *op);
void recent_lost(
    struct core *core, const struct ticket *ticket, const char *reason);
void recent_deadlock(struct core *core, const struct ticket *ticket,
    struct text cycle, struct text sessions);

/* op.c */
struct op *op_create(struct core *core, enum op_kind kind, struct lock *lock,
    struct handle owner);
void op_submit(struct core *core, struct op *op);
void op_hurry(struct core *core, struct op *op);
enum op_owner op_owner(const struct op *op);
void op_free(struct core *core, struct op *op);

/* The handlers of commands.def, wherever they are. */
#define COMMAND(id, right, draining, refusal, handler, ...)  \
    void handler(struct core *core, struct session *session, \
        const struct request *request);
#include "proto/commands.def"

#define LISTING_MAX 500

/* command.c */
void command_break_done(struct core *core, struct op *op);
void command_break_look(struct core *core, struct pending *pending);
void command_break_seen(struct core *core, struct op *op);
void command_timer(struct core *core, struct pending *pending);
void command_line(
    struct core *core, struct session *session, char *line, size_t len);

/* listing.c */
void listing_show_done(struct core *core, struct op *op);
void listing_held(struct core *core, struct pending *pending);

/* leave.c */
/* Gives back one hold that the client does not know of. */
void ticket_give_back(struct core *core, struct ticket *ticket);

#endif
