/*
 * Three cores before one fake Redis, and clients that do anything at any time:
 * locks of all kinds, several names, claims after a connection was lost at the
 * same broker or another one, orders of operators, watches; brokers that crash,
 * drain and come again.
 *
 * After each step: every invariant of the core; those who believe that they
 * hold a lock may hold it together, by what they were told and until their own
 * deadlines; nobody is told of a fence that another one was told of, or of an
 * older one than an exclusive holder's; each request has at most one final
 * reply, in time, with an error that its command may have, and exactly one
 * where its session said BYE in good order. In the end who watches knows how it
 * is, and nothing is left over.
 */
#include "tests/unit/core_net.h"
#include "tests/unit/seed.h"

#include "daemon/core/model/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS      200000
#define CORES       3
#define SLOTS       12 /* connections of a core */
#define CLIENTS     8
#define LOCKS       6
#define OWNERS      2
#define NAMES_MAX   3
#define REQUESTS    512 /* tags in use again after so many */
#define FENCES      65536
#define LEASE_MS    2000
#define TIMEOUT_US  300000u
#define PATIENCE_US 600000u
#define SILENCE_US  400000u
#define GRACE_US    1000000u
#define SLACK_US    150000u
#define DOUBT_US    300000u /* of the end of a hold: the way there, and drift */

Suite *core_random_suite(void);

struct conn {
    bool open;
    bool closing; /* QUIT or FIN was sent */
    bool dead;    /* nothing arrives any more, either way */
    bool drained; /* DRAIN has come */
    int client;   /* -1: a dead one's, or one that has gone on */
    uint32_t serial;
    uint64_t spoke_us;
    bool watched[LOCKS];
    bool heard[LOCKS]; /* what, if anything */
    uint64_t heard_fence[LOCKS];
};

/* What a client knows of one of its requests. */
struct asked {
    bool open;
    enum command command;
    unsigned core;
    unsigned slot;
    uint32_t serial; /* of the connection */
    int client;
    unsigned locks[NAMES_MAX];
    unsigned names;
    unsigned owner;
    bool shared;
    uint32_t permits;
    uint32_t limit;
    uint64_t fence;
    uint64_t sent_us;
    uint64_t wait_us;
    bool leased;
};

struct belief {
    bool held;
    bool mortal;     /* somebody wants to break it */
    bool leased;     /* a LOCK asked for lease=: PING may leave it out */
    uint32_t serial; /* of the connection on which it is held */
    uint64_t deadline_us;
    uint64_t fence;
    uint32_t count;
    bool shared;
    uint32_t permits;
    uint32_t limit;
    unsigned unlocks;   /* sent and not answered */
    unsigned claims;    /* likewise */
    unsigned renews;    /* likewise */
    uint64_t renew_us;  /* the soonest end that they set */
    unsigned sharing;   /* LOCK mode=shared, likewise */
    uint64_t shared_us; /* the last one was sent */
};

struct client {
    char id[33];
    uint8_t key[16]; /* that, in binary */
    uint32_t generation;
    bool named; /* it has an id */
    uint64_t keep_us;
    int core; /* -1: not connected */
    unsigned slot;
    struct belief beliefs[LOCKS][OWNERS];
};

/* To whom a fence was told. */
struct told {
    unsigned lock;
    uint64_t fence;
    uint8_t key[16];
    unsigned owner;
};

static struct world {
    struct net net;
    struct conn conns[CORES][SLOTS];
    struct client clients[CLIENTS];
    struct asked asked[REQUESTS];
    uint64_t stopped_us[CORES]; /* 0: runs */
    unsigned next_tag;
    uint32_t next_serial;
    struct told told[FENCES];
    unsigned told_count;
    uint64_t exclusive[LOCKS]; /* the last fence of such a grant */
    uint64_t highest[LOCKS];
    uint64_t breaking_us[LOCKS]; /* until then a BREAK may be under way */
    bool calm;
    uint64_t grants, losses, claims, deadlocks, events;
    uint64_t finals[COMMAND_COUNT];
} world;

static unsigned
pick(unsigned bound)
{
    return net_pick(&world.net, bound);
}

static bool
one_in(unsigned count)
{
    return pick(count) == 0;
}

static struct client *
client_of(const struct conn *conn)
{
    return conn->client < 0 ? NULL : &world.clients[conn->client];
}

/* --- beliefs -------------------------------------------------------------- */

/* Whether the broker that it was told by would tell of its end. */
static bool
attached(const struct client *client, const struct belief *belief)
{
    if (client->core < 0)
        return false;
    const struct conn *conn = &world.conns[client->core][client->slot];
    return conn->serial == belief->serial && !conn->dead && !conn->closing;
}

static bool
believes(const struct client *client, const struct belief *belief)
{
    if (attached(client, belief))
        return belief->held;
    return belief->held && !belief->mortal &&
           world.net.now_us < belief->deadline_us;
}

static void
show_believers(unsigned lock)
{
    for (unsigned i = 0; i < CLIENTS * OWNERS; i++) {
        const struct client *client = &world.clients[i / OWNERS];
        const struct belief *belief = &client->beliefs[lock][i % OWNERS];
        if (believes(client, belief))
            printf("%.10s..%s owner %u: fence=%" PRIu64
                   " deadline=%.3f attached=%d shared=%d\n",
                client->id, client->id + 14, i % OWNERS, belief->fence,
                (double)belief->deadline_us / 1e6, attached(client, belief),
                belief->shared);
    }
}

