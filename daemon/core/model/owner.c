/*
 * Owners: who holds locks and waits for them, within a session, by the word of
 * owner= or without one. There is one for as long as it has tickets.
 */
#include "daemon/core/model/session_table.h"

#include "daemon/base/assert.h"

bool
owner_init(struct core *core)
{
    uint32_t most = core->settings.tickets_max;

    return slab_init(&core->owners, sizeof(struct owner), most) &&
           table_init(&core->owner_table, most);
}

void
owner_fini(struct core *core)
{
    table_abandon(&core->owner_table);
    slab_fini(&core->owners);
}

static uint64_t
owner_place(
    const struct core *core, const struct session *session, uint64_t hash)
{
    const struct {
        struct handle session;
        uint64_t hash;
    } key = {slab_handle(&core->sessions, session), hash};

    return hash_bytes(&core->hash_key, &key, sizeof(key));
}

static struct owner *
owner_find_at(const struct core *core, const struct session *session,
    uint64_t hash, uint64_t place)
{
    struct table_node *node = table_first(&core->owner_table, place);

    for (; node != NULL; node = table_next(node)) {
        struct owner *owner = container_of(node, struct owner, table);
        if (owner->session == session && owner->hash == hash)
            return owner;
    }
    return NULL;
}

struct owner *
owner_find(
    const struct core *core, const struct session *session, uint64_t hash)
{
    return owner_find_at(core, session, hash, owner_place(core, session, hash));
}

/* The ticket's state is one of its owner's from now on, or no more. */
static void
owner_count(struct ticket *ticket, enum ticket_state state, bool begins)
{
    struct owner *owner = ticket->who;
    uint32_t change = begins ? 1 : UINT32_MAX;

    require(begins || state != TICKET_HELD || owner->held > 0);
    require(begins || state != TICKET_WAITING || owner->waiting > 0);
    if (state == TICKET_HELD) {
        owner->held += change;
    } else if (state == TICKET_WAITING) {
        owner->waiting += change;
        if (begins)
            list_push_back(&owner->waits, &ticket->wait_link);
        else
            list_remove(&ticket->wait_link);
    }
}

void
owner_joined(struct core *core, struct ticket *ticket)
{
    struct session *session = ticket->session;
    uint64_t place = owner_place(core, session, ticket->owner_hash);
    struct owner *owner =
        owner_find_at(core, session, ticket->owner_hash, place);

    require(ticket->who == NULL);
    if (owner == NULL) {
        owner = slab_alloc(&core->owners);
        require(owner != NULL); /* there are as many as tickets */
        owner->session = session;
        owner->hash = ticket->owner_hash;
        list_init(&owner->waits);
        table_insert(&core->owner_table, &owner->table, place);
    }
    owner->tickets++;
    ticket->who = owner;
    owner_count(ticket, ticket->state, true);
    require(core->owner_table.count == core->owners.used);
    require(owner->held + owner->waiting <= owner->tickets);
}

void
owner_left(struct core *core, struct ticket *ticket)
{
    struct owner *owner = ticket->who;

    require(owner->tickets > 0 && owner->session == ticket->session);
    owner_count(ticket, ticket->state, false);
    ticket->who = NULL;
    if (--owner->tickets > 0)
        return;
    require(owner->held == 0 && owner->waiting == 0);
    require(list_empty(&owner->waits));
    table_remove(&core->owner_table, &owner->table);
    slab_free(&core->owners, owner);
}

void
owner_state(struct ticket *ticket, enum ticket_state state)
{
    if (ticket->who == NULL || ticket->state == state)
        return;
    require(ticket->who->session == ticket->session);
    owner_count(ticket, ticket->state, false);
    owner_count(ticket, state, true);
}

bool
owner_is_in_between(const struct owner *owner)
{
    require(owner->held + owner->waiting <= owner->tickets);
    return owner->waiting > 0 && owner->held + owner->waiting > 1;
}

static void
check_owner(const struct core *core, const struct owner *owner)
{
    uint32_t tickets = 0;
    uint32_t held = 0;
    uint32_t waiting = 0;

    LIST_EACH (link, &owner->session->tickets) {
        const struct ticket *ticket =
            container_of(link, struct ticket, session_link);
        if (ticket->owner_hash != owner->hash)
            continue;
        require(ticket->who == owner);
        require((ticket->state == TICKET_WAITING) ==
                !list_empty(&ticket->wait_link));
        tickets++;
        held += ticket->state == TICKET_HELD;
        waiting += ticket->state == TICKET_WAITING;
    }
    require(tickets == owner->tickets && tickets > 0);
    require(held == owner->held && waiting == owner->waiting);
    require(owner_find(core, owner->session, owner->hash) == owner);
}

void
owner_check(const struct core *core)
{
    uint32_t tickets = 0;

    for (uint32_t i = 0; i < core->owners.touched; i++) {
        const struct owner *owner = slab_at(&core->owners, i);
        if (owner == NULL)
            continue;
        check_owner(core, owner);
        tickets += owner->tickets;
    }
    for (uint32_t i = 0; i < core->tickets.touched; i++) {
        const struct ticket *ticket = slab_at(&core->tickets, i);
        if (ticket == NULL)
            continue;
        require((ticket->who != NULL) == (ticket->session != NULL));
        tickets -= ticket->who != NULL;
    }
    require(tickets == 0);
}
