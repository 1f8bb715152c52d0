/*
 * The store's own state, for the files of daemon/store only.
 *
 * A *node* is an address with a queue of operations; a *link* is one connection
 * to a node: each node has a data link, and where safety is strict a second one
 * that asks what its replicas have got; one link more subscribes to this
 * broker's channel, and another one, to a Sentinel, to +switch-master. A *call*
 * is a command that has been sent on a link; replies come in calls' order.
 *
 * An operation is in exactly one place: a lane of a node, a call, the parked
 * (to be routed again later, or when there is a route), or the done.
 *
 * From below: times.c. fence_clock.c: where fences begin. link.c: a connection
 * and its calls. fault.c: its faults. strict.c: replies that wait for replicas.
 * lane.c, op_queue.c: where operations wait. bid.c, quorum.c, round.c: what the
 * core asks of several masters, as votes. trust.c: which node may grant.
 * route.c: which node an operation goes to. audit.c: what the core asks of a
 * node, whatever locks are there. call.c: batches and their replies.
 * replicas.c: what replicas have. confirm.c asks that. mark.c: the marker.
 * peers.c: what brokers tell one another. sentinel.c asks who the master is.
 *
 * Above these: link_life.c: a connection begins and ends. map.c: the map of
 * slots. master.c: the change to another master. handshake.c, reply.c and
 * link_time.c: a connection's greeting, its replies, and its time. health.c:
 * why a node grants nothing. store.c: the front, and time.
 */
#ifndef HOLDFAST_STORE_STATE_H
#define HOLDFAST_STORE_STATE_H

#include "daemon/base/random.h"
#include "daemon/base/slab.h"
#include "daemon/base/slot.h"
#include "daemon/base/table.h"
#include "daemon/base/wheel.h"
#include "daemon/store/record.h"
#include "daemon/store/scripts.h"
#include "daemon/store/store.h"

/* The first pause before a connection is tried again. */
#define BACKOFF_MIN_US 50000

#define OVERLAP_US 30000000 /* a broker that is there is heard within that */

/* What a Sentinel has said counts for so long. */
#define TRUST_US 2000000

/* A marker is looked for, or written, again after so long. */
#define MARK_AGAIN_US 1000000

/* An operation without a route is routed again after so long. */
#define ROUTE_RETRY_US 50000

_Static_assert(HEALTH_NODES_MAX == STORE_NODES_MAX, "as many");

#define LINK_WITNESS    STORE_NODES_MAX       /* index of the first node's */
#define LINK_SUBSCRIBER (2 * STORE_NODES_MAX) /* and of the subscribing link */
#define LINK_SWITCHES   (2 * STORE_NODES_MAX + 1)
#define LINK_COUNT      STORE_LINKS
#define LINK_OUT_BYTES  (1u << 20)
#define NODE_NONE       UINT16_MAX
#define KEY_BYTES       80
#define NODE_UNSAID     (UINT16_MAX - 1) /* of the log, at the start */
#define NODE_GONE       (UINT16_MAX - 2) /* one that has been forgotten */
#define GRANTS_MAX      196608
#define TICKETS_SHOWN   512
#define HINTS_MAX       4096
#define NEWS_MAX        4096
#define NEWS_BYTES      262144

/* After that long what is still so is logged again. */
#define SAID_AGAIN_US 60000000

/* What waits at a node stands in lanes: one for each kind of operation, and one
 * for the releases that no client waits for. */
#define LANE_YIELDS ((unsigned)OP_KIND_COUNT)
#define LANE_COUNT  (OP_KIND_COUNT + 1)

#define LEADS_EXPECTED 16384 /* more sessions are slower */

enum link_state {
    LINK_DOWN,       /* not before retry_us */
    LINK_CONNECTING, /* io has been asked */
    LINK_GREETING,   /* who are you? */
    LINK_PREPARING,  /* kill the predecessor, load the scripts */
    LINK_READY,
};

