/*
 * Errors of calls. See call_error.c.
 */
#ifndef HOLDFAST_STORE_QUEUE_CALL_ERROR_H
#define HOLDFAST_STORE_QUEUE_CALL_ERROR_H

#include "daemon/store/model/state.h"

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

#endif
