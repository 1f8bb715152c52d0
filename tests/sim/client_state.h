/*
 * Shared by the parts of a client: client.c (the process, its connection, the
 * end of a run), client_wire.c (lines out and in), client_ask.c (its requests
 * for locks). And client_task.c (its use of locks), client_answer.c (answers),
 * client_move.c (sessions that move), client_watch.c (watches, orders),
 * client_detached.c (holds that outlive their session), client_await.c (AWAIT
 * and WANTED), client_resize.c (RESIZE). A drill at the end of a run: drill.h.
 *
 * A client has a few tasks; each stands with one lock under one owner at a time
 * and no two of them with the same. Requests on one lock and owner take effect
 * and are told in the order sent. So a task knows its hold exactly from the
 * replies that came, and any other reply breaks a promise.
 *
 * Times are of the client's own boot clock, but for those named `true_`.
 */
#ifndef HOLDFAST_TESTS_SIM_CLIENT_STATE_H
#define HOLDFAST_TESTS_SIM_CLIENT_STATE_H

#include "tests/sim/check.h"
#include "tests/sim/client.h"

#define CLIENT_TASKS    4
#define CLIENT_REQUESTS 64         /* without a final reply; a power of two */
#define ASKING_NONE     UINT64_MAX /* no tag: its LOCK was refused */
#define CLIENT_NO_WAIT  UINT32_MAX
#define OWNERS          2

enum verb {
    VERB_HELLO,
    VERB_LOCK,
    VERB_UNLOCK,
    VERB_PART, /* UNLOCK permits= */
    VERB_RESIZE,
    VERB_RENEW,
    VERB_NOTE,
    VERB_GIVE_BACK, /* UNLOCK of a detached hold */
    VERB_PROLONG,   /* RENEW of one */
    VERB_CANCEL,
    VERB_SHOW,
    VERB_HELD,
    VERB_PING,
    VERB_QUIT,
    VERB_CLAIM,
    VERB_WATCH,
    VERB_AWAIT,
    VERB_UNWATCH,
    VERB_BREAK,
    VERB_KILL,
    VERB_BAD, /* no broker understands it */
    VERB_COUNT
};

extern const char *const verb_names[VERB_COUNT];

/* The words of a LOCK. */
struct wish {
    uint32_t limit; /* of a semaphore; 0: it is none */
    uint32_t permits;
    uint32_t wait_ms; /* CLIENT_NO_WAIT: as long as it takes */
    uint32_t lease_ms;
    uint32_t delay_ms;
    bool shared;
    bool upgradable;
    bool tree;
    bool detached;
    bool wanted;
    bool no_deadlock;
};

struct request {
    uint64_t serial; /* of its tag; 0: this one is free */
    enum verb verb;
    uint32_t lock;
    struct task *task; /* ref; NULL: no task's */
    uint64_t sent_us;
    uint64_t true_sent_us;
    struct wish wish;    /* LOCK; UNLOCK: delay_ms */
    uint32_t mates;      /* LOCK of several names: a bit for each task of it */
    uint32_t lease_ms;   /* RENEW */
    uint64_t fence;      /* UNLOCK, RENEW, CLAIM; 0: any */
    uint64_t true_until; /* of a detached hold: the end that was told */
    uint32_t turn; /* likewise: of a RENEW that began alone; 0: it did not */
    uint64_t note; /* LOCK; 0: none */
    bool fresh;    /* LOCK: nothing of an earlier one may stand there */
    uint32_t generation; /* HELLO: of resume=; 0: without */
    uint32_t keep_ms;    /* HELLO */
    uint32_t items;      /* that came, of a list */
    bool stale;          /* with another fence than the hold's, on purpose */
    uint64_t given_us;   /* when its detached hold was given back; 0: not */
    bool beside;         /* the owner may have another hold of the lock */
    bool cancelled;
    bool progress;
    uint64_t seen;    /* AWAIT: the judge's */
    uint64_t arrival; /* LOCK: no ticket of it has an earlier one */
    bool queued;      /* it was told so */
    bool again;       /* LOCK: an earlier connection has sent it too */
    bool misfits;     /* LOCK of a holder: it does not fit what it holds */
};