static void
check_believers(unsigned lock)
{
    unsigned exclusive = 0;
    unsigned shared = 0;
    uint32_t permits = 0;
    uint32_t limit = 0;

    for (unsigned i = 0; i < CLIENTS * OWNERS; i++) {
        const struct client *client = &world.clients[i / OWNERS];
        const struct belief *belief = &client->beliefs[lock][i % OWNERS];
        if (!believes(client, belief))
            continue;
        if (belief->limit > 0) {
            permits += belief->permits;
            rig_must(limit == 0 || limit == belief->limit);
            limit = belief->limit;
        } else if (belief->shared || belief->sharing > 0) {
            shared++;
        } else {
            exclusive++;
        }
    }
    if (exclusive > 1 || (exclusive == 1 && shared > 0) ||
        (permits > 0 && (exclusive > 0 || shared > 0)) || permits > limit) {
        show_believers(lock);
        ck_abort_msg("lock %c: %u exclusive, %u shared, %u of %u permits",
            'a' + lock, exclusive, shared, permits, limit);
    }
}

static void
lose_all(struct client *client)
{
    memset(client->beliefs, 0, sizeof(client->beliefs));
}

/* The process is no more; another one takes its place. */
static void
client_dies(struct client *client)
{
    lose_all(client);
    client->named = false;
    client->keep_us = 0;
    client->generation = 0;
    client->core = -1;
}

/*
 * The client goes on without this connection: what it asked for there may have
 * been done. Where it sees that end (or makes it), what it has, or has claimed,
 * outlives it by keep= and no longer.
 */
static void
client_unsure(struct client *client, bool ended)
{
    uint64_t end_us = world.net.now_us + client->keep_us;

    for (unsigned i = 0; i < LOCKS * OWNERS; i++) {
        struct belief *belief = &client->beliefs[i / OWNERS][i % OWNERS];
        bool claimed = attached(client, belief) || belief->claims > 0;
        /* Without keep= what was not claimed ends with the session, too. */
        bool gone = claimed ? ended : client->keep_us == 0;
        if (gone && end_us < belief->deadline_us)
            belief->deadline_us = end_us;
        belief->claims = belief->renews = 0;
        belief->shared = belief->shared || belief->sharing > 0;
        belief->sharing = 0;
        belief->unlocks = 0;
    }
    client->core = -1;
}

/* What a connection knew and did not hear goes with it. */
static void
conn_forget(unsigned core, unsigned slot)
{
    struct conn *conn = &world.conns[core][slot];
    struct client *client = client_of(conn);

    for (unsigned i = 0; i < REQUESTS; i++) {
        struct asked *asked = &world.asked[i];
        if (!asked->open || asked->serial != conn->serial)
            continue;
        asked->open = false;
    }
    if (client != NULL)
        client_unsure(client, true);
    memset(conn, 0, sizeof(*conn));
    conn->client = -1;
}

/* --- what clients are told ------------------------------------------------ */

static uint64_t
number_of(const char *line, const char *key)
{
    const char *at = strstr(line, key);

    return at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
}

/* Nobody else was told of it, or of anything that may not come before it. */
static void
check_fence(const struct client *client, unsigned lock, unsigned owner,
    uint64_t fence, bool exclusive)
{
    for (unsigned i = 0; i < world.told_count; i++) {
        const struct told *told = &world.told[i];
        if (told->lock != lock || told->fence != fence)
            continue;
        rig_must(memcmp(told->key, client->key, 16) == 0);
        rig_must(told->owner == owner);
        return;
    }
    if (fence <= world.exclusive[lock])
        ck_abort_msg("%c %" PRIu64 " is told after %" PRIu64, 'a' + lock, fence,
            world.exclusive[lock]);
    if (exclusive && fence <= world.highest[lock])
        ck_abort_msg("%c %" PRIu64 " is told, alone, after %" PRIu64,
            'a' + lock, fence, world.highest[lock]);
    if (exclusive)
        world.exclusive[lock] = fence;
    if (fence > world.highest[lock])
        world.highest[lock] = fence;
    struct told *told = &world.told[world.told_count++ % FENCES];
    rig_must(world.told_count < FENCES);
    *told = (struct told){.lock = lock, .fence = fence, .owner = owner};
    memcpy(told->key, client->key, 16);
    world.grants++;
}

static void
believe(struct client *client, const struct asked *asked, unsigned lock,
    uint64_t fence, const char *line)
{
    struct belief *belief = &client->beliefs[lock][asked->owner];
    uint32_t count = (uint32_t)number_of(line, " count=");

    const struct net_entry *entry =
        net_hold(&world.net, lock, client->key, fence);
    belief->mortal = (belief->mortal && belief->held) ||
                     (entry != NULL && entry->broken) ||
                     world.net.now_us < world.breaking_us[lock];
    belief->serial = asked->serial;
    belief->deadline_us = asked->sent_us + 1000 * number_of(line, " ttl_ms=");
    if (belief->renews > 0 && belief->renew_us < belief->deadline_us)
        belief->deadline_us = belief->renew_us;
    belief->fence = fence;
    belief->count = count;
    if (asked->shared && belief->held && asked->limit == 0)
        belief->shared = true;
    if (!belief->held && asked->command == COMMAND_LOCK) {
        belief->shared = asked->shared || belief->shared_us >= asked->sent_us;
        belief->permits = asked->permits;
        belief->limit = asked->limit;
    }
    belief->held = belief->unlocks == 0;
}