enum replicas_state {
    REPLICAS_UNKNOWN,
    REPLICAS_FINE,
    REPLICAS_MISSING,
    REPLICAS_BEHIND,
    REPLICAS_ALIKE,
    REPLICAS_REFUSED,
};

/* What is known of a node's replicas where safety is strict. */
struct replicas {
    enum replicas_state state; /* since the witness is connected */
    enum replicas_state said;  /* in the log */
    uint64_t asked_us;         /* 0: not yet */
    uint64_t none_us;          /* since when there has never been one; or 0 */
    uint64_t behind_us;        /* since when somebody is; or 0 */
    uint64_t members_us;       /* when the cluster was asked */
    uint64_t offset;           /* of the log when it was asked; or 0 */
    uint32_t online;           /* how many */
    uint32_t members;          /* how many the cluster knows of */
    uint32_t floor;            /* how many of those are to be there */
    char *known;               /* owned: a line for each that has been online */
    size_t known_len;
    char id[41];         /* the node's, in the cluster; or empty */
    uint16_t write_slot; /* of what is written, or after it */
    bool counted;        /* by the cluster */
    bool create;         /* what is written is not there */
    bool late;           /* WAIT has not waited for all of them */
    bool error;          /* something was refused */
    bool never_any;      /* there is no replica, nor was there ever one */
};

/* Why a connection grants nothing now. See health.c. */
struct link_fault {
    enum health_reason reason;
    enum health_reason told;    /* in the log */
    uint64_t told_us;           /* when; 0: never */
    char said[HEALTH_SAID_MAX]; /* by Redis or the system; printable */
};

struct link {
    enum link_state state;
    uint32_t index;
    uint32_t serial; /* of the connection */
    uint16_t node;   /* NODE_NONE: the subscriber without a node */
    bool wish_connect;
    bool wish_close;
    bool opened;       /* connecting: what is left is the TLS handshake */
    bool readonly;     /* is a replica */
    bool demoted;      /* it says that it is no master, and is left */
    bool stranger;     /* it was in another cluster when it was asked */
    bool late;         /* its oldest call is not answered in time */
    bool again;        /* a good connection has ended: one try to follow it */
    struct buffer out; /* what io has not written yet */
    struct list calls; /* without a reply, oldest first */
    uint32_t call_count;
    uint32_t batch_count; /* of them script calls */
    uint32_t bulk_count;  /* of those: bulk, see call.c */
    uint32_t loading;     /* of them SCRIPT LOAD */
    uint64_t deadline_us; /* of connecting */
    uint64_t patience_us; /* of the greeting, where it was too short before */
    uint64_t late_us;     /* when that it is late was logged; 0: never */
    uint64_t missing_us;  /* when a command was logged that is missing */
    uint32_t missing;     /* those that were, as bits */
    uint32_t probing;     /* answers of a probe that are to come */
    bool unproved;        /* it has not been probed, and is to be */
    char lacks[HEALTH_SAID_MAX]; /* what the probe has found */
    uint64_t idle_us;            /* after so long it is asked something */
    uint64_t retry_us;           /* LINK_DOWN */
    uint64_t backoff_us;
    uint64_t spoke_us;      /* the last call was sent, but for those whose
                             * answer says nothing of its clock and its ids */
    uint64_t client_id;     /* of this connection, 0: not known */
    uint64_t old_client_id; /* of one that was lost */
    char run_id[41];
    bool named;              /* it has told that in this connection */
    struct link_fault fault; /* until it is ready; then: until it grants */
    char old_run_id[41];
    char id[RECORD_ID_BYTES + 1]; /* replication id last seen */
    bool first;                   /* it has no predecessor */
    bool settled;    /* its history has been known for long enough */
    bool inherits;   /* slots of a node that may have lost something */
    bool guessed;    /* for nobody can say yet whether it has */
    bool ids_wanted; /* a script has seen another id, or a slot has gone */
    bool ids_asked;  /* INFO is under way */
    uint64_t sources[STORE_NODES_MAX / 64]; /* see trust_inherit() */
    uint64_t since_us;                      /* the history is known */
    uint64_t mark_us;      /* when to read or write the marker */
    bool mark_refused;     /* that is not allowed there, or there is no room */
    int64_t clock_us;      /* the node's clock less ours; at least this */
    int64_t clock_most_us; /* and at most this */
    uint64_t clock_at_us;  /* when that was found; 0: it is not known */
    uint64_t steady_us;    /* since then it has not stepped */
    uint64_t risen_us;     /* by so much it was set forward, as far as seen */
    uint64_t rose_at_us;   /* its own time then, the last one; 0: never */
    struct list held;      /* answered calls that wait for replicas */
    uint32_t held_count;   /* and those that have been confirmed */
    uint64_t wait_us;      /* replicas are not asked before that */
    uint64_t peers_us;     /* when to tell other brokers of us; see peers.c */
    uint32_t differs;      /* so often in a row another one was otherwise */
    uint64_t differ_told_us;
    struct replicas replicas;
};

