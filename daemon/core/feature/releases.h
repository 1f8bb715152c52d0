/*
 * Late releases, for a new history. See releases.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_RELEASES_H
#define HOLDFAST_CORE_FEATURE_RELEASES_H

#include "daemon/core/model/state.h"

/* Takes memory for settings.releases_kept releases of a kind. False: there is
 * none. */
bool releases_init(struct core *core);

/* Frees the memory of releases. */
void releases_fini(struct core *core);

/* Keeps the end of a hold or wait, answered to what was sent at `sent_us`. A
 * history that began later gets it again. */
void releases_note(
    struct core *core, const struct ticket *ticket, uint64_t sent_us);

/* Likewise for a detached hold, of its OP_UNLOCK_DETACHED; or for those that an
 * OP_BREAK has ended. */
void releases_note_detached(struct core *core, const struct op *op);

/* A node has another history: sends all kept releases again, in portions. */
void releases_repeat(struct core *core);

/* Sends the next portion of repeated releases of that kind. */
void releases_timer(struct core *core, struct releases *releases);

/* Takes the answer to a repeated release. Failed ones are sent again in the
 * next pass. */
void releases_answered(struct core *core, const struct op *op);

#endif