static void
told_locked(struct client *client, const struct asked *asked, const char *line)
{
    const char *at = strstr(line, " fence=");

    rig_must(at != NULL && number_of(line, " count=") > 0);
    at += strlen(" fence=");
    for (unsigned i = 0; i < asked->names; i++) {
        char *end;
        uint64_t fence = strtoull(at, &end, 10);
        const struct belief *belief =
            &client->beliefs[asked->locks[i]][asked->owner];
        bool exclusive = !asked->shared && asked->limit == 0 &&
                         belief->shared_us < asked->sent_us;
        rig_must(*end == (i + 1 < asked->names ? ',' : ' '));
        at = end + 1;
        if (belief->held && attached(client, belief))
            rig_must(belief->fence == fence);
        check_fence(client, asked->locks[i], asked->owner, fence, exclusive);
        believe(client, asked, asked->locks[i], fence, line);
    }
}

static void
told_claimed(struct client *client, const struct asked *asked, const char *line)
{
    rig_must(number_of(line, " fence=") == asked->fence);
    world.claims++;
    believe(client, asked, asked->locks[0], asked->fence, line);
}

/* LOST is final: there must be no such hold, or none that could be had. */
static void
told_not_claimed(
    struct client *client, const struct asked *asked, const char *code)
{
    struct belief *belief = &client->beliefs[asked->locks[0]][asked->owner];
    const struct net_entry *entry =
        net_hold(&world.net, asked->locks[0], client->key, asked->fence);

    if (strncmp(code, "LOST", 4) != 0)
        return;
    /* What a lease= of the client has ended may stand in Redis for longer. */
    bool over = belief->fence == asked->fence &&
                belief->deadline_us <= world.net.now_us;
    if (entry != NULL && !entry->broken && entry->claimed && !over &&
        entry->ends_us > world.net.now_us + DOUBT_US && !world.net.faults &&
        !world.net.losses)
        ck_abort_msg("%c %" PRIu64 " is there, and called lost",
            'a' + asked->locks[0], asked->fence);
    if (belief->fence == asked->fence)
        belief->held = false;
}

static void
told_ok(struct client *client, const struct asked *asked, const char *line)
{
    struct belief *belief = &client->beliefs[asked->locks[0]][asked->owner];

    if (asked->command == COMMAND_LOCK)
        told_locked(client, asked, line);
    else if (asked->command == COMMAND_CLAIM)
        told_claimed(client, asked, line);
    else if (asked->command == COMMAND_UNLOCK)
        belief->count = (uint32_t)number_of(line, " count=");
    else if (asked->command == COMMAND_RENEW && belief->held &&
             attached(client, belief))
        belief->deadline_us =
            asked->sent_us + 1000 * number_of(line, " ttl_ms=");
}

/* The errors that PROTOCOL.md has for a command, and those that all may get. */
static void
check_code(const struct asked *asked, const char *code)
{
    static const char *const codes[COMMAND_COUNT] = {
        [COMMAND_LOCK] = ("BUSY TIMEOUT CANCELLED CONFLICT DEADLOCK "
                          "UNAVAILABLE INDOUBT DRAINING LOST"),
        [COMMAND_UNLOCK] = "NOTHELD STALE LOST INDOUBT",
        [COMMAND_RENEW] = "NOTHELD STALE LOST CONFLICT UNAVAILABLE INDOUBT",
        [COMMAND_CLAIM] = "LOST UNAVAILABLE INDOUBT DRAINING",
        [COMMAND_SHOW] = "UNAVAILABLE",
        [COMMAND_WATCH] = "CONFLICT UNAVAILABLE CANCELLED",
        [COMMAND_UNWATCH] = "NOTHELD",
        [COMMAND_BREAK] = "UNAVAILABLE INDOUBT",
        [COMMAND_KILL] = "NOTHELD",
        [COMMAND_AUDIT] = "BUSY DRAINING UNAVAILABLE",
    };
    char word[20] = "";

    (void)sscanf(code, "%19[A-Z]", word);
    if (strcmp(word, "LIMIT") == 0 || strcmp(word, "INTERNAL") == 0)
        return;
    const char *may = codes[asked->command];
    if (may == NULL || strstr(may, word) == NULL)
        ck_abort_msg("%s: %s", command_name(asked->command), code);
}

static void
told_error(struct client *client, const struct asked *asked, const char *code)
{
    check_code(asked, code);
    if (strncmp(code, "DEADLOCK", 8) == 0) {
        rig_must(strstr(code, " cycle=") != NULL);
        world.deadlocks++;
    }
    bool whole = strncmp(code, "LIMIT", 5) == 0 ||
                 strncmp(code, "DRAINING", 8) == 0 ||
                 strncmp(code, "CANCELLED", 9) == 0;
    if (asked->names > 1 && !whole)
        rig_must(strstr(code, " name=") != NULL);
    if (client != NULL && asked->command == COMMAND_CLAIM)
        told_not_claimed(client, asked, code);
}