/* The step of a task. */
enum task_state {
    TASK_IDLE,
    TASK_ASKING,     /* LOCK under way */
    TASK_CONFIRMING, /* granted, but too late to believe without a PING */
    TASK_HOLDING,    /* believes, works */
    TASK_LEAVING,    /* gives back; or lost, and waits for replies */
};

/* What for. */
enum task_purpose {
    TASK_WORKS,
    TASK_IS_SERVED, /* winding up: the lock must be had */
    TASK_DRILL_HOLDS,
    TASK_DRILL_WAITS,
    TASK_DRILL_LAPSES, /* holds by lease=, says nothing and waits for LOST */
    TASK_DRILL_OVER,   /* gives back what it may still get */
};

struct task {
    struct client *client; /* ref */
    char who[24];
    enum task_state state;
    enum task_purpose purpose;
    uint32_t lock;
    uint32_t owner;       /* 0: the default one */
    struct wish wish;     /* of the LOCK that is under way or was granted */
    uint32_t mates;       /* LOCKs of several names: a bit for each task */
    struct task *leader;  /* ref; who sends that; NULL: this one, alone */
    struct task *parent;  /* ref; whose hold lasts until this one is idle */
    struct task *child;   /* ref */
    bool upgrade;         /* it is the parent's own lock, for it alone */
    uint32_t outstanding; /* requests about lock and owner */
    uint32_t locks;       /* LOCKs of them */
    uint32_t unlocks;     /* UNLOCKs of them that are meant */
    uint32_t renews;      /* RENEWs of them */
    uint32_t parts;       /* UNLOCKs of some permits */
    uint32_t count;       /* holds, as told */
    uint64_t asking;      /* serial of the latest LOCK */
    uint64_t fence;
    uint64_t floor;      /* the highest fence told when it asked first */
    uint64_t true_asked; /* when it asked first */
    uint64_t asked_us;   /* that, for the LOCK that was granted */
    uint64_t true_stood; /* the hold surely stood then */
    uint64_t granted_us; /* when its OK came */
    uint64_t deadline_us;
    uint64_t cap_us;     /* no deadline is later, while a RENEW is under way */
    uint64_t over_us;    /* its lease= is over then; only where there is one */
    uint64_t overdue_us; /* it was said to be held after that; 0: not */
    uint32_t lease_ms;   /* of lease=; 0: none */
    bool renewed;
    bool shares; /* the hold does, from the sending of a LOCK mode=shared on */
    bool here;   /* this connection has it: was granted it, or claimed it */
    bool claims; /* a CLAIM is under way */
    bool loose;  /* put again: an earlier grant may count too */
    bool vague;  /* it is not known how many permits are left */
    uint32_t confirms;
    uint32_t wanted;      /* waiters that WANTED told of last */
    uint64_t wanted_seen; /* the judge's */
    uint32_t belief;      /* the judge's; 0: none */
    uint32_t steps;       /* of work, still to do */
    bool has_read;
    uint64_t value;
    uint64_t listed;        /* serial of the HELD that named it */
    uint64_t timer;         /* serial of the event that counts */
    uint64_t true_serve_by; /* TASK_IS_SERVED */
    bool serving;           /* TASK_IS_SERVED: `lock` is not done */

    /* A write that was decided on in time and comes when it comes. */
    struct {
        uint64_t timer;
        uint32_t lock;
        uint64_t fence;
        uint64_t value;
    } late;
};

enum link_state {
    LINK_DOWN,    /* the process is dead */
    LINK_PAUSE,   /* before connecting */
    LINK_CONNECT, /* under way */
    LINK_OPEN,
};

/* The end of a run, for one client. */
enum wind {
    WIND_NOT,
    WIND_GIVE_BACK, /* holds and waits from before */
    WIND_SERVE,     /* each lock once */
    WIND_WAIT,      /* for the others */
    WIND_QUIT,
    WIND_DONE,
};

