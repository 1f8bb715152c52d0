/*
 * Streams with a mind of their own. See net.h.
 *
 * Each direction of a connection is a queue of bytes and of marks: up to here
 * the bytes are there at that time. Marks of one direction are in order of
 * time. A mark that comes while packets are held or the reader is stopped is
 * put off; bytes that have gathered then come together.
 */
#include "tests/sim/net.h"

#include "daemon/base/assert.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_MAX   65536 /* connections at a time */
#define SLOT_BITS   16
#define RETRY_US    20000 /* a held packet is tried again */
#define PORTION_MAX 700   /* now and then bytes come in pieces below it */

struct stream {
    char *bytes; /* owned */
    size_t start;
    size_t end;
    size_t capacity;
    uint64_t sent;      /* bytes ever */
    uint64_t delivered; /* bytes ever */
    uint64_t last_us;   /* of the last mark */
    bool fin;           /* follows the last byte */
    bool fin_told;
};

struct end {
    struct machine *machine;     /* ref */
    const struct net_user *user; /* ref; NULL: nobody is told any more */
    void *arg;
    uint64_t silence_us;
    struct stream out;
    bool gone; /* closed, or told that it has ended */
};

struct connection {
    bool used;
    bool open;                /* has been accepted */
    bool dead;                /* silent both ways, for ever */
    bool watched;             /* its silence is being counted */
    uint64_t silent_since_us; /* 0: packets pass */
    uint32_t id;
    struct end ends[2];
};

struct net {
    struct world *world; /* ref */

    struct {
        net_accept *accept;
        void *arg;
    } listeners[WORLD_MACHINES];
    struct connection **slots; /* owned; grows */
    uint32_t slot_count;
    uint32_t live;
    uint32_t generation;
    uint64_t extra_us;  /* mean of what packets take longer now */
    uint64_t resent_us; /* the last packet that was sent again arrives */
    uint32_t *unused;   /* owned; free slots */
    uint32_t unused_count;
};

struct net *
net_create(struct world *world)
{
    struct net *net = calloc(1, sizeof(*net));

    require(net != NULL);
    net->world = world;
    net->slots = calloc(SLOTS_MAX, sizeof(struct connection *));
    net->unused = calloc(SLOTS_MAX, sizeof(*net->unused));
    require(net->slots != NULL && net->unused != NULL);
    return net;
}

static void
stream_free(struct stream *stream)
{
    free(stream->bytes);
    memset(stream, 0, sizeof(*stream));
}

void
net_destroy(struct net **net)
{
    for (uint32_t i = 0; i < (*net)->slot_count; i++) {
        stream_free(&(*net)->slots[i]->ends[0].out);
        stream_free(&(*net)->slots[i]->ends[1].out);
        free((*net)->slots[i]);
    }
    free((*net)->slots);
    free((*net)->unused);
    free(*net);
    *net = NULL;
}

void
net_listen(
    struct net *net, struct machine *machine, net_accept *accept, void *arg)
{
    net->listeners[machine->number].accept = accept;
    net->listeners[machine->number].arg = arg;
}

static struct connection *
net_find(const struct net *net, uint32_t id)
{
    uint32_t slot = id & (SLOTS_MAX - 1);

    if (id == 0 || slot >= net->slot_count)
        return NULL;
    struct connection *connection = net->slots[slot];
    return connection->used && connection->id == id ? connection : NULL;
}

static struct connection *
net_take(struct net *net)
{
    uint32_t slot = net->slot_count;

    if (net->unused_count > 0) {
        slot = net->unused[--net->unused_count];
    } else {
        require(slot < SLOTS_MAX);
        net->slots[slot] = calloc(1, sizeof(**net->slots));
        require(net->slots[slot] != NULL);
        net->slot_count++;
    }
    struct connection *connection = net->slots[slot];
    memset(connection, 0, sizeof(*connection));
    connection->used = true;
    /* Beyond 65,535 connections in one slot ids would repeat: none has them. */
    connection->id = ++net->generation << SLOT_BITS | slot;
    net->live++;
    return connection;
}

static void
net_release(struct net *net, struct connection *connection)
{
    stream_free(&connection->ends[0].out);
    stream_free(&connection->ends[1].out);
    connection->used = false;
    net->unused[net->unused_count++] = connection->id & (SLOTS_MAX - 1);
    net->live--;
}

static unsigned
end_of(const struct connection *connection, const struct machine *machine)
{
    return connection->ends[0].machine == machine ? 0 : 1;
}