struct node {
    bool used;
    bool seed;   /* from the configuration: never forgotten */
    bool mapped; /* has slots, or is the master */
    bool sentinel;
    bool nameless;     /* the Sentinel knows no such master */
    uint16_t names;    /* the Sentinel's master; NODE_NONE: not known */
    uint64_t named_us; /* it was asked for that */
    struct store_address address;
    struct list lanes[LANE_COUNT]; /* by link: leads, see lane.c */
    uint32_t queued;
    unsigned turn;            /* the lane that is next */
    bool renewed;             /* the last call was of renewals */
    uint8_t last_session[16]; /* of the operation that came last */
    uint64_t mixed_us;        /* when another session's came after it */
};

#define CLOCK_DRIFT 400 /* clocks drift apart by less than 1 in so many */

#define CLUSTER_IDS_MAX 256 /* more are not compared */

enum call_kind {
    CALL_SCRIPT, /* operations */
    CALL_ASKING,
    CALL_AUTH,
    CALL_INFO,
    CALL_IDS,
    CALL_MARK,
    CALL_CLIENT_ID,
    CALL_TIME,
    CALL_KILL,
    CALL_NAME,
    CALL_LOAD,
    CALL_MAP,
    CALL_MASTER,
    CALL_SUBSCRIBE,
    CALL_PING,
    CALL_WRITE,
    CALL_ROLE,
    CALL_WAIT,
    CALL_MYID,
    CALL_MEMBERS,
    CALL_REPLICAS,
    CALL_PUBLISH,
    CALL_PROBE,
    CALL_PEERS,
    CALL_LIST,
};

struct call {
    struct slab_node node;
    struct list link;
    enum call_kind kind;
    bool last;     /* of a phase of the greeting */
    bool writes;   /* CALL_MARK: the marker is written, else read */
    bool stale;    /* INFO's: it may have been answered before a slot went */
    bool optional; /* CALL_LOAD: of a script that locks do without */
    bool bulk;     /* CALL_SCRIPT: see call.c */
    uint64_t sent_us;
    uint64_t answered_us; /* 0: not yet */
    struct list ops;
    uint32_t op_count;
    /* a script's, that waits for replicas */
    uint16_t at_link;
    bool covered; /* by the WAIT that is under way */
    char *said;   /* owned: the reply, of so many bytes */
    size_t said_len;
};

struct quorum;

