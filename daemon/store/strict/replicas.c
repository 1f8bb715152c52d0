/*
 * Which replicas have what a node was told, where safety is strict.
 *
 * A second connection to the node, the *ack connection*, asks ROLE how far the
 * node's log reaches. It writes something, has WAIT wait until the replicas
 * have that, and reads in INFO how far each of them is. Earlier answers are
 * safe once every replica is as far as ROLE said. (The write is for WAIT alone:
 * since Redis 7.2, WAIT waits for writes of its own connection. It is PEXPIRE,
 * since a full Redis takes no SET.)
 *
 * Every replica: those that are online, and those that have been while this
 * broker knows the node. For it is the one that is missing that may have been
 * promoted, and another one that has come since does not stand for it. Nor are
 * there to be fewer than the cluster knew of when the broker came, or the
 * configuration asks for.
 *
 * See DESIGN.md D4.2 and D4.3.
 */
#include "daemon/store/strict/strict.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_EVERY_US  3000000
#define LOOK_AGAIN_US  500000 /* if something is wrong */
#define LOOK_BEHIND_US 10000
#define BEHIND_US      100000  /* for so long somebody may be behind */
#define NEVER_ANY_US   5000000 /* then it is not that they are still to come */
#define KEEP_MS        "86400000" /* of the key, after the last broker */
#define NAME_BYTES     300
#define NO_ID          "0000000000000000000000000000000000000000"

static const char *const state_words[] = {
    [REPLICAS_UNKNOWN] = "",
    [REPLICAS_FINE] = "redis_replicas_back",
    [REPLICAS_MISSING] = "redis_replicas_missing",
    [REPLICAS_BEHIND] = "redis_replicas_behind",
    [REPLICAS_ALIKE] = "redis_replicas_alike",
    [REPLICAS_REFUSED] = "redis_replicas_unasked",
};

/* A replica, as INFO has it. */
struct replica {
    char name[NAME_BYTES]; /* IP:PORT and a line's end */
    size_t name_len;
    bool online;
    uint64_t offset;
};

/* All replicas, as INFO has them. */
struct replica_view {
    uint32_t online;
    bool any; /* be they online or not */
    bool behind;
    bool alike; /* two have one name */
    struct text missing;
};

static struct conn *
watched_by(struct store *store, const struct conn *ack)
{
    require(conn_is_second(ack));
    return &store->conns[ack->index - CONN_ACK];
}

void
replicas_forget(struct replicas *replicas)
{
    free(replicas->known);
    replicas->known = NULL;
    replicas->known_len = 0;
}

void
replicas_begin(struct store *store, struct conn *ack, uint64_t now_us)
{
    struct replicas *replicas = &watched_by(store, ack)->replicas;

    replicas->state = REPLICAS_UNKNOWN;
    replicas->asked_us = 0;
    replicas->members_us = 0;
    if (store->topology->slots)
        CONN_SEND(store, ack, CALL_MYID, now_us, TEXT("CLUSTER"), TEXT("MYID"));
}

void
replicas_ask(struct store *store, struct conn *ack, uint64_t now_us)
{
    struct conn *conn = watched_by(store, ack);
    struct replicas *replicas = &conn->replicas;
    char key[KEY_BYTES];
    char online[20];
    char wait_ms[20];

    replicas->error = false;
    replicas->offset = 0;
    CONN_SEND(store, ack, CALL_ROLE, now_us, TEXT("ROLE"));
    size_t key_len =
        history_key(store, conn, "witness", &replicas->write_slot, key);
    struct text name = text_make(key, key_len);
    if (key_len > 0 && replicas->create)
        CONN_SEND(store, ack, CALL_WRITE, now_us, TEXT("SET"), name, TEXT("1"),
            TEXT("PX"), TEXT(KEEP_MS));
    else if (key_len > 0)
        CONN_SEND(store, ack, CALL_WRITE, now_us, TEXT("PEXPIRE"), name,
            TEXT(KEEP_MS));
    CONN_SEND(store, ack, CALL_WAIT, now_us, TEXT("WAIT"),
        text_make(online, text_from_u64(online, replicas->online)),
        text_make(wait_ms, text_from_u64(wait_ms,
                               store->settings.command_timeout_us / 2000 + 1)));
    if (replicas->id[0] != '\0' &&
        (replicas->members_us == 0 ||
            now_us >= replicas->members_us + LOOK_AGAIN_US)) {
        replicas->members_us = now_us;
        CONN_SEND(store, ack, CALL_MEMBERS, now_us, TEXT("CLUSTER"),
            TEXT("REPLICAS"), text_from(replicas->id));
    }
    CONN_SEND(
        store, ack, CALL_REPLICAS, now_us, TEXT("INFO"), TEXT("replication"));
    replicas->asked_us = now_us;
}

