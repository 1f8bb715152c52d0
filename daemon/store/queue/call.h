/*
 * Batches of operations and their replies. See call.c.
 */
#ifndef HOLDFAST_STORE_QUEUE_CALL_H
#define HOLDFAST_STORE_QUEUE_CALL_H

#include "daemon/store/model/state.h"

/* When the first operation of the call must be given back. WHEEL_NEVER: all
 * have been. */
uint64_t call_due_us(const struct store *store, const struct call *call);

/* Asks the node for each command that scripts use, with a key of the probe's
 * own. Without a slot or room it sends nothing. */
void call_probe(struct store *store, struct conn *conn, uint64_t now_us);

/* Sends the operations that wait at the node, as far as it may grant and the
 * connection has room. */
void call_flush_node(struct store *store, uint16_t index, uint64_t now_us);

/* Gives back the operations of a call whose connection is gone. They are in
 * doubt, but reads are asked again. */
void call_lost(struct store *store, struct call *call);

/* The node refuses what grants, with that error. It is a fault of the
 * connection, and is logged. */
void call_refuses(
    struct store *store, struct conn *conn, uint64_t now_us, struct text error);

/* Takes the next answer to call_probe(). After the last one, missing commands
 * are a fault. */
void call_probed(struct store *store, struct conn *conn, uint64_t now_us,
    const struct resp *reply);

/* Gives the results of a script's reply to its operations. A malformed reply
 * ends them as OP_REFUSED. */
void call_results(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, struct text text);

/* Takes the reply to a script. Answers that replicas must confirm are held
 * back: see confirm_take(). */
void call_script_reply(struct store *store, struct conn *conn,
    struct call *call, uint64_t now_us, const struct resp *reply);

#endif