#define CLIENT_WATCHES 3

/* A lock that it watches. */
struct outlook {
    uint32_t lock;
    bool wanted;     /* by this client, with each connection */
    uint64_t asking; /* serial of a WATCH under way */
    uint64_t ending; /* of an UNWATCH */
    bool on;
    bool told;
    uint64_t fence;
    uint32_t holders;
    uint64_t seen; /* the judge's */
    bool members;  /* WATCH members=1, with what it knows of them: */
    struct check_roster roster;
};

/*
 * A request or a hold of an earlier connection with unknown fate. It may stand
 * in Redis for a while, or come to it late. A request for that lock and owner
 * in this session may find it.
 */
struct remnant {
    uint64_t true_until; /* it is gone by then */
    uint64_t true_doubt; /* so is a LOCK of this session with INDOUBT */
    uint64_t floor;      /* of the oldest LOCK of them */
};

struct fleet;

struct client {
    struct world *world;     /* ref */
    struct fleet *fleet;     /* ref; of all clients */
    struct machine *machine; /* ref */
    uint32_t number;
    uint64_t life; /* grows with each process and each connection */
    enum link_state link;
    bool reviving; /* dead, and will be started again */
    uint32_t connection;
    uint32_t broker;
    uint64_t true_down; /* when the last connection ended */
    uint32_t attempts;
    bool greeted;
    bool said_bye;       /* the broker has */
    bool dismissed;      /* by KILL: nothing is kept */
    enum fault doom;     /* an operator ends its session; FAULT_COUNT: none */
    bool moved;          /* goes on with the session of an earlier connection */
    uint32_t keep_ms;    /* of keep=; 0: its session does not move */
    uint32_t generation; /* of this connection; 0: none yet */
    uint32_t avoid;      /* a broker that is going; UINT32_MAX: none */
    char session[33];    /* that it is, or takes over; "": none */
    struct outlook outlooks[CLIENT_WATCHES];
    struct remnant remnants[PLAN_LOCKS_MAX][OWNERS + 1];
    uint64_t true_proven; /* as proven_us, of any connection */
    bool finishing;       /* QUIT or FIN is sent: nothing more */
    bool draining;
    uint64_t opened_us;
    uint64_t proven_us; /* sending of the latest request that was answered */
    uint64_t ping;      /* serial of the PING or HELD that keeps deadlines */
    uint64_t ping_sent_us;
    uint64_t ping_due_us;
    uint64_t watch_us; /* when the watch will look; UINT64_MAX: not set */
    uint64_t watch;    /* serial of its event */
    uint32_t untagged; /* requests without a tag under way */
    uint64_t serial;   /* of the last tag in this run */
    uint32_t requests_now;
    struct request requests[CLIENT_REQUESTS];
    uint32_t task_count;
    struct task tasks[CLIENT_TASKS];
    enum wind wind;
    uint32_t served; /* locks that were begun with, winding up */
    uint32_t out_len;
    uint32_t in_len;
    bool in_skips; /* the line is too long */
    char out[8192];
    char in[4096];
};

/* --- client.c ------------------------------------------------------------- */

/* Closes the connection; with `reconnects`, another one will be made. */
void client_hang_up(struct client *client, bool reconnects);

/* Sees to it that client_watch looks at the deadlines in time. */
void client_arm(struct client *client);

/* Breaks off by chance, and says so: FIN, QUIT or a plain close. */
void client_leave(struct client *client);

/* A task has come to rest, while winding up: what next. */
void client_wind_on(struct client *client);

/* The time of an answer when nothing fails, in us of true time. */
uint64_t client_patience_us(const struct client *client);

/* --- client_wire.c -------------------------------------------------------- */

/* Begins a request; NULL where too many are under way. Then words, then
 * wire_end(). Gathered lines leave with wire_flush(). */
struct request *wire_begin(
    struct client *client, enum verb verb, struct task *task);