uint64_t
replicas_due_us(const struct store *store, const struct conn *ack)
{
    const struct replicas *replicas =
        &store->conns[ack->index - CONN_ACK].replicas;

    if (replicas->asked_us == 0)
        return 0;
    if (replicas->state == REPLICAS_FINE)
        return replicas->asked_us + LOOK_EVERY_US;
    if (replicas->state == REPLICAS_BEHIND) /* WAIT itself takes its time */
        return replicas->asked_us + LOOK_BEHIND_US;
    return replicas->asked_us + LOOK_AGAIN_US;
}

/* A slot on its way to another node: another one is taken the next time. */
static bool
is_redirect(struct text error)
{
    return text_starts_with(error, TEXT("MOVED ")) ||
           text_starts_with(error, TEXT("ASK ")) ||
           text_starts_with(error, TEXT("TRYAGAIN ")) ||
           text_starts_with(error, TEXT("READONLY "));
}

/* A failed write does not count: it only has WAIT wait. */
static void
replicas_error(struct store *store, struct conn *conn, const struct call *call,
    struct text error)
{
    struct replicas *replicas = &conn->replicas;
    char name[80];

    if (call->kind == CALL_WRITE) {
        replicas->write_slot++;
        if (is_redirect(error))
            store->map_wanted = true;
        return;
    }
    replicas->error = true;
    if (replicas->said == REPLICAS_REFUSED)
        return;
    replicas->said = REPLICAS_REFUSED;
    log_write(LOG_WARN, state_words[REPLICAS_REFUSED],
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_word("command", call_word(call->kind)),
        log_foreign("error", error));
}

/* The first line of a text, with its end, which is taken off. */
static struct text
take_line(struct text *lines)
{
    const char *eol = memchr(lines->at, '\n', lines->len);
    size_t len = eol == NULL ? lines->len : (size_t)(eol - lines->at) + 1;
    struct text line = text_make(lines->at, len);

    *lines = text_make(lines->at + len, lines->len - len);
    return line;
}

static bool
has_line(struct text lines, struct text wanted)
{
    while (lines.len > 0)
        if (text_equal(take_line(&lines), wanted))
            return true;
    return false;
}

/* The value of NAME=, of fields with commas between. */
static struct text
info_field(struct text line, struct text name)
{
    while (line.len > 0) {
        const char *comma = memchr(line.at, ',', line.len);
        size_t len = comma == NULL ? line.len : (size_t)(comma - line.at);
        if (text_starts_with(line, name))
            return text_make(line.at + name.len, len - name.len);
        len += comma != NULL;
        line = text_make(line.at + len, line.len - len);
    }
    return TEXT("");
}

/* INFO's line of that number; false: none. A replica without a port (redis-cli
 * --rdb) cannot be promoted: it is passed over. */
static bool
replica_read(struct text info, unsigned *number, struct replica *replica)
{
    char key[20];
    uint64_t port = 0;
    struct text line;

    do {
        snprintf(key, sizeof(key), "slave%u", (*number)++);
        line = info_value(info, key);
        if (line.len == 0)
            return false;
    } while (!text_to_u64(info_field(line, TEXT("port=")), UINT16_MAX, &port) ||
             port == 0);
    struct text ip = info_field(line, TEXT("ip="));
    if (ip.len > NAME_BYTES - 10)
        ip.len = NAME_BYTES - 10;
    replica->name_len = (size_t)snprintf(replica->name, sizeof(replica->name),
        "%.*s:%" PRIu64 "\n", (int)ip.len, ip.at, port);
    replica->online =
        text_equal(info_field(line, TEXT("state=")), TEXT("online"));
    if (!text_to_u64(
            info_field(line, TEXT("offset=")), UINT64_MAX, &replica->offset))
        replica->offset = 0;
    return true;
}

