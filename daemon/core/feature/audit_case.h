/*
 * Findings of an audit. See audit_case.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_AUDIT_CASE_H
#define HOLDFAST_CORE_FEATURE_AUDIT_CASE_H

#include "daemon/core/feature/audit_run.h"

struct op_result;

/* Adds an empty finding to those of the record. */
struct finding *finding_add(struct audit *audit, enum finding_kind kind);

/* Adds the findings of a record that was read. The first old wait stands for
 * all waits of the record. */
void audit_take_tickets(struct core *core, const struct op_result *result);

/* Takes the second reading of a hold that its broker does not know. The finding
 * is an orphan if the hold is still there, and is dropped otherwise. */
void finding_looked_again(struct audit *audit, const struct op_result *result);

/* Tells of the finding, unless the run has told of it before. */
void finding_tell(
    struct core *core, struct text lock, const struct finding *finding);

/* Whether `break_ms` applies to the hold of the finding. */
bool finding_is_to_break(struct core *core, const struct finding *finding);

#endif
