/*
 * Upgrades: which of an owner's two tickets a request is about. The requests of
 * an owner for a lock are served in order: each goes to the ticket at which the
 * last one waits. That ticket may hand it to the other one. ticket.c finds and
 * creates both.
 */
#include "daemon/core/model/upgrade.h"

#include "daemon/core/model/lock.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"

#include "daemon/base/assert.h"

const char *
lock_mode(const struct core *core, struct text word, enum mode *mode)
{
    if (text_equal(word, TEXT("shared")))
        *mode = MODE_SHARED;
    else if (text_equal(word, TEXT("upgradable")))
        *mode = MODE_UPGRADABLE;
    else if (word.len > 0 && !text_equal(word, TEXT("exclusive")))
        return "mode= must be exclusive, shared or upgradable";
    if (*mode == MODE_UPGRADABLE && core->settings.no_semaphores)
        return "mode=upgradable is not supported with redis.topology quorum";
    return NULL;
}

/* Whether a request at the ticket waits for those before it. */
static bool
ticket_lines_up(const struct ticket *ticket)
{
    if (ticket == NULL || list_empty(&ticket->requests))
        return false;
    const struct request *last =
        container_of(ticket->requests.prev, struct request, ticket_link);
    require(last->ticket == ticket);
    return last->state == REQUEST_QUEUED;
}

/* Whether a request of the hold below is for this upgrade instead. The client
 * may not know of an upgrade that was granted to an earlier connection. */
static bool
upgrade_is_meant(const struct ticket *upgrade)
{
    return (upgrade_stands(upgrade) && upgrade->fate != FATE_UNATTENDED) ||
           ticket_lines_up(upgrade);
}

/* The hold below an upgrade has ended, and the fence is not that hold's. LOST
 * would be an answer about the wrong hold. */
static bool
base_is_past(const struct ticket *base, uint64_t fence)
{
    require(fence > 0 && !base->upgrade);
    return (base->state == TICKET_LEAVING || base->state == TICKET_IDLE) &&
           fence != base->fence;
}

struct ticket *
ticket_meant(const struct core *core, const struct session *session,
    const struct lock *lock, struct text owner, uint64_t fence)
{
    struct ticket *base = ticket_find(core, session, lock, owner);
    struct ticket *upgrade = ticket_find_upgrade(core, session, lock, owner);

    if (base == NULL)
        return upgrade;
    if (fence > 0)
        return upgrade_stands(upgrade) &&
                       (fence == upgrade->fence || base_is_past(base, fence))
                   ? upgrade
                   : base;
    return upgrade_is_meant(upgrade) && !ticket_lines_up(base) ? upgrade : base;
}

struct ticket *
ticket_for_lock(struct core *core, struct session *session, struct text name,
    struct text owner, const char **limit)
{
    const struct lock *lock = core->upgrades > 0 ? lock_find(core, name) : NULL;

    if (lock != NULL) {
        struct ticket *base = ticket_find(core, session, lock, owner);
        struct ticket *upgrade =
            ticket_find_upgrade(core, session, lock, owner);
        if (base == NULL ? upgrade_stands(upgrade) || ticket_lines_up(upgrade)
                         : ticket_lines_up(upgrade) && !ticket_lines_up(base))
            return upgrade;
    }
    return ticket_obtain(core, session, name, owner, limit);
}

struct ticket *
request_elsewhere(const struct core *core, const struct ticket *ticket,
    const struct request *request)
{
    bool locks = request->command == COMMAND_LOCK;
    bool held = ticket->state == TICKET_HELD;
    struct ticket *other;

    require(held || ticket->state == TICKET_IDLE);
    if (core->upgrades == 0 || request->command == COMMAND_CLAIM ||
        request->fence > 0 || request->state != REQUEST_QUEUED)
        return NULL;
    if (ticket->upgrade) {
        other = ticket_base(core, ticket);
        return held && locks && request->ask.mode != MODE_EXCLUSIVE &&
                       other != NULL && other->state != TICKET_IDLE
                   ? other
                   : NULL;
    }
    other = ticket_find_upgrade(
        core, request->session, ticket->lock, ticket_owner(ticket));
    if (held)
        return !locks && upgrade_is_meant(other) ? other : NULL;
    return upgrade_stands(other) ? other : NULL;
}

struct ticket *
ticket_base(const struct core *core, const struct ticket *upgrade)
{
    if (upgrade->session == NULL)
        return NULL;
    return ticket_find(
        core, upgrade->session, upgrade->lock, ticket_owner(upgrade));
}

uint32_t
ticket_all_holds(const struct core *core, const struct ticket *ticket)
{
    const struct ticket *other = NULL;

    if (ticket->upgrade)
        other = ticket_base(core, ticket);
    else if (ticket->session != NULL)
        other = ticket_find_upgrade(
            core, ticket->session, ticket->lock, ticket_owner(ticket));
    return ticket->holds + (other != NULL ? other->holds : 0);
}

void
ticket_set_ask(struct ticket *ticket, const struct ask *ask)
{
    ticket->ask = *ask;
    if (ticket->upgrade)
        ticket->ask.mode = MODE_UPGRADE;
    else if (ask->mode == MODE_UPGRADE)
        ticket->ask.mode = MODE_EXCLUSIVE;
}

void
request_hand(struct core *core, struct request *request, struct ticket *ticket)
{
    require(request->state == REQUEST_QUEUED && request->ticket != ticket);
    require(request->session == ticket->session);
    require(request->ticket->lock == ticket->lock);
    list_remove(&request->ticket_link);
    request->ticket = ticket;
    list_push_back(&ticket->requests, &request->ticket_link);
    ticket_stir(core, ticket);
}