static uint64_t
packet_us(struct net *net)
{
    const struct plan *plan = &net->world->plan;
    uint64_t us = plan->latency_us;

    if (plan->jitter_us > 0)
        us += world_below(net->world, 2 * plan->jitter_us);
    if (world_odds(net->world, 500)) {
        us += world_below(net->world, 200000); /* sent again */
        if (net->world->now_us + us > net->resent_us)
            net->resent_us = net->world->now_us + us;
    }
    if (net->extra_us > 0)
        us += world_below(net->world, 2 * net->extra_us);
    return us;
}

static bool
passes(const struct connection *connection, unsigned from)
{
    const struct machine *a = connection->ends[from].machine;
    const struct machine *b = connection->ends[1 - from].machine;

    return !connection->dead && !a->silent && !b->silent &&
           !a->blocked[b->number];
}

static void net_silence(void *arg, uint64_t data);

/* Packets are held: from now on its ends count the silence. */
static void
connection_hush(struct net *net, struct connection *connection)
{
    uint64_t least_us = WORLD_NEVER;

    if (connection->watched)
        return;
    connection->watched = true;
    connection->silent_since_us = net->world->now_us;
    for (unsigned i = 0; i < 2; i++)
        if (!connection->ends[i].gone &&
            connection->ends[i].silence_us < least_us)
            least_us = connection->ends[i].silence_us;
    if (least_us < WORLD_NEVER - net->world->now_us)
        world_at(net->world, net->world->now_us + least_us, net_silence, net,
            connection->id);
}

/* Both ends are done with it. */
static void
connection_tidy(struct net *net, struct connection *connection)
{
    if (connection->ends[0].gone && connection->ends[1].gone)
        net_release(net, connection);
}

/* Tells one end that it is over; waits while its process is stopped. */
static void net_tell_end(void *arg, uint64_t data);

static void
end_over(struct net *net, struct connection *connection, unsigned side,
    enum net_end_reason reason, uint64_t at_us)
{
    if (connection->ends[side].gone)
        return;
    world_at(net->world, at_us, net_tell_end, net,
        (uint64_t)connection->id << 8 | side << 4 | (uint64_t)reason);
}

/* Whether nothing has passed for as long as that end waits. */
static bool
silent_for(const struct net *net, const struct connection *connection,
    const struct end *end)
{
    return (!passes(connection, 0) || !passes(connection, 1)) &&
           net->world->now_us >= connection->silent_since_us + end->silence_us;
}

static void
net_tell_end(void *arg, uint64_t data)
{
    struct net *net = arg;
    struct connection *connection = net_find(net, (uint32_t)(data >> 8));
    unsigned side = data >> 4 & 1;
    enum net_end_reason reason = (enum net_end_reason)(data & 15);

    if (connection == NULL || connection->ends[side].gone)
        return;
    struct end *end = &connection->ends[side];
    if (end->machine->stopped_until > net->world->now_us) {
        world_at(
            net->world, end->machine->stopped_until, net_tell_end, net, data);
        return;
    }
    if (reason == NET_TIMEOUT && !silent_for(net, connection, end)) {
        net_silence(net, connection->id); /* it has spoken, just in time */
        return;
    }
    const struct net_user *user = end->user;
    void *user_arg = end->arg;
    uint32_t id = connection->id;
    end->gone = true;
    end->user = NULL;
    if (reason == NET_TIMEOUT) {
        /* Given up here: the other end must find out by itself. */
        connection->dead = true;
        connection_hush(net, connection);
    }
    connection_tidy(net, connection);
    if (user != NULL)
        user->ended(user_arg, id, reason);
}

/* Silence has lasted long enough for one of the ends, or is over. */
static void
net_silence(void *arg, uint64_t data)
{
    struct net *net = arg;
    struct connection *connection = net_find(net, (uint32_t)data);
    uint64_t now_us = net->world->now_us;
    uint64_t next_us = WORLD_NEVER;

    if (connection == NULL)
        return;
    if (passes(connection, 0) && passes(connection, 1)) {
        connection->watched = false;
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        struct end *end = &connection->ends[i];
        uint64_t due_us = end->silence_us == WORLD_NEVER
                              ? WORLD_NEVER
                              : connection->silent_since_us + end->silence_us;
        if (end->gone || due_us == WORLD_NEVER)
            continue;
        if (due_us <= now_us)
            end_over(net, connection, i, NET_TIMEOUT,
                now_us + world_below(net->world, end->silence_us < 4000000
                                                     ? end->silence_us / 4
                                                     : 1000000));
        else if (due_us < next_us)
            next_us = due_us;
    }
    if (next_us != WORLD_NEVER)
        world_at(net->world, next_us, net_silence, net, data);
}