void wire_word(struct client *client, const char *word);
void wire_lock(struct client *client, uint32_t lock);
void wire_pair(struct client *client, const char *key, uint64_t value);
void wire_owner(struct client *client, uint32_t owner);
void wire_end(struct client *client);
/* CANCEL of the request with that serial; false: not now. */
bool wire_cancel(struct client *client, uint64_t serial);
void wire_flush(struct client *client);
/* False where too many are under way. */
bool wire_request(struct client *client, enum verb verb);
void wire_mistake(struct client *client);

/* A line of the trace that is no part of its hash. */
void wire_trace(
    const struct client *client, char how, const char *text, size_t len);

void wire_bytes(struct client *client, const char *bytes, size_t len);

/* Forgets all requests: the connection has ended. */
void wire_reset(struct client *client);

/* --- client_task.c -------------------------------------------------------- */

/* An answer, taken apart. */
struct answer {
    const char *code; /* of an ERR; NULL: OK */
    bool has_fence;
    bool has_ttl;
    bool has_count;
    bool has_permits;
    bool upgrade;
    uint32_t lock;  /* of name=, else the request's */
    uint64_t fence; /* the first of them */
    uint64_t fences[CLIENT_TASKS];
    uint32_t fence_count;
    uint64_t ttl_ms;
    uint64_t count;
    uint64_t permits;
    uint64_t limit; /* 0: none was told */
};

/* PING or HELD is answered. */
void tasks_confirmed(struct client *client, const struct request *request,
    const struct answer *a);

/* An ITEM of HELD; false: there is no such hold. */
bool task_listed(struct client *client, const struct request *request,
    uint32_t lock, uint32_t owner, const struct answer *item);

/* LOST; false: there is no such hold. */
bool task_lost(struct client *client, uint32_t lock, uint32_t owner,
    uint64_t fence, const char *reason);

void task_confirm(struct task *task);
void deadline_move(struct task *task, uint64_t deadline_us);
void deadline_set(struct task *task, uint64_t base_us, uint64_t ttl_ms);
void belief_begin(struct task *task);
void belief_end(struct task *task);
void belief_break(struct task *task);

/* QUIT or FIN is being sent, or BYE was said that ends it all. */
void tasks_finish(struct client *client);

/* The connection has ended, the process too where `dead`. */
void tasks_reset(struct client *client, bool dead);

/* Deadlines that are over; and the next one, UINT64_MAX: none. */
void tasks_expire(struct client *client);
uint64_t tasks_due_us(const struct client *client);
bool tasks_hold(const struct client *client, bool *survey);
bool tasks_rest(const struct client *client);

/* Gives back; or goes on waiting, or calls that off. */
void task_wind_up(struct task *task);
void task_wake(struct task *task, uint64_t in_us);
bool task_send_renew(struct task *task, uint64_t lease_ms);
void task_leave(struct task *task);
void task_think(struct task *task);
void task_send_cancel(struct task *task);
bool task_send_unlock(struct task *task);

/* Adds delay= to an UNLOCK, in some of them. Its ms; 0: it has none. */
uint32_t rest_send(struct client *client);

/* --- client_answer.c ------------------------------------------------------ */

/* The final reply to a request of that task. */
void task_answered(
    struct task *task, const struct request *request, const struct answer *a);

/* Nothing is held any more, and the client was told so. */
void task_gone(struct task *task);

/* An answer that breaks a promise. */
void task_odd(struct task *task, enum promise promise,
    const struct request *request, const struct answer *a, const char *what);

/* After each answer: whether the task has come to rest, or must go on. */
void task_settle(struct task *task);

/* --- client_ask.c --------------------------------------------------------- */

/* It is not known what became of its LOCK, or its hold. */
void task_leaves(const struct task *task);

/* A possible remnant of that lock, for this task's owner; NULL: none, or none
 * that a connection finds. */
void client_finds_remnants(struct client *client);
const struct remnant *task_remnant(const struct task *task, uint32_t lock);

/* A LOCK of that lock had the answer INDOUBT. */
void task_doubts(const struct task *task, uint32_t lock);

