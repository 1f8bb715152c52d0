/*
 * Connections, counted by the address that they come from and by user.
 *
 * Addresses without a connection are bounded in number: the oldest makes room.
 */
#include "daemon/core/model/session_table.h"

#include "daemon/base/assert.h"

#define DELAY_FIRST_US 250000u
#define DELAY_MOST_US  8000000u
/* So long after the last one failures are forgotten. */
#define FORGET_US UINT64_C(300000000)

bool
auth_init(struct core *core)
{
    uint32_t room = core_sessions_room(&core->settings) + IDLE_MAX + 1;

    list_init(&core->idle_addresses);
    return slab_init(&core->addresses, sizeof(struct peer_address), room) &&
           table_init(&core->address_table, room);
}

void
auth_fini(struct core *core)
{
    table_abandon(&core->address_table);
    slab_fini(&core->addresses);
}

static uint64_t
address_hash(const struct core *core, const uint8_t address[16])
{
    return hash_bytes(&core->hash_key, address, 16);
}

static struct peer_address *
address_find(const struct core *core, const uint8_t address[16])
{
    uint64_t hash = address_hash(core, address);

    for (struct table_node *node = table_first(&core->address_table, hash);
         node != NULL; node = table_next(node)) {
        struct peer_address *peer =
            container_of(node, struct peer_address, table);
        if (memcmp(peer->address, address, sizeof(peer->address)) == 0)
            return peer;
    }
    return NULL;
}

static void
address_free(struct core *core, struct peer_address *address)
{
    require(address->connections == 0 && address->lingering == 0);
    require(address->waiting == 0);
    if (!list_empty(&address->idle_link)) {
        require(core->idle_count > 0);
        list_remove(&address->idle_link);
        core->idle_count--;
    }
    table_remove(&core->address_table, &address->table);
    slab_free(&core->addresses, address);
    require(core->address_table.count == core->addresses.used);
}

/* There is room: one for each connection, and for those that are idle. */
static struct peer_address *
address_obtain(struct core *core, const uint8_t address[16])
{
    struct peer_address *peer = address_find(core, address);

    require(core->idle_count <= IDLE_MAX);
    if (peer == NULL) {
        peer = slab_alloc(&core->addresses);
        require(peer != NULL);
        memcpy(peer->address, address, sizeof(peer->address));
        list_init(&peer->idle_link);
        table_insert(
            &core->address_table, &peer->table, address_hash(core, address));
    } else if (!list_empty(&peer->idle_link)) {
        require(core->idle_count > 0);
        list_remove(&peer->idle_link);
        core->idle_count--;
    }
    return peer;
}

void
address_forget(const struct core *core, struct peer_address *address)
{
    require(address->failed_us <= core->now_us);
    if (core->now_us >= us_add(address->failed_us, FORGET_US))
        address->failures = 0;
}

/* Fewer are connected from there; perhaps nobody any more. */
static void
address_left(struct core *core, struct peer_address *address)
{
    require(list_empty(&address->idle_link));
    if (address->connections + address->lingering > 0)
        return;
    address_forget(core, address);
    if (address->failures == 0) {
        address_free(core, address);
        return;
    }
    list_push_back(&core->idle_addresses, &address->idle_link);
    if (++core->idle_count > IDLE_MAX)
        address_free(core, container_of(core->idle_addresses.next,
                               struct peer_address, idle_link));
}

/* Whether another connection of that address fits; where not it is counted. */
static bool
address_admits(struct core *core, const uint8_t address[16])
{
    uint32_t max = core->settings.address_connections_max;
    const struct peer_address *peer =
        max > 0 ? address_find(core, address) : NULL;

    if (peer == NULL || peer->connections < max)
        return true;
    count(core->counters, COUNTER_limit_address);
    return false;
}

/* NULL: addresses are not counted. */
static struct peer_address *
address_count(struct core *core, const uint8_t address[16])
{
    if (core->settings.users == NULL &&
        core->settings.address_connections_max == 0)
        return NULL;
    struct peer_address *peer = address_obtain(core, address);
    peer->connections++;
    return peer;
}

bool
core_arrive(
    struct core *core, const uint8_t address[16], struct peer_address **peer)
{
    *peer = NULL;
    if (!address_admits(core, address))
        return false;
    *peer = address_count(core, address);
    return true;
}

void
core_depart(struct core *core, struct peer_address **peer)
{
    if (*peer != NULL) {
        require((*peer)->connections > 0);
        (*peer)->connections--;
        address_left(core, *peer);
    }
    *peer = NULL;
}

bool
core_linger(
    struct core *core, const uint8_t address[16], struct peer_address **peer)
{
    uint32_t max = core->settings.address_connections_max;

    require(core->idle_count <= IDLE_MAX);
    *peer = NULL;
    if (max == 0)
        return true;
    struct peer_address *from = address_find(core, address);
    if (from != NULL && from->lingering >= max)
        return false;
    *peer = address_obtain(core, address);
    (*peer)->lingering++;
    return true;
}

void
core_linger_end(struct core *core, struct peer_address **peer)
{
    if (*peer != NULL) {
        require((*peer)->lingering > 0);
        (*peer)->lingering--;
        address_left(core, *peer);
    }
    *peer = NULL;
}

bool
user_is_full(const struct core *core, const struct user *user)
{
    uint32_t max = core->settings.user_connections_max;

    return max > 0 && user->connections >= max;
}

bool
auth_admits(struct core *core, const struct core_event *event)
{
    if (!address_admits(core, event->open.address))
        return false;
    if (event->open.user != NULL && user_is_full(core, event->open.user)) {
        count(core->counters, COUNTER_limit_user_connections);
        return false;
    }
    return true;
}

void
auth_take(struct session *session, struct user *user, uint32_t mark)
{
    require(session->user == NULL);
    session->user = user;
    session->user_mark = mark;
    if (user != NULL)
        user->connections++;
}

void
auth_opened(
    struct core *core, struct session *session, const struct core_event *event)
{
    require(session->address == NULL);
    session->address = address_count(core, event->open.address);
    auth_take(session, event->open.user, event->open.mark);
}

void
auth_disconnected(struct core *core, struct session *session)
{
    if (session->user != NULL) {
        require(session->user->connections > 0);
        session->user->connections--;
    }
    core_depart(core, &session->address);
}

uint64_t
failure_delay_us(const struct peer_address *address)
{
    uint64_t delay_us = DELAY_FIRST_US;

    require(address->failures > 0);
    for (uint32_t i = 1; i < address->failures && delay_us < DELAY_MOST_US; i++)
        delay_us *= 2;
    return us_min(delay_us, DELAY_MOST_US);
}