static void
told_final(unsigned core, unsigned slot, const char *line)
{
    struct asked *asked = &world.asked[strtoul(line, NULL, 10) % REQUESTS];
    struct conn *conn = &world.conns[core][slot];
    struct client *client = client_of(conn);
    const char *word = strchr(line, ' ') + 1;
    uint64_t took_us = world.net.now_us - asked->sent_us;

    if (!asked->open)
        ck_abort_msg("answered twice: %s", line);
    rig_must(asked->core == core && asked->slot == slot);
    asked->open = false;
    world.finals[asked->command]++;
    /* Before it a LOCK of several names may be asking for one after another. */
    uint64_t may_us = asked->wait_us == 0
                          ? PATIENCE_US + 3 * TIMEOUT_US + SLACK_US
                          : SLACK_US;
    if (took_us > asked->wait_us &&
        took_us - asked->wait_us > TIMEOUT_US + may_us)
        ck_abort_msg("%s: after %" PRIu64 " us of %" PRIu64, line, took_us,
            asked->wait_us);
    if (client != NULL && asked->command == COMMAND_UNLOCK)
        client->beliefs[asked->locks[0]][asked->owner].unlocks--;
    if (client != NULL && asked->command == COMMAND_CLAIM)
        client->beliefs[asked->locks[0]][asked->owner].claims--;
    if (client != NULL && asked->command == COMMAND_RENEW)
        client->beliefs[asked->locks[0]][asked->owner].renews--;
    /* Whatever the answer: what was exclusive is so no more. */
    for (unsigned i = 0; client != NULL && i < asked->names; i++) {
        struct belief *belief = &client->beliefs[asked->locks[i]][asked->owner];
        if (asked->command != COMMAND_LOCK || !asked->shared)
            continue;
        belief->sharing--;
        belief->shared = belief->shared || belief->held;
    }
    if (strncmp(word, "OK", 2) == 0) {
        if (client != NULL)
            told_ok(client, asked, line);
        return;
    }
    rig_must(strncmp(word, "ERR ", 4) == 0);
    told_error(client, asked, word + 4);
}

static void
told_lost(const struct conn *conn, struct client *client, const char *line)
{
    unsigned lock = (unsigned)(line[7] - 'a');
    const char *owner = strstr(line, " owner=");
    uint64_t fence = number_of(line, " fence=");

    rig_must(lock < LOCKS && fence > 0);
    if (client == NULL)
        return;
    struct belief *belief = &client->beliefs[lock][owner == NULL ? 0 : 1];
    if (belief->serial == conn->serial && belief->held)
        rig_must(belief->fence == fence);
    if (belief->fence == fence)
        belief->held = false;
    world.losses++;
}

static void
told_state(struct conn *conn, const char *line)
{
    bool held = line[2] == 'H';
    unsigned lock = (unsigned)(line[7] - 'a');

    rig_must(lock < LOCKS && conn->watched[lock]);
    conn->heard[lock] = true;
    conn->heard_fence[lock] = held ? number_of(line, " fence=") : 0;
    world.events++;
}

static void
told(unsigned core, unsigned slot, const char *line)
{
    struct conn *conn = &world.conns[core][slot];

    if (line[0] == '*') {
        if (strncmp(line, "* LOST ", 7) == 0)
            told_lost(conn, client_of(conn), line);
        else if (strncmp(line, "* HELD ", 7) == 0 ||
                 strncmp(line, "* FREE ", 7) == 0)
            told_state(conn, line);
        else if (strncmp(line, "* DRAIN ", 8) == 0)
            conn->drained = true;
        return;
    }
    const char *word = strchr(line, ' ') + 1;
    if (strncmp(word, "ITEM ", 5) != 0 && strncmp(word, "QUEUED ", 7) != 0)
        told_final(core, slot, line);
}

/* It was closed by the broker: then all has been answered, but after KILL. */
static void
conn_closed(unsigned core, unsigned slot, bool killed)
{
    struct conn *conn = &world.conns[core][slot];

    for (unsigned i = 0; i < REQUESTS; i++)
        if (!conn->dead && !killed && world.asked[i].open &&
            world.asked[i].serial == conn->serial)
            ck_abort_msg("request %u of a closed connection is open", i);
    conn_forget(core, slot);
}

static void
hear_slot(unsigned core, unsigned slot)
{
    struct rig *rig = world.net.rigs[core];
    struct conn *conn = &world.conns[core][slot];
    bool killed = false;
    const char *line;

    while ((line = rig_line(rig, slot))[0] != '\0') {
        rig_must(conn->open);
        net_trace(&world.net, core, slot, conn->dead ? "xx" : "<-", line);
        killed = killed || strcmp(line, "* BYE killed") == 0 ||
                 strcmp(line, "* BYE heartbeat") == 0;
        if (!conn->dead)
            told(core, slot, line);
    }
    if (conn->open && rig->sessions[slot].closed)
        conn_closed(core, slot, killed);
}

static void
hear(struct net *net, unsigned core)
{
    (void)net;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        hear_slot(core, slot);
    for (unsigned lock = 0; lock < LOCKS; lock++)
        check_believers(lock);
}

/* --- what clients do ------------------------------------------------------ */

static struct asked *
ask(const struct client *client, enum command command, unsigned *tag)
{
    struct asked *asked = &world.asked[world.next_tag % REQUESTS];
    const struct conn *conn = &world.conns[client->core][client->slot];

    if (asked->open)
        return NULL;
    *tag = world.next_tag++;
    *asked = (struct asked){.open = true,
        .command = command,
        .core = (unsigned)client->core,
        .slot = client->slot,
        .serial = conn->serial,
        .client = conn->client,
        .names = 1,
        .sent_us = world.net.now_us,
        .wait_us = WHEEL_NEVER};
    return asked;
}

static void
say(const struct client *client, const char *line)
{
    world.conns[client->core][client->slot].spoke_us = world.net.now_us;
    net_say(&world.net, (unsigned)client->core, client->slot, line);
}