struct store {
    struct store_settings settings;
    struct counters *counters; /* ref */
    size_t prefix_len;         /* of settings.key_prefix */
    char channel[64];          /* prefix of the brokers' channels */
    uint64_t realtime_us;
    uint64_t fence_clock_us; /* as it was then; see fence_clock.c */
    uint64_t fence_clock_at_us;
    uint64_t now_us;       /* of the call under way */
    struct quorum *quorum; /* owned; NULL: another topology */
    struct random random;
    struct wheel wheel; /* operations: give up, or route again */
    struct table leads; /* of all lanes, by session, node and lane */
    struct hash_key lead_key;
    struct slab calls;
    struct link links[LINK_COUNT];
    struct node nodes[STORE_NODES_MAX];
    uint16_t node_count;        /* used ones are below it */
    uint16_t slots[SLOT_COUNT]; /* node, or NODE_NONE */
    uint16_t had[SLOT_COUNT];   /* who had it last; NODE_NONE: nobody yet */
    uint32_t slots_mapped;
    bool map_wanted;
    bool map_asked;                /* one refresh at a time */
    bool map_anybody;              /* what was told last made no sense */
    char ids[CLUSTER_IDS_MAX][41]; /* of the cluster's nodes, as told last */
    uint32_t id_count;
    uint64_t ids_us; /* when that was */
    uint64_t map_next_us;
    uint64_t map_old_us; /* then it is asked for again */
    uint32_t map_turn;   /* which link to ask next */
    uint64_t unknown_us; /* when a node without an address was logged; or 0 */
    uint64_t map_bad_us; /* when an unusable map was logged; or 0 */
    uint64_t map_backoff_us;
    uint32_t sentinel_count;
    uint16_t master;        /* that a majority of the Sentinels names */
    uint16_t master_said;   /* in the log */
    uint64_t masterless_us; /* since then there is none */
    uint64_t anew_us;       /* what they were asked before does not count */
    uint64_t ask_us;        /* who was asked before that, is asked at once */
    uint64_t votes_due_us;  /* when to count the votes */
    struct list parked;
    struct list done;
    struct list confirmed;   /* calls that replicas have got */
    struct call *confirming; /* the one that `done` is of, or NULL */
    uint64_t confirmed_us;
    bool was_ready;
    uint64_t longest_us;      /* lease that any broker has used; 0: unknown */
    uint64_t longest_at_us;   /* when that was heard of last */
    uint64_t bounded_told_us; /* see peers.c; 0: not yet */
    struct health health;     /* told to core and io */
    uint64_t health_told_us;  /* when it was logged that it is not ready */
    uint32_t health_told;     /* health.changes then */
    bool unheard;
    bool changed;
    struct store_hint hints[HINTS_MAX];
    uint32_t hint_count;
    uint32_t hint_taken;        /* of them, from the first */
    struct text news[NEWS_MAX]; /* refs into news_text */
    uint32_t news_count;
    uint32_t news_taken;
    size_t news_len;
    char news_text[NEWS_BYTES];
    struct op_grant grants[GRANTS_MAX];
    struct op_ticket tickets[TICKETS_SHOWN];
    struct op_sight sights[AUDIT_SIGHTS_MAX];
};

/* link.c */
void link_init(struct link *link, uint32_t index);
void link_forget(struct link *link);
struct call *link_call(struct store *store, struct link *link,
    enum call_kind kind, uint64_t now_us);
#define LINK_SEND(store, link, kind, now_us, ...)                            \
    link_send(store, link, kind, now_us, (const struct text[]){__VA_ARGS__}, \
        sizeof((const struct text[]){__VA_ARGS__}) / sizeof(struct text))
struct call *link_send(struct store *store, struct link *link,
    enum call_kind kind, uint64_t now_us, const struct text *words, size_t n);
void link_end_call(struct store *store, struct link *link, struct call *call);
bool link_is_second(const struct link *link);
bool link_is_witness(const struct store *store, const struct link *link);
/* Whether the node can be asked now. */
bool link_answers(const struct link *link);
uint16_t link_subscriber_host(const struct store *store);
const char *call_word(enum call_kind kind);
void link_load_scripts(struct store *store, struct link *link, uint64_t now_us);
void link_load_script(
    struct store *store, struct link *link, enum script_id id, uint64_t now_us);
const char *link_name(const struct store *store, const struct link *link,
    char *out, size_t out_bytes);

