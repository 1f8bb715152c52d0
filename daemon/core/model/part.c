/*
 * Whole and parts. A LOCK of shop/orders/17 with tree=1 first gets intentions
 * on `shop` and on `shop/orders`. These are ordinary tickets of its session and
 * owner. Intentions go together, and exclude a hold of the whole. An intention
 * has one hold for each part, and for each LOCK under way.
 *
 * An intention that no part needs is idle. It is kept for a moment, since the
 * owner's next LOCK of a part may need it: so a busy owner asks Redis for it
 * once in a while only. It ends at once if others wait that it keeps out.
 *
 * A part finds its intentions by name, and an intention its parts. A part is
 * believed in no longer than its intentions. If one is lost, so is the part.
 *
 * See DESIGN.md D10.7.
 */
#include "daemon/core/model/part.h"

#include "daemon/core/model/lock.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/state.h"

#include "daemon/base/assert.h"

bool
name_above(struct text *name)
{
    size_t len = name->len;

    while (len > 0 && name->at[len - 1] != '/')
        len--;
    if (len <= 1)
        return false;
    *name = text_make(name->at, len - 1);
    return true;
}

bool
name_has_parts(struct text name)
{
    char before = '/';

    for (size_t i = 0; i < name.len; i++) {
        if (before == '/' && name.at[i] == '/')
            return false;
        before = name.at[i];
    }
    return before != '/';
}

/* Whether the name is above the other one. */
static bool
name_is_above(struct text above, struct text name)
{
    return name.len > above.len && name.at[above.len] == '/' &&
           text_starts_with(name, above);
}

/* The owner's intention on that name. NULL: its session is being dissolved. */
static struct ticket *
part_intent(
    const struct core *core, const struct ticket *part, struct text above)
{
    const struct lock *lock = lock_find(core, above);
    struct ticket *ticket = NULL;

    if (lock != NULL)
        ticket = ticket_find(core, part->session, lock, ticket_owner(part));
    if (ticket == NULL || ticket->state != TICKET_HELD ||
        !ticket_is_intent(ticket) || ticket->holds == 0) {
        require(part->session->state == SESSION_GONE); /* DESIGN.md D10.7 */
        return NULL;
    }
    return ticket;
}

bool
intent_is_idle(const struct ticket *ticket)
{
    return ticket->state == TICKET_HELD && ticket->holds == 0 &&
           ticket_is_intent(ticket);
}

bool
intent_is_over(const struct core *core, const struct ticket *intent)
{
    require(intent_is_idle(intent) && intent->kept_us > 0);
    return intent->called || intent->reborn || core->stopping ||
           core->now_us >= intent->kept_us;
}

void
intent_keep(struct core *core, struct ticket *intent)
{
    require(intent_is_idle(intent) && intent->fate == FATE_UNATTENDED);
    intent->kept_us = intent->granted_us + INTENT_KEPT_US;
    if (intent_is_over(core, intent))
        intent->kept_us = core->now_us;
}

void
intent_called(struct core *core, struct ticket *intent)
{
    require(intent->state == TICKET_HELD && ticket_is_intent(intent));
    intent->called = true;
    if (intent_is_idle(intent))
        intent_keep(core, intent);
    ticket_arm(core, intent);
}

void
lock_called(struct core *core, const struct lock *lock)
{
    LIST_EACH (link, &lock->tickets) {
        struct ticket *ticket = container_of(link, struct ticket, lock_link);
        if (!ticket_is_intent(ticket))
            continue;
        if (ticket->state == TICKET_HELD)
            intent_called(core, ticket);
        else /* Redis may have granted it before */
            ticket->called = true;
    }
}

void
intent_give_back(struct core *core, struct ticket *intent)
{
    require(intent->state == TICKET_HELD && ticket_is_intent(intent));
    require(intent->holds > 0 && intent->fate != FATE_UNATTENDED);
    if (--intent->holds > 0)
        return;
    intent->fate = FATE_UNATTENDED;
    intent_keep(core, intent);
    if (intent_is_over(core, intent))
        ticket_stir(core, intent);
    else
        ticket_arm(core, intent);
}

