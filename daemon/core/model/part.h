/*
 * Whole and parts: holds of names with '/' (LOCK tree=1), and the intentions of
 * their owners on the names above. See DESIGN.md D10.7.
 */
#ifndef HOLDFAST_CORE_MODEL_PART_H
#define HOLDFAST_CORE_MODEL_PART_H

#include "daemon/core/model/ticket.h"

/* An idle intention is kept until so long after its grant. */
#define INTENT_KEPT_US UINT64_C(1000000)

/* Cuts the last part off the name. False: there is no name above it. */
bool name_above(struct text *name);

/* Whether the name consists of parts that are not empty. */
bool name_has_parts(struct text name);

/* The ticket is an intention. */
static inline bool
ticket_is_intent(const struct ticket *ticket)
{
    return mode_is_intent(ticket->ask.mode);
}

/* Whether the ticket is an intention that is held, and that no part needs. */
bool intent_is_idle(const struct ticket *ticket);

/* Whether an idle intention must end now: it was kept for long enough, others
 * wait, or the broker stops. */
bool intent_is_over(const struct core *core, const struct ticket *intent);

/* An intention without holds is kept from now on. The caller arms the timer. */
void intent_keep(struct core *core, struct ticket *intent);

/* Others wait that the intention is in the way of: it is not kept any more. */
void intent_called(struct core *core, struct ticket *intent);

/* Others wait for the lock: its intentions are not kept any more. */
void lock_called(struct core *core, const struct lock *lock);

/* Gives back the intention's hold for one part, or for a LOCK that has not got
 * its part. Without parts the intention is idle. */
void intent_give_back(struct core *core, struct ticket *intent);

/* The hold ends. A part gives its holds of intentions back. The parts of an
 * intention are lost: they end when the step ends. */
void part_unheld(struct core *core, struct ticket *ticket);

/* The hold becomes a part: each name above has an intention of its owner, which
 * gets one more hold. The caller arms the timer. */
void part_join(struct core *core, struct ticket *part);

/* The session's latest connection goes on with the part: whether Redis must be
 * asked first if the intentions are still there. It is asked then, and the part
 * is stirred at the answers. */
bool part_moves(struct core *core, struct ticket *part);

/* The intention was renewed: requests of its parts may wait for that. */
void intent_renewed(struct core *core, const struct ticket *intent);

/* The soonest deadline of the intentions; NEVER: the ticket is no part. */
uint64_t part_deadline_us(const struct core *core, const struct ticket *ticket);

/* Makes the warning come before the deadline of the part's intentions. */
void part_warn_in_time(const struct core *core, struct ticket *part);

/* Asserts that each part has its intentions, and each intention as many holds
 * as it has parts, or more. */
void part_check(const struct core *core, const struct ticket *ticket);

#endif
