/*
 * Answers to releases. See release.c.
 */
#ifndef HOLDFAST_CORE_TICKET_RELEASE_H
#define HOLDFAST_CORE_TICKET_RELEASE_H

#include "daemon/core/model/state.h"

struct op_result;

/* Takes the answer to a release. The ticket may be gone afterwards. */
void release_done(
    struct core *core, struct ticket *ticket, const struct op_result *result);

#endif