/* --- bytes ---------------------------------------------------------------- */

static void
stream_append(struct stream *stream, const void *bytes, size_t len)
{
    if (stream->start > 0 && stream->end + len > stream->capacity) {
        memmove(stream->bytes, stream->bytes + stream->start,
            stream->end - stream->start);
        stream->end -= stream->start;
        stream->start = 0;
    }
    if (stream->end + len > stream->capacity) {
        stream->capacity = (stream->end + len) * 2 + 512;
        stream->bytes = realloc(stream->bytes, stream->capacity);
        require(stream->bytes != NULL);
    }
    memcpy(stream->bytes + stream->end, bytes, len);
    stream->end += len;
    stream->sent += len;
}

static void net_deliver(void *arg, uint64_t data);

/* The direction is tried again when it may pass. */
static void
deliver_later(struct net *net, uint64_t data, uint64_t at_us)
{
    world_at(net->world, at_us, net_deliver, net, data);
}

/*
 * Gives the reader what is there. Returns false where the connection has
 * changed under it.
 */
static bool
deliver_bytes(
    struct net *net, struct connection *connection, unsigned from, size_t len)
{
    char portion[1 << 16]; /* its own: the reader may cut other connections */
    struct stream *stream = &connection->ends[from].out;
    struct end *reader = &connection->ends[1 - from];
    uint32_t id = connection->id;

    while (len > 0) {
        size_t part = len > sizeof(portion) ? sizeof(portion) : len;
        if (world_odds(net->world, 16) && part > 1)
            part = 1 + world_below(
                           net->world, part < PORTION_MAX ? part : PORTION_MAX);
        memcpy(portion, stream->bytes + stream->start, part);
        stream->start += part;
        stream->delivered += part;
        len -= part;
        if (stream->start == stream->end)
            stream->start = stream->end = 0;
        if (reader->user != NULL)
            reader->user->bytes(reader->arg, id, portion, part);
        if (net_find(net, id) == NULL || reader->gone)
            return false;
    }
    return true;
}

/* `data`: the id, the sending end; up to where is in the stream's order. */
static void
net_deliver(void *arg, uint64_t data)
{
    struct net *net = arg;
    struct connection *connection = net_find(net, (uint32_t)data);
    unsigned from = data >> 32 & 1;
    uint64_t upto = data >> 33;

    if (connection == NULL || connection->ends[1 - from].gone)
        return;
    struct stream *stream = &connection->ends[from].out;
    const struct machine *reader = connection->ends[1 - from].machine;
    if (!passes(connection, from)) {
        connection_hush(net, connection);
        deliver_later(net, data, net->world->now_us + RETRY_US);
        return;
    }
    if (reader->stopped_until > net->world->now_us) {
        deliver_later(net, data, reader->stopped_until);
        return;
    }
    if (passes(connection, 1 - from))
        connection->silent_since_us = net->world->now_us;
    uint64_t have = (stream->delivered & 0x7fffffff);
    if (upto > have) {
        size_t len = (size_t)(upto - have);
        if (len > stream->end - stream->start)
            len = stream->end - stream->start;
        if (world_odds(net->world, 8))
            len = stream->end - stream->start; /* it had caught up */
        if (!deliver_bytes(net, connection, from, len))
            return;
    }
    if (stream->fin && !stream->fin_told && stream->start == stream->end) {
        stream->fin_told = true;
        struct end *end = &connection->ends[1 - from];
        uint32_t id = connection->id;
        if (connection->ends[from].gone)
            end_over(net, connection, 1 - from, NET_EOF, net->world->now_us);
        else if (end->user != NULL)
            end->user->ended(end->arg, id, NET_EOF);
    }
}

static void
stream_mark(struct net *net, struct connection *connection, unsigned from)
{
    struct stream *stream = &connection->ends[from].out;
    uint64_t at_us = net->world->now_us + packet_us(net);

    if (at_us < stream->last_us)
        at_us = stream->last_us;
    stream->last_us = at_us;
    /* 31 bits of a position: more bytes no run sends on one connection. */
    require(stream->sent < 0x7fffffff);
    deliver_later(
        net, stream->sent << 33 | (uint64_t)from << 32 | connection->id, at_us);
}