static bool
is_online(struct text info, struct text name)
{
    struct replica replica;
    unsigned number = 0;

    while (replica_read(info, &number, &replica))
        if (replica.online &&
            text_equal(name, text_make(replica.name, replica.name_len)))
            return true;
    return false;
}

/* A name more that is known; false where there is no memory for it. */
static bool
replicas_note(struct replicas *replicas, const struct replica *replica)
{
    require(replica->name_len < sizeof(replica->name));
    char *known =
        realloc(replicas->known, replicas->known_len + replica->name_len);

    if (known == NULL)
        return false;
    memcpy(known + replicas->known_len, replica->name, replica->name_len);
    replicas->known = known;
    replicas->known_len += replica->name_len;
    return true;
}

/* The replicas that are online, and those that are known and are not. */
static struct replica_view
replicas_see(struct replicas *replicas, struct text info)
{
    struct replica_view view = {.missing = TEXT("")};
    struct replica replica;
    unsigned number = 0;

    while (replica_read(info, &number, &replica)) {
        unsigned next = number;
        struct replica other;
        view.any = true;
        if (!replica.online)
            continue;
        view.online++;
        view.behind = view.behind || replica.offset < replicas->offset;
        while (replica_read(info, &next, &other))
            view.alike = view.alike || (other.online && strcmp(other.name,
                                                            replica.name) == 0);
        if (!has_line(text_make(replicas->known, replicas->known_len),
                text_make(replica.name, replica.name_len)) &&
            !replicas_note(replicas, &replica))
            view.behind = true; /* as if it were: nothing counts */
    }
    struct text known = text_make(replicas->known, replicas->known_len);
    while (known.len > 0 && view.missing.len == 0) {
        struct text name = take_line(&known);
        if (!is_online(info, name))
            view.missing = text_make(name.at, name.len - 1);
    }
    return view;
}

/* How many have to have it: at least so many have been there. */
static uint32_t
replicas_needed(const struct store *store, const struct replicas *replicas)
{
    struct text known = text_make(replicas->known, replicas->known_len);
    uint32_t needed = 0;

    for (; known.len > 0; needed++)
        (void)take_line(&known);
    if (needed < replicas->floor)
        needed = replicas->floor;
    if (needed < store->settings.replicas)
        needed = store->settings.replicas;
    return needed > 0 ? needed : 1;
}

/* Says it where that is new. */
static void
replicas_turn(struct store *store, struct conn *conn, enum replicas_state state,
    struct text missing)
{
    struct replicas *replicas = &conn->replicas;
    bool fine = state == REPLICAS_FINE;
    char name[80];

    replicas->state = state;
    if (state == replicas->said || (fine && replicas->said == REPLICAS_UNKNOWN))
        return;
    replicas->said = state;
    log_write(fine ? LOG_INFO : LOG_WARN, state_words[state],
        log_word("node", conn_name(store, conn, name, sizeof(name))),
        log_number("replicas", replicas->online),
        log_number("needed", replicas_needed(store, replicas)),
        missing.len > 0 ? log_quoted("missing", missing) : LOG_NOTHING);
}

/* Whether it is a master that never had a replica, nor will have one soon; but
 * where some are configured, they may be slower to start than their master. */
static bool
replicas_never(const struct store *store, struct replicas *replicas,
    const struct replica_view *view, struct text info, uint64_t now_us)
{
    bool ever =
        view->any || replicas->members > 0 || store->settings.replicas > 0 ||
        !text_equal(info_value(info, "role"), TEXT("master")) ||
        !text_equal(info_value(info, "repl_backlog_active"), TEXT("0")) ||
        !text_equal(info_value(info, "master_replid2"), TEXT(NO_ID));

    if (ever)
        replicas->none_us = 0;
    else if (replicas->none_us == 0)
        replicas->none_us = now_us;
    return !ever && now_us >= replicas->none_us + NEVER_ANY_US;
}