static void
ask_for_kind(struct asked *asked, char *line, size_t room)
{
    size_t len = strlen(line);
    unsigned lock = asked->locks[0];

    asked->permits = 1;
    if (lock == 2 || one_in(40)) {
        asked->limit = one_in(30) ? 2 : 3;
        asked->permits = 1 + pick(asked->limit);
        snprintf(line + len, room - len, " limit=%u permits=%u", asked->limit,
            asked->permits);
    } else if (lock != 0 && one_in(2)) {
        asked->shared = true;
        snprintf(line + len, room - len, " mode=shared");
    }
}

/* From the sending of a LOCK on: a hold of an earlier connection that has not
 * been claimed here may be given back for want of an answer. */
static void
stake(const struct client *client, const struct asked *asked,
    struct belief *belief)
{
    if (belief->held && !attached(client, belief))
        belief->held = false;
    belief->leased = belief->leased || asked->leased;
    if (!asked->shared)
        return;
    belief->sharing++;
    belief->shared_us = world.net.now_us;
}

static void
client_lock(struct client *client)
{
    static const struct {
        const char *key;
        uint64_t us;
    } waits[] = {{"", WHEEL_NEVER}, {"", WHEEL_NEVER}, {" wait=0", 0},
        {" wait=50", 50000}, {" wait=1s", 1000000}, {" wait=4s", 4000000}};

    static const char *const rest[] = {"", "", "", " lease=30", " lease=700",
        " lease=5s", " delay=300", " progress=1", " deadlock=0", " note=n"};
    char line[120];
    unsigned tag;
    struct asked *asked = ask(client, COMMAND_LOCK, &tag);
    unsigned wait = pick(6);

    if (asked == NULL)
        return;
    asked->owner = pick(OWNERS);
    asked->wait_us = waits[wait].us;
    asked->names = one_in(4) ? 2 + pick(NAMES_MAX - 1) : 1;
    unsigned first = pick(LOCKS);
    int len = snprintf(line, sizeof(line), "%u LOCK", tag);
    for (unsigned i = 0; i < asked->names; i++) {
        asked->locks[i] = (first + i * (1 + tag % 2)) % LOCKS;
        len += snprintf(line + len, sizeof(line) - (size_t)len, " %c",
            'a' + asked->locks[i]);
    }
    ask_for_kind(asked, line, sizeof(line));
    len = (int)strlen(line);
    const char *more = rest[pick(10)];
    asked->leased = strncmp(more, " lease=", 7) == 0;
    snprintf(line + len, sizeof(line) - (size_t)len, "%s%s%s", waits[wait].key,
        more, asked->owner ? " owner=w" : "");
    for (unsigned i = 0; i < asked->names; i++)
        stake(client, asked, &client->beliefs[asked->locks[i]][asked->owner]);
    say(client, line);
}

static void
client_unlock(struct client *client)
{
    char line[90];
    unsigned tag;
    bool renew = one_in(5);
    struct asked *asked =
        ask(client, renew ? COMMAND_RENEW : COMMAND_UNLOCK, &tag);
    uint64_t lease_ms = one_in(2) ? 300 : 3000;

    if (asked == NULL)
        return;
    asked->locks[0] = pick(LOCKS);
    asked->owner = pick(OWNERS);
    /* Mostly something that it has. */
    for (unsigned i = 0; i < LOCKS * OWNERS && !one_in(10); i++) {
        if (client->beliefs[asked->locks[0]][asked->owner].held)
            break;
        asked->locks[0] = (asked->locks[0] + 1) % LOCKS;
        asked->owner = (asked->owner + (asked->locks[0] == 0)) % OWNERS;
    }
    struct belief *belief = &client->beliefs[asked->locks[0]][asked->owner];
    int len = snprintf(line, sizeof(line), "%u %s %c%s", tag,
        renew ? "RENEW" : "UNLOCK", 'a' + asked->locks[0],
        asked->owner ? " owner=w" : "");
    if (renew) {
        uint64_t end_us = world.net.now_us + 1000 * lease_ms;
        if (end_us < belief->deadline_us)
            belief->deadline_us = end_us;
        if (belief->renews++ == 0 || end_us < belief->renew_us)
            belief->renew_us = end_us;
        snprintf(line + len, sizeof(line) - (size_t)len, " lease=%" PRIu64,
            lease_ms);
    } else {
        belief->unlocks++;
        belief->held = false;
    }
    say(client, line);
}

static void
client_cancel(struct client *client)
{
    const struct conn *conn = &world.conns[client->core][client->slot];
    unsigned from = pick(REQUESTS);
    unsigned tag;
    char line[60];

    for (unsigned i = 0; i < REQUESTS; i++) {
        unsigned at = (from + i) % REQUESTS;
        const struct asked *other = &world.asked[at];
        if (!other->open || other->command != COMMAND_LOCK ||
            other->serial != conn->serial)
            continue;
        /* The tag that was given for this place last. */
        unsigned last = world.next_tag - 1;
        last -= (last - at) % REQUESTS;
        if (ask(client, COMMAND_CANCEL, &tag) == NULL)
            return;
        snprintf(line, sizeof(line), "%u CANCEL %u", tag, last);
        say(client, line);
        return;
    }
}

/* Sets the deadline of all that this connection has. */
static void
client_ping(struct client *client)
{
    const struct conn *conn = &world.conns[client->core][client->slot];
    struct rig *rig = world.net.rigs[client->core];
    const char *line;
    unsigned slot = client->slot;

    if (conn->closing)
        return;
    rig_say(rig, slot, "PING");
    world.conns[client->core][slot].spoke_us = world.net.now_us;
    line = rig_line(rig, slot);
    rig_must(strncmp(line, "- OK", 4) == 0);
    uint64_t end_us = world.net.now_us + 1000 * number_of(line, " ttl_ms=");
    for (unsigned i = 0; i < LOCKS * OWNERS; i++) {
        struct belief *belief = &client->beliefs[i / OWNERS][i % OWNERS];
        if (belief->held && !belief->leased && belief->serial == conn->serial) {
            rig_must(strstr(line, " ttl_ms=") != NULL);
            belief->deadline_us = end_us;
        }
    }
}