void
net_send(struct net *net, uint32_t id, const struct machine *machine,
    const void *bytes, size_t len)
{
    struct connection *connection = net_find(net, id);

    if (connection == NULL || len == 0)
        return;
    unsigned side = end_of(connection, machine);
    struct end *end = &connection->ends[side];
    if (end->gone || end->out.fin || connection->ends[1 - side].gone)
        return;
    stream_append(&end->out, bytes, len);
    stream_mark(net, connection, side);
}

void
net_finish(struct net *net, uint32_t id, const struct machine *machine)
{
    struct connection *connection = net_find(net, id);

    if (connection == NULL)
        return;
    unsigned side = end_of(connection, machine);
    if (connection->ends[side].gone || connection->ends[side].out.fin)
        return;
    connection->ends[side].out.fin = true;
    stream_mark(net, connection, side);
}

void
net_close(struct net *net, uint32_t id, const struct machine *machine)
{
    struct connection *connection = net_find(net, id);

    if (connection == NULL)
        return;
    unsigned side = end_of(connection, machine);
    struct end *end = &connection->ends[side];
    if (end->gone)
        return;
    net_finish(net, id, machine);
    end->gone = true;
    end->user = NULL;
    if (end->out.fin_told)
        end_over(net, connection, 1 - side, NET_EOF, net->world->now_us);
    connection_tidy(net, connection);
}

/* --- beginning ------------------------------------------------------------ */

/* The answer is back at the one that connected. */
static void
net_opened(void *arg, uint64_t data)
{
    struct net *net = arg;
    struct connection *connection = net_find(net, (uint32_t)data);

    if (connection == NULL || connection->ends[0].gone)
        return;
    struct end *end = &connection->ends[0];
    if (!passes(connection, 1)) {
        connection_hush(net, connection);
        world_at(
            net->world, net->world->now_us + RETRY_US, net_opened, net, data);
        return;
    }
    if (end->machine->stopped_until > net->world->now_us) {
        world_at(
            net->world, end->machine->stopped_until, net_opened, net, data);
        return;
    }
    if (end->user != NULL)
        end->user->opened(end->arg, connection->id);
}

/* The kernel of a stopped process accepts for it: that waits, as bytes do. */
static void
net_arrive(void *arg, uint64_t data)
{
    struct net *net = arg;
    struct connection *connection = net_find(net, (uint32_t)data);

    if (connection == NULL)
        return;
    struct end *end = &connection->ends[1];
    struct machine *machine = end->machine;
    if (connection->ends[0].gone) {
        net_release(net, connection);
        return;
    }
    if (!passes(connection, 0)) {
        connection_hush(net, connection);
        world_at(
            net->world, net->world->now_us + RETRY_US, net_arrive, net, data);
        return;
    }
    if (machine->up && machine->stopped_until > net->world->now_us) {
        world_at(net->world, machine->stopped_until, net_arrive, net, data);
        return;
    }
    uint64_t back_us = net->world->now_us + packet_us(net);
    net_accept *accept = net->listeners[machine->number].accept;
    if (!machine->up || accept == NULL ||
        !accept(net->listeners[machine->number].arg, connection->id, &end->user,
            &end->arg, &end->silence_us)) {
        end->gone = true;
        end_over(net, connection, 0, NET_REFUSED, back_us);
        return;
    }
    connection->open = true;
    /* Silence on the way here counted for the other end alone: begin anew. */
    connection->watched = false;
    /* Nothing overtakes the answer to the connection. */
    end->out.last_us = back_us;
    world_at(net->world, back_us, net_opened, net, connection->id);
}

uint32_t
net_connect(struct net *net, struct machine *from, struct machine *to,
    const struct net_user *user, void *arg, uint64_t silence_us)
{
    struct connection *connection = net_take(net);

    connection->ends[0].machine = from;
    connection->ends[0].user = user;
    connection->ends[0].arg = arg;
    connection->ends[0].silence_us = silence_us;
    connection->ends[1].machine = to;
    connection->ends[1].silence_us = WORLD_NEVER;
    world_at(net->world, net->world->now_us + packet_us(net), net_arrive, net,
        connection->id);
    return connection->id;
}

/* --- faults --------------------------------------------------------------- */

