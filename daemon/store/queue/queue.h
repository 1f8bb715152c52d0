/*
 * Operations on their way: lanes, calls, results.
 */
#ifndef HOLDFAST_STORE_QUEUE_QUEUE_H
#define HOLDFAST_STORE_QUEUE_QUEUE_H

#include "daemon/store/model/state.h"

/* op_queue.c */

/* Begins the store's part of an operation that is nowhere. */
void op_begin(struct op *op);

/* That time, or the operation's own end where it is sooner. */
uint64_t op_end_by(const struct op *op, uint64_t due_us);

/* Until when an operation stays at the node. A node that answers, or is tried
 * once more, has at least the command time-out. */
uint64_t queue_due_us(const struct store *store, const struct op *op,
    uint16_t index, uint64_t now_us);

/* Until when an operation waits for a route. A master that was just lost may be
 * named again at once. */
uint64_t route_due_us(const struct store *store, const struct op *op);

/* Puts an operation into its lane at the node: in front, where `first`. */
void op_enqueue(struct store *store, struct op *op, uint16_t index,
    uint64_t now_us, bool first);

/* Takes an operation out of its lane. */
void op_dequeue(struct store *store, struct op *op);

/* Parks an operation until `until_us`, or until its time is over. */
void op_park(struct store *store, struct op *op, uint64_t until_us);

/* Parks an operation to which nothing is granted for `grace_us`. It is tried
 * soon after that, soon after a node settles, or at `until_us`. */
void op_park_grace(
    struct store *store, struct op *op, uint64_t grace_us, uint64_t until_us);

/* Ends an operation with that status: it goes back to the core, or to the
 * topology that asked. */
void op_done(struct store *store, struct op *op, enum op_status status);

/* Puts an operation into the lane of its node, or parks it where there is
 * none. */
void op_route(struct store *store, struct op *op, uint64_t now_us);

/* Routes all parked operations again, but for those that back off. */
void store_route_parked(struct store *store, uint64_t now_us);

/* A node has settled, perhaps sooner than it was to: operations that are parked
 * for a grace are tried soon. */
void store_end_grace(struct store *store);

/* Moves waiting operations to the nodes that have their slots now. */
void route_requeue(struct store *store, uint64_t now_us);

/* lane.c */

/* Queues the operation in its lane of the node. `first`: before others of its
 * session. */
void lane_add(
    struct store *store, struct node *node, struct op *op, bool first);

/* Takes the operation out of its lane. The next one of its session takes its
 * place. */
void lane_remove(struct store *store, struct op *op);

/* For each operation that waits at the node. It may be taken away. */
void lane_each(struct store *store, struct node *node, uint64_t now_us,
    void (*act)(struct store *store, struct op *op, uint64_t now_us));

/* call.c */

/* When the first operation of the call must be given back. WHEEL_NEVER: all
 * have been. */
uint64_t call_due_us(const struct store *store, const struct call *call);

/* Sends the operations that wait at the node, as far as it may grant and the
 * connection has room. */
void call_flush_node(struct store *store, uint16_t index, uint64_t now_us);

/* Whether an audit marks its node with the call, which is no script then. */
bool call_is_mark(const struct call *call);

/* call_result.c */

/* Gives the results of a script's reply to its operations. A malformed reply
 * ends them as OP_REFUSED. */
void call_results(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, struct text text);

/* Takes the reply to a script. Answers that replicas must confirm are held
 * back: see confirm_take(). */
void call_script_reply(struct store *store, struct conn *conn,
    struct call *call, uint64_t now_us, const struct resp *reply);

/* call_error.c */

/* Gives back the operations of a call whose connection is gone. They are in
 * doubt, but reads are asked again. */
void call_lost(struct store *store, struct call *call);

/* Tries an operation of which nothing ran again: at `node` now, or after a
 * delay wherever its lock is then. */
void op_again(struct store *store, struct op *op, uint16_t node,
    uint64_t now_us, uint64_t delay_us);

/* Takes an error as the reply to a script. */
void call_refused(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, struct text error);

/* audit.c */

/* Sends a step of an audit to its node. Without a node it ends as OP_UNSENT, or
 * OP_GONE after the last node. */
void audit_take(struct store *store, struct op *op, uint64_t now_us);

/* Writes the mark of an audit's call to the connection. False: there is no room
 * for it now. */
bool audit_mark(
    struct store *store, struct conn *conn, const struct call *call);

/* Takes the answer to audit_mark(). OP_BUSY: the mark is another broker's. */
void audit_marked(
    struct store *store, struct call *call, const struct resp *reply);

/* confirm.c */

/* The connection is gone. Calls that it had answered are lost; after an ack
 * connection, another one is asked. */
void confirm_drop(struct store *store, struct conn *conn);

/* Asks the ack connection what replicas have. The answer covers all calls that
 * are held now. */
void confirm_ask(struct store *store, struct conn *conn, uint64_t now_us);

/* Gives back held calls that are due, and asks replicas. The connection must be
 * a node's, and ready. */
void confirm_tick(struct store *store, struct conn *conn, uint64_t now_us);

/* When confirm_tick() has something to do; WHEEL_NEVER: not. */
uint64_t confirm_next_us(const struct store *store, const struct conn *conn);

/* Ends the confirmed call that was taken last, and takes the next one's
 * results. False: there is none. */
bool confirm_take(struct store *store);

/* Frees the held replies and what is known of replicas. To be called when the
 * store ends. */
void confirm_fini(struct store *store);

#endif