static void
client_watch(struct client *client)
{
    struct conn *conn = &world.conns[client->core][client->slot];
    unsigned lock = pick(LOCKS);
    bool watch = !conn->watched[lock];
    unsigned tag;
    char line[40];

    if (ask(client, watch ? COMMAND_WATCH : COMMAND_UNWATCH, &tag) == NULL)
        return;
    conn->watched[lock] = watch;
    conn->heard[lock] = false;
    snprintf(line, sizeof(line), "%u %s %c", tag, watch ? "WATCH" : "UNWATCH",
        'a' + lock);
    say(client, line);
}

/* Whether a command only reads, and may come at any time. */
static bool
only_looks(enum command command)
{
    const char *words = strchr(command_usage(command), ' ');

    if (command == COMMAND_HELLO || command == COMMAND_DRAIN ||
        command == COMMAND_PING || command == COMMAND_QUIT)
        return false;
    return command == COMMAND_SHOW || words == NULL || words[1] == '[';
}

static void
client_looks(struct client *client)
{
    unsigned tag;
    enum command command;
    char line[40];

    do
        command = (enum command)pick(COMMAND_COUNT);
    while (!only_looks(command));

    if (ask(client, command, &tag) == NULL)
        return;
    snprintf(line, sizeof(line), "%u %s%s", tag, command_name(command),
        command == COMMAND_SHOW ? " b" : "");
    say(client, line);
}

/* Who is cut off does not hear of it, and may be wrong from now on. */
static void
client_breaks(struct client *client)
{
    unsigned lock = pick(LOCKS);
    unsigned tag;
    char line[40];

    if (ask(client, COMMAND_BREAK, &tag) == NULL)
        return;
    for (unsigned i = 0; i < CLIENTS * OWNERS; i++) {
        struct client *other = &world.clients[i / OWNERS];
        struct belief *belief = &other->beliefs[lock][i % OWNERS];
        belief->mortal = belief->held;
        if (!attached(other, belief))
            belief->held = false;
    }
    world.breaking_us[lock] = world.net.now_us + PATIENCE_US + TIMEOUT_US;
    snprintf(line, sizeof(line), "%u BREAK %c", tag, 'a' + lock);
    say(client, line);
}

/* Nothing of the other is kept, whatever it believes where it is cut off. */
static void
client_kills(struct client *client)
{
    struct client *other = &world.clients[pick(CLIENTS)];
    unsigned core = (unsigned)client->core;
    unsigned slot = client->slot;
    unsigned tag;
    char line[60];

    if (!other->named || ask(client, COMMAND_KILL, &tag) == NULL)
        return;
    snprintf(line, sizeof(line), "%u KILL %s", tag, other->id);
    if (other->core >= 0)
        world.conns[other->core][other->slot].client = -1;
    client_dies(other);
    net_say(&world.net, core, slot, line);
}

/* --- connections ---------------------------------------------------------- */

static void
client_claims(struct client *client)
{
    for (unsigned i = 0; i < LOCKS * OWNERS; i++) {
        struct belief *belief = &client->beliefs[i / OWNERS][i % OWNERS];
        char line[120];
        unsigned tag;
        if (client->core < 0)
            return;
        if (!belief->held)
            continue;
        if (world.net.now_us >= belief->deadline_us || one_in(10)) {
            belief->held = false;
            continue;
        }
        if (attached(client, belief))
            continue;
        struct asked *asked = ask(client, COMMAND_CLAIM, &tag);
        if (asked == NULL)
            return;
        asked->locks[0] = i / OWNERS;
        asked->owner = i % OWNERS;
        asked->fence = belief->fence;
        belief->claims++;
        snprintf(line, sizeof(line), "%u CLAIM %c fence=%" PRIu64 " count=%u%s",
            tag, 'a' + asked->locks[0], belief->fence,
            belief->count > 0 ? belief->count : 1,
            asked->owner ? " owner=w" : "");
        say(client, line);
    }
}

static void
client_hello(struct client *client, bool resumes)
{
    static const char *const keeps[] = {
        "", " keep=300", " keep=1s", " keep=3s"};
    struct rig *rig = world.net.rigs[client->core];
    const char *keep = keeps[pick(4)];
    char line[120];
    unsigned slot = client->slot;

    if (resumes)
        snprintf(line, sizeof(line), "HELLO resume=%s gen=%u%s", client->id,
            ++client->generation, keep);
    else
        snprintf(line, sizeof(line), "HELLO%s", keep);
    net_say(&world.net, (unsigned)client->core, slot, "");
    rig_say(rig, slot, line);
    net_trace(&world.net, (unsigned)client->core, slot, "->", line);
    const char *got = rig_line(rig, slot);
    if (strncmp(got, "- OK session=", 13) != 0)
        ck_abort_msg("%s: %s", line, got);
    client->keep_us = 1000 * number_of(got, " keep_ms=");
    /* What is not claimed within keep= from here on is given back. */
    for (unsigned i = 0; resumes && client->keep_us > 0 && i < LOCKS * OWNERS;
         i++) {
        struct belief *belief = &client->beliefs[i / OWNERS][i % OWNERS];
        if (belief->deadline_us > world.net.now_us + client->keep_us)
            belief->deadline_us = world.net.now_us + client->keep_us;
    }
    if (!resumes) {
        memcpy(client->id, got + 13, 32);
        bool hex = text_from_hex(text_make(client->id, 32), client->key, 16);
        rig_must(hex);
        client->named = true;
        client->generation = 1;
    }
    hear(&world.net, (unsigned)client->core);
}