/* The ends' streams lose what has not arrived, from a place by chance. */
static void
connection_reset(struct net *net, struct connection *connection, unsigned from)
{
    struct stream *stream = &connection->ends[from].out;
    size_t left = stream->end - stream->start;
    struct end *reader = &connection->ends[1 - from];
    uint32_t id = connection->id;

    if (left > 0 && !reader->gone && passes(connection, from) &&
        reader->machine->stopped_until <= net->world->now_us &&
        connection->open && reader->user != NULL) {
        size_t part = world_below(net->world, left + 1);
        if (part > 0 && !deliver_bytes(net, connection, from, part))
            return;
    }
    connection = net_find(net, id);
    if (connection != NULL)
        end_over(net, connection, 1 - from, NET_RESET, net->world->now_us);
}

bool
net_cut(struct net *net, uint32_t id)
{
    struct connection *cut = net_find(net, id);
    bool heard = cut != NULL && passes(cut, 0) && passes(cut, 1);

    for (unsigned side = 0; heard && side < 2; side++)
        heard = cut->ends[side].machine->stopped_until <= net->world->now_us;
    for (unsigned side = 0; side < 2; side++) {
        struct connection *connection = net_find(net, id);
        if (connection != NULL)
            connection_reset(net, connection, side);
    }
    struct connection *connection = net_find(net, id);
    if (connection != NULL)
        connection->dead = true; /* nothing arrives behind it */
    return heard;
}

void
net_cut_machine(struct net *net, const struct machine *machine)
{
    for (uint32_t i = 0; i < net->slot_count; i++) {
        const struct connection *connection = net->slots[i];
        if (connection->used && connection->open &&
            (connection->ends[0].machine == machine ||
                connection->ends[1].machine == machine))
            (void)net_cut(net, connection->id);
    }
}

void
net_cut_between(
    struct net *net, const struct machine *a, const struct machine *b)
{
    for (uint32_t i = 0; i < net->slot_count; i++) {
        const struct connection *connection = net->slots[i];
        const struct end *ends = connection->ends;
        if (connection->used && connection->open &&
            ((ends[0].machine == a && ends[1].machine == b) ||
                (ends[0].machine == b && ends[1].machine == a)))
            (void)net_cut(net, connection->id);
    }
}

void
net_half_open(struct net *net, uint32_t id)
{
    struct connection *connection = net_find(net, id);

    if (connection == NULL)
        return;
    connection->dead = true;
    connection_hush(net, connection);
}

/* Those whose packets are held now begin to count, though nothing is sent. */
static void
net_watch(struct net *net)
{
    for (uint32_t i = 0; i < net->slot_count; i++) {
        struct connection *connection = net->slots[i];
        if (connection->used &&
            (!passes(connection, 0) || !passes(connection, 1)))
            connection_hush(net, connection);
    }
}

void
net_block(struct net *net, struct machine *from, struct machine *to)
{
    from->blocked[to->number] = true;
    net_watch(net);
}

void
net_unblock_all(struct net *net)
{
    for (uint32_t i = 0; i < net->world->machine_count; i++)
        memset(net->world->machines[i].blocked, 0,
            sizeof(net->world->machines[i].blocked));
}

void
net_slow(struct net *net, uint64_t extra_us)
{
    net->extra_us = extra_us;
}

uint64_t
net_resent_us(const struct net *net)
{
    return net->resent_us;
}

void
net_process_died(struct net *net, struct machine *machine)
{
    for (uint32_t i = 0; i < net->slot_count; i++) {
        struct connection *connection = net->slots[i];
        if (!connection->used || (connection->ends[0].machine != machine &&
                                     connection->ends[1].machine != machine))
            continue;
        unsigned side = end_of(connection, machine);
        struct end *end = &connection->ends[side];
        if (end->gone || (side == 1 && !connection->open))
            continue; /* it is still on its way here */
        if (machine->silent) {
            connection->dead = true;
            end->user = NULL;
            end->gone = true;
            connection_hush(net, connection);
            connection_tidy(net, connection);
        } else if (connection->ends[1 - side].out.start <
                       connection->ends[1 - side].out.end &&
                   world_odds(net->world, 2)) {
            /* Unread bytes make it a reset. */
            end->user = NULL;
            end->gone = true;
            connection_reset(net, connection, side);
        } else {
            net_close(net, connection->id, machine);
        }
    }
    net_watch(net);
}

uint32_t
net_any(struct net *net)
{
    if (net->live == 0)
        return 0;
    uint32_t from = (uint32_t)world_below(net->world, net->slot_count);
    for (uint32_t i = 0; i < net->slot_count; i++) {
        const struct connection *connection =
            net->slots[(from + i) % net->slot_count];
        if (connection->used && connection->open)
            return connection->id;
    }
    return 0;
}

uint32_t
net_count(const struct net *net)
{
    return net->live;
}