bool link_ask_ids(struct store *store, struct link *link, uint64_t now_us);
void link_mark(struct store *store, struct link *link, uint64_t now_us,
    struct text key, struct text value);
void copy_id(char out[41], struct text value);
struct text info_value(struct text info, const char *key);

/* Whether the node has that address. */
bool route_is_at(const struct node *node, struct text host, uint16_t port);

/* Takes a call off its connection, and frees it. */
void call_free(struct store *store, struct link *link, struct call *call);

/* Whether the connection subscribes to what brokers and scripts tell. Of a
 * quorum each node has one that does. */
bool link_listens(const struct store *store, const struct link *link);

/* Whether the connection leads to a Sentinel. */
bool sentinel_is(const struct store *store, const struct link *link);

/* Whether operations go to that connection. */
bool link_serves(const struct store *store, const struct link *link);

/* Until when the answer to the oldest call is in time. */
uint64_t link_in_time_us(const struct store *store, const struct link *link);

/* fence_clock.c */
uint64_t fence_clock_us(const struct store *store, uint64_t now_us);
bool fence_clock_hear(struct store *store, uint64_t clock_us, uint64_t now_us);
uint64_t fence_clock_floor(const struct store *store);

void trust_has_locks(struct store *store, const struct link *link);
void trust_learn(struct store *store, struct link *link, struct text run_id,
    struct text id, struct text second, uint64_t now_us);
void trust_inherit(
    struct store *store, struct link *from, struct link *link, uint64_t now_us);
bool trust_awaits(const struct link *link);
void trust_mute(struct store *store, struct link *from, uint64_t now_us);
void trust_vouch(struct store *store, struct link *from,
    const struct call *call, struct text info, bool settled, uint64_t now_us);
void trust_see(struct store *store, struct link *link, const char *id);
void trust_clock(struct store *store, struct link *link, uint64_t time_us,
    uint64_t sent_us, uint64_t now_us);
uint64_t trust_age_us(
    const struct link *link, uint64_t since_us, uint64_t time_us);
uint32_t trust_settles_ms(
    const struct store *store, const struct link *link, uint64_t now_us);
uint32_t trust_steady_ms(
    const struct store *store, const struct link *link, uint64_t now_us);
uint32_t trust_within_us(const struct store *store, const struct link *link);
void trust_unmark(struct link *link);
void trust_probe(struct link *link, uint64_t now_us);
/* PREFIX:WORD, in a cluster with a tag of the node's next slot from *slot on,
 * which becomes that. Its length; 0: the node has no slots. */
size_t trust_key(const struct store *store, const struct link *link,
    const char *word, uint16_t *slot, char out[KEY_BYTES]);

/* call.c */
enum op_grants {
    KIND_READS,
    KIND_FREES,
    KIND_PASSES,
    KIND_GRANTS,
};

void call_flush_node(struct store *store, uint16_t index, uint64_t now_us);
void call_script_reply(struct store *store, struct link *link,
    struct call *call, uint64_t now_us, const struct resp *reply);
void call_results(struct store *store, struct link *link, struct call *call,
    uint64_t now_us, struct text text);
void call_lost(struct store *store, struct call *call);
void call_probe(struct store *store, struct link *link, uint64_t now_us);
void call_probed(struct store *store, struct link *link, uint64_t now_us,
    const struct resp *reply);
void call_refuses(
    struct store *store, struct link *link, uint64_t now_us, struct text error);
uint64_t call_due_us(const struct store *store, const struct call *call);

/* confirm.c */
void confirm_drop(struct store *store, struct link *link);
void confirm_ask(struct store *store, struct link *link, uint64_t now_us);
void confirm_tick(struct store *store, struct link *link, uint64_t now_us);
uint64_t confirm_next_us(const struct store *store, const struct link *link);
bool confirm_take(struct store *store);
void confirm_fini(struct store *store);

