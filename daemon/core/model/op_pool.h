/*
 * Operations: creation, submission and end. See op_pool.c.
 */
#ifndef HOLDFAST_CORE_MODEL_OP_POOL_H
#define HOLDFAST_CORE_MODEL_OP_POOL_H

#include "daemon/core/model/state.h"

/* The object that the operation's owner handle refers to, by its kind. */
enum op_owner op_owner(const struct op *op);

/* Creates an operation with the lease of the settings. It holds a reference to
 * `lock`, which is NULL for OP_AUDIT. NULL: there is no room. */
struct op *op_create(struct core *core, enum op_kind kind, struct lock *lock,
    struct handle owner);

/* Gives the operation to the store with the effects of this step. */
void op_submit(struct core *core, struct op *op);

/* Asks the store to answer an operation at once if Redis cannot be asked
 * now. */
void op_hurry(struct core *core, struct op *op);

/* Frees an answered operation and its reference to the lock, which may be gone
 * afterwards. */
void op_free(struct core *core, struct op *op);

#endif
