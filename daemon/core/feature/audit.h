/*
 * Audits of all that is in Redis. See audit.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_AUDIT_H
#define HOLDFAST_CORE_FEATURE_AUDIT_H

#include "daemon/core/model/state.h"

/* Takes memory and sets the time of the first audit. False: there is no
 * memory. */
bool audit_init(struct core *core);

/* Frees the memory of audits. */
void audit_fini(struct core *core);

/* Begins an audit for the request, which is answered when the audit ends.
 * False: an audit is under way. */
bool audit_request(struct core *core, struct request *request);

/* Ends the audit when the broker stops. An operation that is under way is
 * awaited. */
void audit_stop(struct core *core);

/* Takes the answer to OP_AUDIT, one step over the records of a node. */
void audit_stepped(struct core *core, struct op *op);

/* Takes the answer to an inspection of a record that the audit asked for. */
void audit_inspected(struct core *core, const struct op *op);

/* Takes a question or an answer of another broker's audit. Malformed news is
 * ignored. */
void audit_news(struct core *core, struct text news);

/* Takes the answer to OP_BREAK for a finding. */
void audit_broken(struct core *core, const struct op *op);

/* The time of the audit has come: begins it, goes on, or closes the wait for
 * answers. */
void audit_timer(struct core *core);

#endif