/* replicas.c */
void replicas_begin(struct store *store, struct link *witness, uint64_t now_us);
void replicas_ask(struct store *store, struct link *witness, uint64_t now_us);
void replicas_forget(struct replicas *replicas);
uint64_t replicas_due_us(const struct store *store, const struct link *witness);
void replicas_reply(struct store *store, struct link *witness,
    const struct call *call, uint64_t now_us, const struct resp *reply);

/* route.c */
uint16_t route_node(struct store *store, struct text host, uint16_t port);
uint16_t route_of(const struct store *store, const struct op *op);
void route_requeue(struct store *store, uint64_t now_us);
bool route_slot(
    struct store *store, uint16_t slot, uint16_t node, uint64_t now_us);
bool route_redirect(struct store *store, struct text where, uint16_t from,
    uint16_t *slot, uint16_t *node);
void route_want_map(struct store *store);

bool sentinel_names(const struct store *store, uint16_t node);
void sentinel_resolve(struct store *store, uint64_t now_us);
void sentinel_greet(struct store *store, struct link *link, uint64_t now_us);
void sentinel_link_tick(
    struct store *store, struct link *link, uint64_t now_us);
uint64_t sentinel_ask_due_us(
    const struct store *store, const struct link *link);
void sentinel_info(
    struct store *store, struct link *link, const struct resp *reply);
void sentinel_hint(struct store *store, uint64_t now_us);

/* Puts an operation into the lane of its node, or parks it where there is
 * none. */
void op_route(struct store *store, struct op *op, uint64_t now_us);

/* Routes all parked operations again, but for those that back off. */
void store_route_parked(struct store *store, uint64_t now_us);

/* Whether locks are asked of the node. */
bool node_counts(const struct store *store, uint32_t index);

/* quorum.c, round.c */
bool quorum_create(struct store *store);
void quorum_destroy(struct store *store);
void quorum_take(struct store *store, struct op *op);
void quorum_dropped(struct store *store, const struct op *op);
void quorum_voted(struct store *store, struct op *op, enum op_status status);
void quorum_news(struct store *store, uint16_t node, struct text key);
void quorum_tick(struct store *store);
uint64_t quorum_next_us(const struct store *store);
bool quorum_ready(const struct store *store);

/* Ends an operation with that status: it goes back to the core, or to its round
 * as a vote. */
void op_done(struct store *store, struct op *op, enum op_status status);

/* Whether any node of the quorum is in another list. */
bool peers_other_quorum(const struct store *store);

/* audit.c */
void audit_take(struct store *store, struct op *op, uint64_t now_us);
bool audit_mark(
    struct store *store, struct link *link, const struct call *call);
void audit_marked(
    struct store *store, struct call *call, const struct resp *reply);

/* health.c */
void health_update(struct store *store, uint64_t now_us);

/* peers.c */
void peers_tick(struct store *store, struct link *link, uint64_t now_us);
uint64_t peers_next_us(const struct store *store, const struct link *link);
void peers_reply(struct store *store, struct link *link,
    const struct call *call, const struct resp *reply, uint64_t now_us);

/* lane.c */
void lane_add(
    struct store *store, struct node *node, struct op *op, bool first);
void lane_remove(struct store *store, struct op *op);
/* For each operation that waits at the node. It may be taken away. */
void lane_each(struct store *store, struct node *node, uint64_t now_us,
    void (*act)(struct store *store, struct op *op, uint64_t now_us));

/* trust.c */
/* The broker is settled with the node; `why` is for the log. */
void trust_settle(struct store *store, struct link *link, const char *why);

/* redis.settle, or the longest lease that a broker has used here of late. */
uint64_t peers_settle_us(const struct store *store, uint64_t now_us);

/* Whether the longest lease that a broker has told is still to be waited
 * for. */
bool longest_counts(const struct store *store, uint64_t now_us);

/* sentinel.c */
/* Whether a majority of the Sentinels names the node. *due_us: when to count
 * again. */
bool master_elected(const struct store *store, uint16_t candidate,
    uint64_t now_us, uint64_t *due_us);

#endif