/* Somebody may be behind for a while: WAIT has not waited for him. */
static bool
replicas_lag(struct replicas *replicas, bool behind, uint64_t now_us)
{
    if (!behind)
        replicas->behind_us = 0;
    else if (replicas->behind_us == 0)
        replicas->behind_us = now_us;
    return behind &&
           (replicas->late || now_us >= replicas->behind_us + BEHIND_US);
}

/* INFO: the last of the answers. */
static void
replicas_judge(
    struct store *store, struct conn *conn, struct text info, uint64_t now_us)
{
    struct replicas *replicas = &conn->replicas;
    enum replicas_state state = REPLICAS_FINE;

    if (text_equal(info_value(info, "role"), TEXT("slave")))
        replicas_forget(replicas); /* they are another one's */
    struct replica_view view = replicas_see(replicas, info);
    replicas->online = view.online;
    replicas->never_any = replicas_never(store, replicas, &view, info, now_us);
    bool lags = replicas_lag(replicas, view.behind, now_us);
    if (replicas->error)
        state = REPLICAS_REFUSED;
    else if (view.alike)
        state = REPLICAS_ALIKE;
    else if (view.missing.len > 0 ||
             view.online < replicas_needed(store, replicas))
        state = REPLICAS_MISSING;
    else if (lags)
        state = REPLICAS_BEHIND;
    require(state != REPLICAS_FINE || view.online > 0); /* DESIGN.md D4.3 */
    replicas_turn(store, conn, state, view.missing);
    confirm_verdict(store, conn,
        state == REPLICAS_FINE && !view.behind && replicas->offset > 0,
        info_value(info, "master_replid"), now_us);
}

/* The end of the log, as ROLE says; 0: it is no master's, or nobody knows. */
static uint64_t
master_offset(const struct resp *role)
{
    if (role->type != RESP_ARRAY || role->count < 2 ||
        !text_equal(role->item[0].text, TEXT("master")) ||
        role->item[1].type != RESP_INTEGER || role->item[1].integer < 0)
        return 0;
    return (uint64_t)role->item[1].integer;
}

/* So many the cluster knows of, be they up or down. Those that it knew of when
 * this broker came are to be there; one that has joined since, when it has been
 * online. One that it has forgotten, or given to another master, is no more to
 * be waited for. */
static void
replicas_members(struct replicas *replicas, const struct resp *reply)
{
    if (reply->type != RESP_ARRAY)
        return;
    uint32_t count = (uint32_t)reply->count;
    if (!replicas->counted || count < replicas->floor)
        replicas->floor = count;
    if (count < replicas->members)
        replicas_forget(replicas);
    replicas->members = count;
    replicas->counted = true;
}

void
replicas_reply(struct store *store, struct conn *ack, const struct call *call,
    uint64_t now_us, const struct resp *reply)
{
    struct conn *conn = watched_by(store, ack);
    struct replicas *replicas = &conn->replicas;
    bool string = reply->type == RESP_STRING;

    if (reply->type == RESP_ERROR)
        replicas_error(store, conn, call, reply->text);
    if (call->kind == CALL_MYID && string)
        copy_id(replicas->id, reply->text);
    else if (call->kind == CALL_WRITE)
        replicas->create = reply->type == RESP_INTEGER && reply->integer == 0;
    else if (call->kind == CALL_ROLE)
        replicas->offset = master_offset(reply);
    else if (call->kind == CALL_WAIT)
        replicas->late = reply->type != RESP_INTEGER ||
                         reply->integer < (int64_t)replicas->online;
    else if (call->kind == CALL_MEMBERS)
        replicas_members(replicas, reply);
    else if (call->kind == CALL_REPLICAS)
        replicas_judge(store, conn, string ? reply->text : TEXT(""), now_us);
}

const char *
store_refusal(const struct store *store)
{
    if (!store->settings.strict || store->was_ready)
        return NULL;
    for (uint16_t i = 0; i < store->node_count; i++)
        if (store->conns[i].replicas.never_any)
            return "redis.safety is strict, and a master has no replica that "
                   "could confirm a grant";
    return NULL;
}
