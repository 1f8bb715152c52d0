/*
 * Replies to calls. See call_result.c.
 */
#ifndef HOLDFAST_STORE_QUEUE_CALL_RESULT_H
#define HOLDFAST_STORE_QUEUE_CALL_RESULT_H

#include "daemon/store/model/state.h"

/* Gives the results of a script's reply to its operations. A malformed reply
 * ends them as OP_REFUSED. */
void call_results(struct store *store, struct conn *conn, struct call *call,
    uint64_t now_us, struct text text);

/* Takes the reply to a script. Answers that replicas must confirm are held
 * back: see confirm_take(). */
void call_script_reply(struct store *store, struct conn *conn,
    struct call *call, uint64_t now_us, const struct resp *reply);

#endif
