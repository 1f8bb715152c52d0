/*
 * Sessions, their owners and their addresses.
 */
#ifndef HOLDFAST_CORE_MODEL_SESSION_H
#define HOLDFAST_CORE_MODEL_SESSION_H

#include "daemon/base/slab.h"
#include "daemon/base/table.h"
#include "daemon/core/core.h"
#include "daemon/core/model/time.h"
#include "proto/request.h"

#define SHORT_ID_BYTES 8 /* of a session's id, for people */

struct user;

/*
 * The states of a session. session_move() makes each move, and asserts that its
 * table allows the move. session_check() asserts what else is legal in a state.
 *
 *              connection  end     requests  lines behind an AUTH
 * OPEN         yes         none    any       any
 * HALF_CLOSED  yes         none    any       any
 * CLOSING      yes         set     any       any
 * QUITTING     yes         set     any       any
 * AWAY         no          none    none      none
 * GONE         no          any     none      none
 */
enum session_state {
    SESSION_OPEN,
    SESSION_HALF_CLOSED, /* FIN came behind an AUTH; lines before it are served
                          * first */
    SESSION_CLOSING,     /* takes no more requests; ends with the last reply */
    SESSION_QUITTING,    /* CLOSING, and QUIT is answered at the end */
    SESSION_AWAY, /* kept until another connection resumes it, or keep_due_us */
    SESSION_GONE, /* on core->ending; its tickets are given up in portions */
    SESSION_STATE_COUNT
};

/* The reason for a session's end. session.c has its word and its counter. */
enum session_end {
    END_NONE,
    END_QUIT,
    END_EOF,
    END_DRAIN,
    END_HEARTBEAT,
    END_RESUMED,
    END_OUTPUT,
    END_MEMORY,
    END_PROTOCOL,
    END_KILLED, /* nothing is kept */
    END_AUTH,   /* nothing is kept */
};

/* A reload of users, as the session's next timer applies it. */
enum session_recheck {
    RECHECK_NONE,
    RECHECK_RIGHTS,
    RECHECK_REVOKED, /* its user was no more: it ends at its next timer */
};

struct session {
    struct slab_node node;
    struct table_node table; /* by id */
    enum session_state state;
    enum session_end end;
    enum session_recheck recheck;
    bool drained;     /* DRAIN was sent: in any state with a connection */
    bool no_reentry;  /* HELLO reenter=0 */
    bool watch_waits; /* until the client has read its events (CORE_MORE) */
    char quit_tag[PROTO_TAG_MAX + 1]; /* QUITTING */
    uint8_t token[16];                /* secret: what its client knows it by */
    uint8_t id[16];                   /* secret: see session_table.c */
    uint64_t silence_us; /* TCP ends the session no sooner, or NEVER */
    uint32_t generation; /* the client's count of its connections */
    uint32_t watch_count;
    uint32_t member_bytes; /* of WATCH members=1, that may not be read yet */
    struct user *user;     /* ref; NULL: it is not known who it is */
    struct peer_address *address; /* ref; NULL: not counted, or no connection */
    uint64_t keep_us; /* how long its locks outlive the connection */
    char short_id[SHORT_ID_BYTES + 1];
    char client[PROTO_CLIENT_MAX];
    uint8_t client_len;
    char peer[54];
    uint32_t user_mark; /* the proof of the user: user_has_mark() */
    uint64_t opened_us;
    uint64_t heard_us;     /* of the last line */
    uint64_t heartbeat_us; /* 0: none */
    uint64_t ping_serial;
    struct wheel_node timer; /* the soonest of these; stop */
    uint64_t beat_due_us;
    uint64_t keep_due_us; /* away: its end; else that of unattended tickets */
    struct list tickets;  /* by session_link, oldest first */
    struct list requests; /* by session_link, oldest first */
    struct list behind;   /* lines that came behind an AUTH, by link */
    uint32_t auths;       /* AUTHs without a reply */
    uint32_t behind_count;
    struct list ending_link; /* core->ending */
    struct list watches;     /* by session_link */
    struct list news;        /* by news_link: watches that may have some */
    uint32_t ticket_count;
    uint32_t request_count;
    uint32_t held;        /* tickets that are HELD */
    uint32_t waiting;     /* tickets that are WAITING */
    uint64_t pressed_us;  /* a LOCK with wait=0 was the last to wait */
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

/* An address that sessions come from; see address.c. */
struct peer_address {
    struct slab_node node;
    struct table_node table; /* by address */
    struct list idle_link;   /* core->idle_addresses: no connections at all */
    uint8_t address[16];
    uint32_t connections;
    uint32_t lingering; /* connections without a session */
    uint32_t waiting;   /* AUTHs that have failed, and are not answered yet */
    uint32_t failures;  /* of late */
    uint64_t failed_us; /* the last one */
};

#endif
