/*
 * The core's own state, for the files of daemon/core only. The structs that it
 * leads to are in model_*.h. Each other file has its functions in a header of its
 * own name.
 *
 * Who changes what, from below: times.c, lock.c locks, owner.c owners,
 * session_table.c finds sessions, ages.c the lists by age, ticket.c tickets
 * (and it alone writes ticket->state), pending.c pending requests, source.c
 * counts connections, rights.c knows who may do what, leave.c strikes tickets
 * out, final.c answers requests, recent.c remembers what operators may ask
 * for. deadlock.c looks for deadlocks (by look_queue.c, looks.c and probe.c).
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
#include "daemon/base/slot.h"
#include "daemon/core/contention.h"
#include "daemon/core/core.h"
#include "daemon/core/model_lock.h"
#include "daemon/core/model_memory.h"
#include "daemon/core/model_request.h"
#include "daemon/core/model_session.h"
#include "daemon/core/model_ticket.h"
#include "daemon/core/model_time.h"
#include "daemon/core/spaces.h"
#include "proto/reply.h"

struct audit;

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

#endif