static void
client_connect(struct client *client)
{
    unsigned core = pick(CORES);
    unsigned slot = 0;
    bool resumes = client->named && !one_in(6);

    if (world.stopped_us[core] > 0)
        return;
    while (slot < SLOTS && world.conns[core][slot].open)
        slot++;
    if (slot == SLOTS)
        return;
    if (!resumes)
        client_dies(client);
    world.conns[core][slot] = (struct conn){.open = true,
        .client = (int)(client - world.clients),
        .serial = ++world.next_serial,
        .spoke_us = world.net.now_us};
    client->core = (int)core;
    client->slot = slot;
    net_reopen(&world.net, core, slot);
    client_hello(client, resumes);
    if (resumes)
        client_claims(client);
}

/* The client goes on elsewhere; the connection is nobody's, but there. */
static void
client_leave(struct client *client)
{
    struct conn *conn = &world.conns[client->core][client->slot];

    for (unsigned i = 0; i < REQUESTS; i++)
        if (world.asked[i].open && world.asked[i].serial == conn->serial)
            world.asked[i].client = -1;
    client_unsure(client, false);
    conn->client = -1;
}

static void
drop(unsigned core, unsigned slot)
{
    conn_forget(core, slot);
    net_event(&world.net, core, slot, CORE_DROP);
}

static void
client_quits(struct client *client)
{
    struct conn *conn = &world.conns[client->core][client->slot];
    unsigned core = (unsigned)client->core;
    unsigned slot = client->slot;
    unsigned tag;
    char line[30];

    if (ask(client, COMMAND_QUIT, &tag) == NULL)
        return;
    conn->closing = true;
    client_dies(client);
    conn->client = -1;
    snprintf(line, sizeof(line), "%u QUIT", tag);
    net_say(&world.net, core, slot, line);
}

static void
client_ends(struct client *client)
{
    struct conn *conn = &world.conns[client->core][client->slot];
    unsigned core = (unsigned)client->core;
    unsigned slot = client->slot;

    switch (pick(6)) {
    case 0: /* its process dies */
        client_dies(client);
        conn->client = -1;
        drop(core, slot);
        break;
    case 1: /* it closes */
        drop(core, slot);
        break;
    case 2: /* FIN, and nobody reads the rest */
        client_unsure(client, true);
        conn->closing = true;
        conn->client = -1;
        net_event(&world.net, core, slot, CORE_EOF);
        break;
    case 3:
        client_quits(client);
        break;
    default: /* the network is gone; the broker will find out, or be told */
        conn->dead = true;
        if (one_in(2))
            client_leave(client);
        break;
    }
}

/* TCP finds out that nobody is there. */
static void
silence_ends(unsigned core, unsigned slot)
{
    struct conn *conn = &world.conns[core][slot];

    if (!conn->open || !conn->dead)
        return;
    if (world.net.now_us > conn->spoke_us + SILENCE_US)
        drop(core, slot);
}

/* --- brokers -------------------------------------------------------------- */

static void
broker_start(unsigned core)
{
    for (unsigned slot = 0; slot < SLOTS; slot++)
        conn_forget(core, slot);
    net_start(&world.net, core);
    world.net.rigs[core]->silence_us = SILENCE_US;
    world.stopped_us[core] = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        (void)rig_open_tcp(world.net.rigs[core]);
        world.net.rigs[core]->sessions[slot].closed = false;
        rig_event(world.net.rigs[core], slot, CORE_DROP);
    }
}

static void
broker_moves(unsigned core)
{
    if (world.stopped_us[core] > 0) {
        if (world.net.now_us > world.stopped_us[core] + 4 * GRACE_US)
            broker_start(core);
    } else if (one_in(150)) {
        broker_start(core); /* a crash */
    } else if (one_in(100)) {
        world.stopped_us[core] = world.net.now_us;
        net_stop(&world.net, core);
    }
}

static void
client_acts(struct client *client)
{
    unsigned what = pick(100);

    if (what < 40)
        client_lock(client);
    else if (what < 72)
        client_unlock(client);
    else if (what < 78)
        client_cancel(client);
    else if (what < 84)
        client_ping(client);
    else if (what < 87)
        client_watch(client);
    else if (what < 90)
        client_looks(client);
    else if (what < 91)
        client_breaks(client);
    else if (what == 91 && one_in(4))
        client_kills(client);
    else if (what < 94)
        client_claims(client);
    else if (what < 99)
        client_ends(client);
}

static void
something_happens(void)
{
    struct client *client = &world.clients[pick(CLIENTS)];
    unsigned core = pick(CORES);
    unsigned slot = pick(SLOTS);

    silence_ends(core, slot);
    if (one_in(20))
        broker_moves(core);
    if (one_in(100))
        net_unheard(&world.net, core);
    if (world.conns[core][slot].open && one_in(2))
        net_event(&world.net, core, slot, CORE_MORE);
    if (client->core < 0) {
        client_connect(client);
        return;
    }
    const struct conn *conn = &world.conns[client->core][client->slot];
    if (conn->dead || conn->closing) {
        if (one_in(10))
            client_leave(client);
        return;
    }
    if (conn->drained && one_in(4))
        client_ends(client);
    else
        client_acts(client);
}