/* It is to ask for the whole of a lock, alone. */
void task_wants(
    struct task *task, uint32_t lock, uint32_t wait_ms, uint32_t lease_ms);

/* Its LOCK, by task->wish; of several names where it has mates. */
bool task_send_wish(struct task *task, bool again);

/* Another LOCK of what it holds. */
void task_send_reentry(struct task *task, uint32_t wait_ms);

/* Draws a lock, or several, and asks for it. */
void task_ask(struct task *task);

/* Takes another lock within its hold; false: not now. */
bool task_nests(struct task *task);

/* Its child has come to rest. */
void task_nest_ends(struct task *task);

/* --- client_move.c -------------------------------------------------------- */

/* Whether its session outlives this connection, for all that it knows. */
bool client_keeps(const struct client *client);

/* The connection has ended, and another one is to go on. */
void client_cut(struct client *client);

/* There is one: HELLO, then claims and LOCKs that are put again. */
void client_hello(struct client *client);
void client_resume(struct client *client);
void hello_answered(struct client *client, const struct request *request,
    const char *session, uint64_t keep_ms, uint64_t generation);

/* The broker is going: soon to another one. */
void client_moves_on(struct client *client);

/* Claims a hold that an earlier connection had; false: not now. */
bool task_claim(struct task *task);
void claim_answered(
    struct task *task, const struct request *request, const struct answer *a);

/* A CLAIM of what was never held. */
void send_unclaimed(struct client *client);

/* --- client_detached.c ---------------------------------------------------- */

/* A LOCK with detached=1 is answered OK. */
void detached_granted(
    struct task *task, const struct request *request, const struct answer *a);

/* Prolongs a detached hold of anybody's, gives it back, or tries that with a
 * fence of none. */
void detached_fidget(struct client *client);
void detached_answered(struct client *client, const struct request *request,
    const struct answer *a);

/* The RENEW or UNLOCK of the one with that fence; false: not now. */
bool detached_prolong(
    struct client *client, uint32_t lock, uint64_t fence, uint32_t term_ms);
bool detached_give_back(struct client *client, uint32_t lock, uint64_t fence);

/* Winding up: all of them are given back. */
void detached_wind_up(struct client *client);

/* --- client_resize.c ------------------------------------------------------ */

/* The limit that clients name for a lock; 0: it is no semaphore. */
uint32_t fleet_limit(const struct fleet *fleet, uint32_t lock);
void resize_fidget(struct client *client);
void resize_answered(struct client *client, const struct request *request,
    const struct answer *a);

/* --- client_await.c ------------------------------------------------------- */

/* NULL: not now. */
struct request *await_send(
    struct client *client, uint32_t lock, uint32_t wait_ms);
void await_fidget(struct client *client);
/* How many of that lock are under way. */
uint32_t awaits_of(const struct client *client, uint32_t lock);
void await_answered(struct client *client, const struct request *request,
    const struct answer *a);

/* All has come to rest, and nobody has a lock: none is left. */
void awaits_check(struct client *client, uint64_t since_us);

/* False: it holds no such lock with wanted=1, or nobody is said to wait. */
bool wanted_told(
    struct client *client, uint32_t lock, uint32_t owner, uint64_t waiters);

/* --- client_watch.c ------------------------------------------------------- */

void watches_begin(struct client *client);
void watches_reset(struct client *client);
void watches_fidget(struct client *client);
void watch_answered(struct client *client, const struct request *request,
    const struct answer *a);

/* The watch of the lock's members, or NULL. */
struct outlook *watch_of_members(struct client *client, uint32_t lock);

/* HELD, or FREE (no holders); false: nobody watches it. */
bool watch_told(
    struct client *client, uint32_t lock, uint64_t fence, uint32_t holders);

/* An operator's KILL of the victim's session. */
void client_orders_kill(struct client *client, struct client *victim);

/* All has come to rest: what was told last must be so. */
void watches_check(struct client *client, uint64_t since_us);

#endif
