/*
 * Input of a connection. See reply.c.
 */
#ifndef HOLDFAST_STORE_CONN_REPLY_H
#define HOLDFAST_STORE_CONN_REPLY_H

#include "daemon/store/model/state.h"

/* Takes a reply, or a message, of the connection. */
void conn_reply(struct store *store, struct conn *conn, uint64_t now_us,
    const struct resp *reply);

#endif