void
part_join(struct core *core, struct ticket *part)
{
    struct text name = lock_name(part->lock);

    require(part->state == TICKET_HELD && part->ask.part && !part->part);
    while (name_above(&name)) {
        struct ticket *intent = part_intent(core, part, name);
        require(intent != NULL);
        intent->holds++;
    }
    part->part = true;
    ticket_set_deadline(
        part, us_min(part->deadline_us, part_deadline_us(core, part)));
    if (part->jeopardy_us != NEVER)
        part_warn_in_time(core, part);
}

void
part_warn_in_time(const struct core *core, struct ticket *part)
{
    uint64_t early_us = us_from_ms(core->settings.lease_ms) / 4;

    require(part->part && part->deadline_us != NEVER);
    part->jeopardy_us = us_min(part->jeopardy_us,
        part->deadline_us - us_min(part->deadline_us, early_us));
}

/* Gives back the part's holds of its intentions, but of the one that ends. */
static void
part_leaves(struct core *core, struct ticket *part, const struct ticket *except)
{
    struct text name = lock_name(part->lock);

    require(part->part);
    part->part = false;
    while (name_above(&name)) {
        struct ticket *intent = part_intent(core, part, name);
        if (intent != NULL && intent != except)
            intent_give_back(core, intent);
    }
}

static bool
intent_is_of(const struct ticket *intent, const struct ticket *part)
{
    return part->part && part->who == intent->who &&
           name_is_above(lock_name(intent->lock), lock_name(part->lock));
}

bool
part_moves(struct core *core, struct ticket *part)
{
    uint32_t generation = part->session->generation;
    struct text name = lock_name(part->lock);
    bool moves = false;

    require(part->part && part->state == TICKET_HELD);
    while (name_above(&name)) {
        struct ticket *intent = part_intent(core, part, name);
        if (intent == NULL ||
            (intent->generation == generation && !intent->moving))
            continue;
        intent->generation = generation;
        intent->moving = true;
        intent->renew_us = core->now_us;
        ticket_arm(core, intent);
        moves = true;
    }
    return moves;
}

void
intent_renewed(struct core *core, const struct ticket *intent)
{
    require(intent->state == TICKET_HELD && ticket_is_intent(intent));
    if (intent->holds == 0 || intent->generation == 1)
        return;
    LIST_EACH (link, &intent->session->tickets) {
        struct ticket *part = container_of(link, struct ticket, session_link);
        if (intent_is_of(intent, part) && !list_empty(&part->requests))
            ticket_stir(core, part);
    }
}

static void
intent_ends(struct core *core, const struct ticket *intent)
{
    if (intent->holds == 0 || intent->session == NULL)
        return;
    LIST_EACH (link, &intent->session->tickets) {
        struct ticket *part = container_of(link, struct ticket, session_link);
        if (!intent_is_of(intent, part))
            continue;
        part_leaves(core, part, intent);
        part->uprooted = true;
        ticket_stir(core, part);
    }
}

void
part_unheld(struct core *core, struct ticket *ticket)
{
    require(ticket->state == TICKET_HELD);
    if (ticket->part)
        part_leaves(core, ticket, NULL);
    if (ticket_is_intent(ticket))
        intent_ends(core, ticket);
}

uint64_t
part_deadline_us(const struct core *core, const struct ticket *ticket)
{
    struct text name = lock_name(ticket->lock);
    uint64_t deadline_us = NEVER;

    while (ticket->part && name_above(&name)) {
        const struct ticket *intent = part_intent(core, ticket, name);
        if (intent != NULL)
            deadline_us = us_min(deadline_us, intent->deadline_us);
    }
    return deadline_us;
}

void
part_check(const struct core *core, const struct ticket *ticket)
{
    uint32_t parts = 0;

    require(!ticket->part || ticket->state == TICKET_HELD);
    if (ticket->part)
        (void)part_deadline_us(core, ticket);
    if (ticket->state != TICKET_HELD || !ticket_is_intent(ticket))
        return;
    require(!ticket->part && ticket->hard_end_us == NEVER);
    require((ticket->kept_us > 0) == (ticket->holds == 0));
    LIST_EACH (link, &ticket->session->tickets) {
        const struct ticket *part =
            container_of(link, struct ticket, session_link);
        parts += intent_is_of(ticket, part);
    }
    require(parts <= ticket->holds);
}