/* --- a run ---------------------------------------------------------------- */

static void
prepare(struct core_settings *settings)
{
    settings->lease_ms = LEASE_MS;
    settings->patience_us = PATIENCE_US;
    settings->command_timeout_us = TIMEOUT_US;
    settings->stop_grace_us = GRACE_US;
    settings->tickets_max = 40;
    settings->requests_max = 80;
    settings->outstanding_max = 16;
    settings->holds_max = 9;
    settings->sessions_max = 20;
}

static void
world_begin(unsigned faults, unsigned losses)
{
    memset(&world, 0, sizeof(world));
    seed_random(&world.net.random, "core");
    world.net.prepare = prepare;
    world.net.way_us = 20000;
    world.net.slow = 20;
    world.net.deaf = faults > 0 ? 4 : 0;
    world.net.faults = faults;
    world.net.losses = losses;
    world.net.lapse_ms = CORE_LAPSE_MS / 4;
    net_init(&world.net, CORES);
    for (unsigned core = 0; core < CORES; core++)
        broker_start(core);
    for (unsigned i = 0; i < CLIENTS; i++)
        world.clients[i].core = -1;
    world.net.heard = hear;
}

/* Time passes, and whoever is there reads. */
static void
settle(uint64_t us)
{
    for (uint64_t end_us = world.net.now_us + us; world.net.now_us < end_us;) {
        net_pass(&world.net, 50000);
        for (unsigned core = 0; core < CORES; core++)
            for (unsigned slot = 0; slot < SLOTS; slot++)
                if (world.conns[core][slot].open)
                    net_event(&world.net, core, slot, CORE_MORE);
    }
}

static void
check_watches(void)
{
    for (unsigned i = 0; i < CORES * SLOTS * LOCKS; i++) {
        const struct conn *conn = &world.conns[i % CORES][i / CORES % SLOTS];
        unsigned lock = i / CORES / SLOTS;
        uint64_t newest;
        if (!conn->open || conn->dead || !conn->watched[lock])
            continue;
        (void)net_holders(&world.net, lock, &newest);
        rig_must(!conn->heard[lock] || conn->heard_fence[lock] == newest);
    }
}

static void
world_end(void)
{
    world.net.faults = world.net.deaf = world.net.slow = 0;
    world.net.losses = 0;
    settle(20 * (uint64_t)SECOND_US);
    check_watches();
    for (unsigned core = 0; core < CORES; core++)
        for (unsigned slot = 0; slot < SLOTS; slot++)
            if (world.conns[core][slot].open) {
                struct client *client = client_of(&world.conns[core][slot]);
                if (client != NULL)
                    client_dies(client);
                world.conns[core][slot].client = -1;
                net_event(&world.net, core, slot, CORE_EOF);
            }
    settle(90 * (uint64_t)SECOND_US);
    for (unsigned core = 0; core < CORES; core++) {
        struct core_totals totals;
        core_totals(world.net.rigs[core]->core, &totals);
        rig_must(totals.sessions == 0);
        rig_must(totals.tickets == 0);
        rig_must(totals.requests == 0);
        rig_must(totals.ops == 0);
        rig_must(totals.locks == 0);
    }
    for (unsigned i = 0; i < LOCKS; i++) {
        for (unsigned at = 0; at < world.net.records[i].count; at++)
            rig_must(
                world.net.records[i].queue[at].ends_us <= world.net.now_us);
    }
    net_fini(&world.net);
}

static unsigned
events(void)
{
    const char *text = getenv("HOLDFAST_EVENTS");

    return text == NULL ? EVENTS : (unsigned)strtoul(text, NULL, 10);
}

static void
run(unsigned faults, unsigned losses)
{
    unsigned count = events();

    world_begin(faults, losses);
    for (unsigned i = 0; i < count; i++) {
        something_happens();
        net_pass(&world.net, 1 + pick(one_in(200) ? 3000000 : 12000));
    }
    world_end();
    printf("core: %" PRIu64 " steps, %" PRIu64 " grants, %" PRIu64
           " claims, %" PRIu64 " losses, %" PRIu64 " deadlocks, %" PRIu64
           " events, %" PRIu64 " of %" PRIu64 " lost put again\n",
        world.net.steps, world.grants, world.claims, world.losses,
        world.deadlocks, world.events, world.net.back, world.net.lost);
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (i != COMMAND_HELLO && i != COMMAND_AUTH && i != COMMAND_DRAIN &&
            i != COMMAND_PING && i != COMMAND_PONG)
            rig_must(world.finals[i] > count / 100000);
    rig_must(world.grants > count / 100);
    rig_must(world.claims > count / 1000);
}

START_TEST(well)
{
    run(0, 0);
}

END_TEST

START_TEST(with_faults)
{
    run(8, 0);
}

END_TEST

START_TEST(with_losses)
{
    run(0, 300);
}

END_TEST

START_TEST(with_faults_and_losses)
{
    run(8, 300);
}

END_TEST

Suite *
core_random_suite(void)
{
    Suite *suite = suite_create("core_random");
    TCase *tests = tcase_create("core_random");

    tcase_set_timeout(tests, 3000);
    tcase_add_test(tests, well);
    tcase_add_test(tests, with_faults);
    tcase_add_test(tests, with_losses);
    tcase_add_test(tests, with_faults_and_losses);
    suite_add_tcase(suite, tests);
    return suite;
}
