/*
 * Connections to nodes.
 */
#ifndef HOLDFAST_STORE_MODEL_CONN_H
#define HOLDFAST_STORE_MODEL_CONN_H

#include "daemon/base/buffer.h"
#include "daemon/base/list.h"
#include "daemon/store/store.h"
#include "daemon/store/wire/record.h"

_Static_assert(HEALTH_NODES_MAX == STORE_NODES_MAX, "as many");

#define CONN_ACK STORE_NODES_MAX /* index of the first node's */
#define CONN_SUBSCRIBER \
    (2 * STORE_NODES_MAX) /* and of the subscribing connection */
#define CONN_SWITCHES  (2 * STORE_NODES_MAX + 1)
#define CONN_COUNT     STORE_CONNS
#define CONN_OUT_BYTES (1u << 20)
#define NODE_NONE      UINT16_MAX
#define KEY_BYTES      80
#define NODE_UNSAID    (UINT16_MAX - 1) /* of the log, at the start */
#define NODE_GONE      (UINT16_MAX - 2) /* one that has been forgotten */

/* conn_move() makes each move, and asserts that its table allows the move.
 * conn_check() asserts what else is legal in a state. */
enum conn_state {
    CONN_DOWN,       /* not before retry_us */
    CONN_CONNECTING, /* io has been asked */
    CONN_OPENED,     /* its TLS handshake is left */
    CONN_GREETING,   /* it tells its ids */
    CONN_PREPARING,  /* kill the predecessor, load the scripts */
    CONN_READY,
    CONN_LATE, /* READY, and its oldest call is not answered in time */
};

/* Whether locks may be missed at a node that another node, or an earlier life
 * of this one, had. See history.c and DESIGN.md D3.2. */
enum conn_history {
    HISTORY_NEW,       /* some may be: it is known for less than a lease */
    HISTORY_INHERITED, /* so may some of slots that came from another node */
    HISTORY_GUESSED,   /* INHERITED until the other node says what it is */
    HISTORY_SETTLED,   /* none */
};

enum replicas_state {
    REPLICAS_UNKNOWN,
    REPLICAS_FINE,
    REPLICAS_MISSING,
    REPLICAS_BEHIND,
    REPLICAS_ALIKE,
    REPLICAS_REFUSED,
};

/* A node's replicas as far as known, where safety is strict. */
struct replicas {
    enum replicas_state state; /* since the ack connection is connected */
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
    uint16_t write_slot; /* of the key written, or after it */
    bool counted;        /* by the cluster */
    bool create;         /* the key written is not there */
    bool late;           /* WAIT has not waited for all of them */
    bool error;          /* something was refused */
    bool never_any;      /* there is no replica, nor was there ever one */
};

/* Why a connection grants nothing now. See health.c. */
struct conn_fault {
    enum health_reason reason;
    enum health_reason told;    /* in the log */
    uint64_t told_us;           /* when; 0: never */
    char said[HEALTH_SAID_MAX]; /* by Redis or the system; printable */
};

/* The history of a node, as far as it is known. */
struct node_history {
    enum conn_history state;
    bool ids_wanted;   /* a script has seen another id, or a slot has gone */
    bool ids_asked;    /* INFO is under way */
    bool mark_refused; /* the marker: not allowed there, or no room */
    uint64_t mark_us;  /* when to read or write the marker */
    uint64_t since_us; /* it is known since then */
    uint64_t sources[STORE_NODES_MAX / 64]; /* see history_inherit() */
};

/* The clock of a node. */
struct node_clock {
    int64_t least_us;    /* it is ahead of ours by this at least */
    int64_t most_us;     /* and by this at most */
    uint64_t at_us;      /* when that was found; 0: it is not known */
    uint64_t steady_us;  /* since then it has not stepped */
    uint64_t risen_us;   /* by so much it was set forward, as far as seen */
    uint64_t rose_at_us; /* its own time then, the last one; 0: never */
};

struct conn {
    enum conn_state state;
    uint32_t index;
    uint32_t serial;           /* of the connection */
    uint16_t node;             /* NODE_NONE: the subscriber without a node */
    enum store_wish_kind wish; /* of io */
    bool readonly;             /* is a replica */
    bool demoted;              /* it says that it is no master, and is left */
    bool stranger;             /* it was in another cluster when it was asked */
    bool again;        /* until READY: one try after a good connection */
    struct buffer out; /* bytes for io to write */
    struct list calls; /* without a reply, oldest first */
    uint32_t call_count;
    uint32_t batch_count; /* of them script calls */
    uint32_t bulk_count;  /* of those: bulk, see call.c */
    uint32_t loading;     /* of them SCRIPT LOAD */
    uint64_t deadline_us; /* of connecting */
    uint64_t greeting_us; /* of the greeting, where it was too short before */
    uint64_t late_us;     /* when that it is late was logged; 0: never */
    uint64_t missing_us;  /* when a command was logged that is missing */
    uint32_t missing;     /* those that were, as bits */
    uint32_t probing;     /* answers of a probe that are to come */
    bool unproved;        /* it has not been probed, and is to be */
    char lacks[HEALTH_SAID_MAX]; /* the findings of the probe */
    uint64_t idle_us;            /* after so long it is asked something */
    uint64_t retry_us;           /* CONN_DOWN */
    uint64_t backoff_us;
    uint64_t spoke_us;      /* the last call was sent, but for those whose
                             * answer says nothing of its clock and its ids */
    uint64_t client_id;     /* of this connection, 0: not known */
    uint64_t old_client_id; /* of one that was lost */
    char run_id[41];
    bool named;              /* it has told run_id since GREETING */
    struct conn_fault fault; /* until it is ready; then: until it grants */
    char old_run_id[41];
    char id[RECORD_ID_BYTES + 1]; /* replication id last seen */
    bool first;                   /* it has no predecessor */
    struct node_history history;
    struct node_clock clock;
    struct list held;    /* answered calls that wait for replicas */
    uint32_t held_count; /* and those that have been confirmed */
    uint64_t wait_us;    /* replicas are not asked before that */
    uint64_t peers_us;   /* when to tell other brokers of us; see peers.c */
    uint32_t differs;    /* so often in a row another one was otherwise */
    uint64_t differ_told_us;
    struct replicas replicas;
};

#endif
