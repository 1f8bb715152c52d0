/*
 * Connections, counted by the address that they come from and by user.
 *
 * What is remembered of an address with nobody connected is bounded, the oldest
 * making room.
 */
#include "daemon/core/model/source.h"

#include "daemon/base/assert.h"

#define DELAY_FIRST_US 250000u
#define DELAY_MOST_US  8000000u
/* So long after the last one failures are forgotten. */
#define FORGET_US UINT64_C(300000000)

bool
auth_init(struct core *core)
{
    uint32_t room = core_sessions_room(&core->settings) + IDLE_MAX + 1;

    list_init(&core->idle_sources);
    return slab_init(&core->sources, sizeof(struct source), room) &&
           table_init(&core->source_table, room);
}

void
auth_fini(struct core *core)
{
    table_abandon(&core->source_table);
    slab_fini(&core->sources);
}

static uint64_t
source_hash(const struct core *core, const uint8_t address[16])
{
    return hash_bytes(&core->hash_key, address, 16);
}

static struct source *
source_find(const struct core *core, const uint8_t address[16])
{
    uint64_t hash = source_hash(core, address);

    for (struct table_node *node = table_first(&core->source_table, hash);
         node != NULL; node = table_next(node)) {
        struct source *source = container_of(node, struct source, table);
        if (memcmp(source->address, address, sizeof(source->address)) == 0)
            return source;
    }
    return NULL;
}

static void
source_free(struct core *core, struct source *source)
{
    require(source->connections == 0 && source->lingering == 0);
    require(source->waiting == 0);
    if (!list_empty(&source->idle_link)) {
        list_remove(&source->idle_link);
        core->idle_count--;
    }
    table_remove(&core->source_table, &source->table);
    slab_free(&core->sources, source);
}

/* There is room: one for each connection, and for those that are idle. */
static struct source *
source_obtain(struct core *core, const uint8_t address[16])
{
    struct source *source = source_find(core, address);

    if (source == NULL) {
        source = slab_alloc(&core->sources);
        require(source != NULL);
        memcpy(source->address, address, sizeof(source->address));
        list_init(&source->idle_link);
        table_insert(
            &core->source_table, &source->table, source_hash(core, address));
    } else if (!list_empty(&source->idle_link)) {
        list_remove(&source->idle_link);
        core->idle_count--;
    }
    return source;
}

void
source_forget(const struct core *core, struct source *source)
{
    if (core->now_us >= us_add(source->failed_us, FORGET_US))
        source->failures = 0;
}

/* Fewer are connected from there; perhaps nobody any more. */
static void
source_left(struct core *core, struct source *source)
{
    if (source->connections + source->lingering > 0)
        return;
    source_forget(core, source);
    if (source->failures == 0) {
        source_free(core, source);
        return;
    }
    list_push_back(&core->idle_sources, &source->idle_link);
    if (++core->idle_count > IDLE_MAX)
        source_free(core,
            container_of(core->idle_sources.next, struct source, idle_link));
}

/* Whether another connection of that address fits; where not it is counted. */
static bool
address_admits(struct core *core, const uint8_t address[16])
{
    uint32_t max = core->settings.address_connections_max;
    const struct source *source = max > 0 ? source_find(core, address) : NULL;

    if (source == NULL || source->connections < max)
        return true;
    count(core->counters, COUNTER_limit_address);
    return false;
}

/* NULL: addresses are not counted. */
static struct source *
address_count(struct core *core, const uint8_t address[16])
{
    if (core->settings.users == NULL &&
        core->settings.address_connections_max == 0)
        return NULL;
    struct source *source = source_obtain(core, address);
    source->connections++;
    return source;
}

bool
core_arrive(
    struct core *core, const uint8_t address[16], struct source **source)
{
    *source = NULL;
    if (!address_admits(core, address))
        return false;
    *source = address_count(core, address);
    return true;
}

void
core_depart(struct core *core, struct source **source)
{
    if (*source != NULL) {
        require((*source)->connections > 0);
        (*source)->connections--;
        source_left(core, *source);
    }
    *source = NULL;
}

bool
core_linger(
    struct core *core, const uint8_t address[16], struct source **source)
{
    uint32_t max = core->settings.address_connections_max;

    *source = NULL;
    if (max == 0)
        return true;
    struct source *from = source_find(core, address);
    if (from != NULL && from->lingering >= max)
        return false;
    *source = source_obtain(core, address);
    (*source)->lingering++;
    return true;
}

void
core_linger_end(struct core *core, struct source **source)
{
    if (*source != NULL) {
        require((*source)->lingering > 0);
        (*source)->lingering--;
        source_left(core, *source);
    }
    *source = NULL;
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
    session->source = address_count(core, event->open.address);
    auth_take(session, event->open.user, event->open.mark);
}

void
auth_disconnected(struct core *core, struct session *session)
{
    if (session->user != NULL && !session->away) {
        require(session->user->connections > 0);
        session->user->connections--;
    }
    core_depart(core, &session->source);
}

uint64_t
failure_delay_us(const struct source *source)
{
    uint64_t delay_us = DELAY_FIRST_US;

    for (uint32_t i = 1; i < source->failures && delay_us < DELAY_MOST_US; i++)
        delay_us *= 2;
    return us_min(delay_us, DELAY_MOST_US);
}
