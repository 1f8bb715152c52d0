/*
 * Commands that were sent to a node.
 */
#ifndef HOLDFAST_STORE_MODEL_CALL_H
#define HOLDFAST_STORE_MODEL_CALL_H

#include "daemon/base/list.h"
#include "daemon/base/slab.h"

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
    uint16_t at_conn;
    bool covered; /* by the WAIT that is under way */
    char *said;   /* owned: the reply, of so many bytes */
    size_t said_len;
};

#endif
