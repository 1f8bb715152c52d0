/*
 * The fake Redis's process and its connections: RESP2 in, commands carried out
 * one by one, RESP2 out.
 *
 * Refusals (no password given, a slot elsewhere, a mood of the server) are
 * decided here, in the order of Redis 7.0. The work of commands is elsewhere.
 * All output is given to the sink when the input at hand is done; the sink must
 * not call back.
 */
#include "tests/sim/fake_state.h"

#include <stdlib.h>

#define LINE_BYTES_MAX        65536 /* PROTO_INLINE_MAX_SIZE */
#define UNAUTHENTICATED_ARGS  10
#define UNAUTHENTICATED_BYTES 16384

int64_t
fake_now_ms(const struct fake *fake)
{
    return (int64_t)(fake->realtime_us / 1000);
}

void
fake_new_id(struct fake *fake, char id[41])
{
    uint64_t words[3];

    for (size_t i = 0; i < 3; i++)
        words[i] = random_next(&fake->random);
    text_to_hex(id, (const uint8_t *)words, 20);
    id[40] = '\0';
}

/* --- life ----------------------------------------------------------------- */

struct fake *
fake_create(const struct fake_settings *settings)
{
    struct fake *fake = memory_get(NULL, sizeof(*fake));

    memset(fake, 0, sizeof(*fake));
    fake->settings = *settings;
    random_init(&fake->random, settings->seed);
    fake->next_id = FAKE_FIRST_ID;
    fake->random48 = 0x1234abcd330e;
    fake_new_id(fake, fake->node_id);
    fake_new_id(fake, fake->run_id);
    fake_new_id(fake, fake->repl_id);
    memset(fake->repl_id2, '0', 40);
    fake->second_offset = -1;
    keys_init(&fake->keys);
    if (settings->cluster) {
        fake->cluster = memory_get(NULL, sizeof(*fake->cluster));
        memset(fake->cluster, 0, sizeof(*fake->cluster));
    }
    return fake;
}

static void
connection_free(struct connection *connection)
{
    for (size_t i = 0; i < connection->channel_count; i++)
        bytes_fini(&connection->channels[i]);
    free(connection->channels);
    bytes_fini(&connection->in);
    bytes_fini(&connection->out);
    bytes_fini(&connection->name);
    free(connection);
}

static void
connections_free(struct fake *fake)
{
    for (size_t i = 0; i < fake->connection_count; i++)
        connection_free(fake->connections[i]);
    fake->connection_count = 0;
    fake->dirty_count = 0;
    for (size_t i = 0; i < fake->dead_count; i++)
        connection_free(fake->dead[i]);
    fake->dead_count = 0;
}

void
fake_destroy(struct fake **fake_at)
{
    struct fake *fake = *fake_at;

    if (fake == NULL)
        return;
    require(fake->depth == 0);
    *fake_at = NULL;
    connections_free(fake);
    replication_fini(fake);
    script_forget_all(fake);
    keys_fini(&fake->keys);
    if (fake->cluster != NULL) {
        free(fake->cluster->migrating);
        free(fake->cluster->importing);
        free(fake->cluster);
    }
    bytes_fini(&fake->script_out);
    bytes_fini(&fake->info_cache);
    free(fake->connections);
    free(fake->dirty);
    free(fake->dead);
    free(fake->args);
    free(fake->scripts);
    free(fake);
}

void
fake_set_clock(struct fake *fake, uint64_t realtime_us)
{
    fake->realtime_us = realtime_us;
    if (fake->started_us == 0)
        fake->started_us = realtime_us;
}

void
fake_set_mood(struct fake *fake, enum fake_mood mood)
{
    require(mood < FAKE_MOOD_COUNT);
    fake->mood = mood;
    fake->info_cache.len = 0;
}

void
fake_break_script(struct fake *fake, unsigned calls)
{
    fake->break_after = calls;
}

void
fake_script_flush(struct fake *fake)
{
    script_forget_all(fake);
}

void
fake_flush_all(struct fake *fake)
{
    keys_clear(fake);
    keys_flush(fake);
}

void
fake_counts(const struct fake *fake, struct fake_counts *counts)
{
    *counts = fake->counts;
}

const char *
fake_run_id(const struct fake *fake)
{
    return fake->run_id;
}

const char *
fake_repl_id(const struct fake *fake)
{
    return fake->repl_id;
}

void
fake_set_ids(struct fake *fake, const char *run_id, const char *repl_id)
{
    require(strlen(run_id) == 40 && strlen(repl_id) == 40);
    memcpy(fake->run_id, run_id, 41);
    memcpy(fake->repl_id, repl_id, 41);
    fake->info_cache.len = 0;
}

const char *
fake_node_id(const struct fake *fake)
{
    return fake->node_id;
}

void
fake_set_node_id(struct fake *fake, const char *node_id)
{
    require(strlen(node_id) == 40);
    memcpy(fake->node_id, node_id, 41);
}

/* --- connections ---------------------------------------------------------- */

/* The place of an id among the connections, or where it would be. */
static size_t
connection_place(const struct fake *fake, uint32_t id)
{
    size_t low = 0;
    size_t high = fake->connection_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (fake->connections[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct connection *
connection_find(const struct fake *fake, uint32_t id)
{
    size_t place = connection_place(fake, id);

    if (place == fake->connection_count || fake->connections[place]->id != id)
        return NULL;
    return fake->connections[place];
}

uint32_t
fake_accept(struct fake *fake)
{
    struct connection *connection = memory_get(NULL, sizeof(*connection));

    memset(connection, 0, sizeof(*connection));
    connection->id = fake->next_id++;
    connection->authenticated = fake->settings.password[0] == '\0';
    fake->connections = array_room(fake->connections, fake->connection_count,
        &fake->connection_cap, sizeof(struct connection *));
    fake->connections[fake->connection_count++] = connection;
    return connection->id;
}

/* Takes it out of the list of those that live. */
static void
connection_remove(struct fake *fake, struct connection *connection)
{
    size_t place = connection_place(fake, connection->id);

    require(!connection->dead && fake->connections[place] == connection);
    memmove(fake->connections + place, fake->connections + place + 1,
        (fake->connection_count - place - 1) * sizeof(struct connection *));
    fake->connection_count--;
    connection->dead = true;
    fake->dead = array_room(fake->dead, fake->dead_count, &fake->dead_cap,
        sizeof(struct connection *));
    fake->dead[fake->dead_count++] = connection;
}

void
connection_close(struct fake *fake, struct connection *connection)
{
    uint32_t id = connection->id;

    connection_remove(fake, connection);
    if (fake->settings.sink.closed != NULL)
        fake->settings.sink.closed(fake->settings.arg, id);
}

void
connection_dirty(struct fake *fake, struct connection *connection)
{
    if (connection->in_dirty || connection->dead)
        return;
    connection->in_dirty = true;
    fake->dirty = array_room(fake->dirty, fake->dirty_count, &fake->dirty_cap,
        sizeof(struct connection *));
    fake->dirty[fake->dirty_count++] = connection;
}

/* Writes go out, connections are closed, the dead are freed. */
static void
connections_settle(struct fake *fake)
{
    for (size_t i = 0; i < fake->dirty_count; i++) {
        struct connection *connection = fake->dirty[i];
        connection->in_dirty = false;
        if (connection->dead)
            continue;
        if (connection->out.len > 0 && fake->settings.sink.send != NULL)
            fake->settings.sink.send(fake->settings.arg, connection->id,
                connection->out.at, connection->out.len);
        connection->out.len = 0;
        if (connection->closing)
            connection_close(fake, connection);
    }
    fake->dirty_count = 0;
    for (size_t i = 0; i < fake->dead_count; i++)
        connection_free(fake->dead[i]);
    fake->dead_count = 0;
}

void
fake_hangup(struct fake *fake, uint32_t connection)
{
    struct connection *found = connection_find(fake, connection);

    if (found == NULL)
        return;
    connection_remove(fake, found);
    if (fake->depth == 0)
        connections_settle(fake);
}

void
fake_drop_clients(struct fake *fake)
{
    require(fake->depth == 0);
    while (fake->connection_count > 0)
        connection_close(fake, fake->connections[0]);
    connections_settle(fake);
}

void
fake_restart(struct fake *fake, bool keep_data)
{
    require(fake->depth == 0);
    connections_free(fake);
    fake->next_id = FAKE_FIRST_ID;
    script_forget_all(fake);
    fake->random48 = 0x1234abcd330e;
    fake->mood = FAKE_WELL;
    fake->break_after = 0;
    fake->started_us = fake->realtime_us;
    fake_new_id(fake, fake->run_id);
    if (!keep_data) {
        keys_clear(fake);
        keys_flush(fake);
    }
    replication_reset(fake);
    fake->had_replica = false;
    if (fake->replica) {
        fake->link_down = true;
    } else {
        memset(fake->repl_id2, '0', 40);
        if (keep_data)
            memcpy(fake->repl_id2, fake->repl_id, 40);
        fake->second_offset = keep_data ? 1 : -1;
        fake_new_id(fake, fake->repl_id);
    }
    fake->info_cache.len = 0;
}

/* --- refusals ------------------------------------------------------------- */

static const char disk_error[] =
    "-MISCONF Redis is configured to save RDB snapshots, but it's currently "
    "unable to persist to disk. Commands that may modify the data set are "
    "disabled, because this instance is configured to report errors during "
    "writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). "
    "Please check the Redis logs for details about the RDB error.";

const char *
fake_write_refusal(const struct fake *fake)
{
    if (fake->mood == FAKE_MISCONF)
        return disk_error;
    if (fake->mood == FAKE_NOREPLICAS && !fake->replica)
        return "-NOREPLICAS Not enough good replicas to write.";
    if (fake->replica)
        return "-READONLY You can't write against a read only replica.";
    return NULL;
}

/* Why the server refuses such a command, or NULL. */
static const char *
mood_refusal(const struct call *call, unsigned flags)
{
    const struct fake *fake = call->fake;
    bool is_ping = strcmp(call->command->name, "ping") == 0;

    if (fake->mood == FAKE_OOM && (flags & COMMAND_DENYOOM) != 0 &&
        !fake->replica)
        return "-OOM command not allowed when used memory > 'maxmemory'.";
    if (fake->mood == FAKE_MISCONF && is_ping)
        return disk_error;
    if ((flags & COMMAND_WRITE) != 0)
        return fake_write_refusal(fake);
    return NULL;
}

static void
refuse_unknown(struct call *call, bool container)
{
    char args[160];
    char name[129];
    size_t len = 0;
    struct text word = call->arg[container ? 1 : 0];

    word.len = strnlen(word.at, word.len > 128 ? 128 : word.len);
    if (container) {
        for (len = 0; len < call->arg[0].len && len < 128; len++) {
            char c = call->arg[0].at[len];
            name[len] = c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
        }
        reply_error(call, "unknown subcommand '%.*s'. Try %.*s HELP.",
            (int)word.len, word.at, (int)len, name);
        return;
    }
    for (size_t i = 1; i < call->count && len < 128; i++) {
        size_t most = 128 - len;
        size_t take = call->arg[i].len < most ? call->arg[i].len : most;
        take = strnlen(call->arg[i].at, take);
        args[len++] = '\'';
        memcpy(args + len, call->arg[i].at, take);
        len += take;
        args[len++] = '\'';
        args[len++] = ' ';
    }
    reply_error(call, "unknown command '%.*s', with args beginning with: %.*s",
        (int)word.len, word.at, (int)len, args);
}

/* True where a slot of the command's is elsewhere, and that has been said. */
static bool
redirected(struct call *call, unsigned flags, int *slot)
{
    const struct peer *peer = NULL;
    enum redirect redirect;

    if (call->fake->cluster == NULL || call->command->first_key == 0)
        return false;
    redirect = cluster_route(call, flags, slot, &peer);
    if (redirect == REDIRECT_NONE)
        return false;
    cluster_redirect(call, redirect, *slot, peer);
    return true;
}

static void
command_process(struct call *call)
{
    struct fake *fake = call->fake;
    struct connection *connection = call->connection;
    bool container = false;
    int slot = -1;

    call->command = command_find(call->arg, call->count, &container);
    if (call->command != NULL && !fake->settings.sentinel &&
        (call->command->flags & COMMAND_SENTINEL) != 0)
        call->command = NULL;
    const struct command *command = call->command;
    if (command == NULL || command->run == NULL) {
        if (command == NULL)
            refuse_unknown(call, container);
        else
            reply_error(call, "wrong number of arguments for '%s' command",
                command->name);
        return;
    }
    if ((command->arity > 0 && (size_t)command->arity != call->count) ||
        (command->arity < 0 && call->count < (size_t)-command->arity)) {
        reply_error(
            call, "wrong number of arguments for '%s' command", command->name);
        return;
    }
    unsigned flags = command->flags;
    if ((flags & COMMAND_SCRIPT) != 0)
        flags = script_command_flags(fake, command, call->arg);
    if (!connection->authenticated && (flags & COMMAND_NO_AUTH) == 0) {
        reply_error(call, "-NOAUTH Authentication required.");
        return;
    }
    if (redirected(call, flags, &slot))
        return;
    const char *refusal = mood_refusal(call, flags);
    if (refusal != NULL)
        reply_error(call, "%s", refusal);
    else if (connection->channel_count > 0 && (flags & COMMAND_SUBSCRIBED) == 0)
        reply_error(call,
            "Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / "
            "PING / QUIT / RESET are allowed in this context",
            command->name);
    else if (fake->mood == FAKE_LOADING && (flags & COMMAND_LOADING) == 0)
        reply_error(call, "-LOADING Redis is loading the dataset in memory");
    else if (fake->mood == FAKE_BUSY && (flags & COMMAND_BUSY) == 0)
        reply_error(call,
            "-BUSY Redis is busy running a script. You can only call SCRIPT "
            "KILL or SHUTDOWN NOSAVE.");
    else
        command->run(call);
}

/* --- input ---------------------------------------------------------------- */

enum parse {
    PARSE_MORE,
    PARSE_DONE,
    PARSE_EMPTY,
    PARSE_WRONG
};

struct parser {
    struct fake *fake;
    struct connection *connection;
    const char *at;
    const char *end;
    size_t count; /* arguments */
    const char *wrong;
    char first; /* for `wrong` */
};

static enum parse
parse_wrong(struct parser *parser, const char *wrong)
{
    parser->wrong = wrong;
    return PARSE_WRONG;
}

/* The number after the line's first byte. */
static enum parse
parse_line(struct parser *parser, struct text *digits, const char *too_long)
{
    size_t left = (size_t)(parser->end - parser->at);
    const char *eol = memchr(parser->at, '\r', left);

    if (eol == NULL)
        return left > LINE_BYTES_MAX ? parse_wrong(parser, too_long)
                                     : PARSE_MORE;
    if (eol + 2 > parser->end)
        return PARSE_MORE;
    parser->first = *parser->at;
    *digits = text_make(parser->at + 1, (size_t)(eol - parser->at) - 1);
    if (eol == parser->at)
        *digits = text_make(eol, 0);
    parser->at = eol + 2;
    return PARSE_DONE;
}

static enum parse
parse_argument(struct parser *parser)
{
    struct fake *fake = parser->fake;
    struct text digits = TEXT("");
    int64_t len;
    enum parse parse = parse_line(parser, &digits, "too big bulk count string");

    if (parse != PARSE_DONE)
        return parse;
    if (parser->first != '$')
        return parse_wrong(parser, "expected '$', got ");
    parser->first = '\0';
    if (!number_read(digits, &len) || len < 0 || len > FAKE_STRING_MAX)
        return parse_wrong(parser, "invalid bulk length");
    if (len > UNAUTHENTICATED_BYTES && !parser->connection->authenticated)
        return parse_wrong(parser, "unauthenticated bulk length");
    if (parser->end - parser->at < len + 2)
        return PARSE_MORE;
    fake->args = array_room(
        fake->args, parser->count, &fake->arg_cap, sizeof(struct text));
    fake->args[parser->count++] = text_make(parser->at, (size_t)len);
    parser->at += len + 2;
    return PARSE_DONE;
}

/* One command, into fake->args. */
static enum parse
parse_command(struct parser *parser)
{
    struct text digits = TEXT("");
    int64_t count;
    enum parse parse;

    parser->count = 0;
    parser->first = '\0';
    if (parser->at == parser->end)
        return PARSE_MORE;
    if (*parser->at != '*')
        return parse_wrong(parser, "inline requests are not known here");
    parse = parse_line(parser, &digits, "too big mbulk count string");
    parser->first = '\0';
    if (parse != PARSE_DONE)
        return parse;
    if (!number_read(digits, &count) || count > INT32_MAX)
        return parse_wrong(parser, "invalid multibulk length");
    if (count > UNAUTHENTICATED_ARGS && !parser->connection->authenticated)
        return parse_wrong(parser, "unauthenticated multibulk length");
    if (count <= 0)
        return PARSE_EMPTY;
    for (int64_t i = 0; i < count; i++) {
        parse = parse_argument(parser);
        if (parse != PARSE_DONE)
            return parse;
    }
    return PARSE_DONE;
}

static void
connection_command(struct fake *fake, struct connection *connection,
    const struct parser *parser)
{
    struct call call = {
        .fake = fake,
        .connection = connection,
        .arg = fake->args,
        .count = parser->count,
        .out = &connection->out,
    };

    connection_dirty(fake, connection);
    fake->counts.commands++;
    command_process(&call);
    keys_flush(fake);
    if (call.command == NULL || strcmp(call.command->name, "asking") != 0)
        connection->asking = false;
    if (connection->wait_until_us == 0)
        connection->wrote_to = fake->log.end;
}

static void
connection_wrong(struct fake *fake, struct connection *connection,
    const struct parser *parser)
{
    struct call call = {
        .fake = fake, .connection = connection, .out = &connection->out};

    connection_dirty(fake, connection);
    connection->closing = true;
    if (parser->first != '\0')
        reply_error(
            &call, "Protocol error: %s'%c'", parser->wrong, parser->first);
    else
        reply_error(&call, "Protocol error: %s", parser->wrong);
}

/* Carries out whole commands; returns how many bytes they were. */
static size_t
connection_commands(struct fake *fake, struct connection *connection,
    const char *bytes, size_t len)
{
    struct parser parser = {
        .fake = fake,
        .connection = connection,
        .at = bytes,
        .end = bytes + len,
    };
    size_t used = 0;

    while (!connection->closing && connection->wait_until_us == 0) {
        enum parse parse = parse_command(&parser);
        if (parse == PARSE_MORE)
            break;
        if (parse == PARSE_WRONG) {
            connection_wrong(fake, connection, &parser);
            break;
        }
        if (parse == PARSE_DONE)
            connection_command(fake, connection, &parser);
        used = (size_t)(parser.at - bytes);
    }
    return used;
}

/* Takes what has come, with what was kept of it before. */
static void
connection_input(struct fake *fake, struct connection *connection,
    const char *bytes, size_t len)
{
    struct bytes *in = &connection->in;
    size_t used;

    if (in->len == 0) {
        used = connection_commands(fake, connection, bytes, len);
        bytes_add(in, bytes + used, len - used);
        return;
    }
    bytes_add(in, bytes, len);
    used = connection_commands(fake, connection, in->at, in->len);
    in->len -= used;
    memmove(in->at, in->at + used, in->len);
}

void
fake_input(
    struct fake *fake, uint32_t connection, const char *bytes, size_t len)
{
    struct connection *found = connection_find(fake, connection);

    require(fake->depth == 0);
    if (found == NULL || found->closing || len == 0)
        return;
    fake->depth++;
    keys_sweep(fake);
    connection_input(fake, found, bytes, len);
    connections_settle(fake);
    fake->depth--;
}

uint64_t
fake_wake(struct fake *fake)
{
    uint64_t until_us = 0;

    require(fake->depth == 0);
    fake->depth++;
    for (size_t i = 0; i < fake->connection_count; i++) {
        struct connection *connection = fake->connections[i];
        if (connection->wait_until_us == 0)
            continue;
        connection_dirty(fake, connection);
        if (wait_over(fake, connection))
            connection_input(fake, connection, "", 0);
        if (connection->wait_until_us > 0 &&
            (until_us == 0 || connection->wait_until_us < until_us))
            until_us = connection->wait_until_us;
    }
    connections_settle(fake);
    fake->depth--;
    return until_us;
}

/* --- messages ------------------------------------------------------------- */

size_t
channel_publish(struct fake *fake, struct text channel, struct text message)
{
    size_t receivers = 0;

    fake->counts.published++;
    for (size_t i = 0; i < fake->connection_count; i++) {
        struct connection *connection = fake->connections[i];
        for (size_t j = 0; j < connection->channel_count; j++) {
            const struct bytes *name = &connection->channels[j];
            if (!text_equal(text_make(name->at, name->len), channel))
                continue;
            struct call call = {.fake = fake, .out = &connection->out};
            reply_array(&call, 3);
            reply_string(&call, "message");
            reply_bulk(&call, channel.at, channel.len);
            reply_bulk(&call, message.at, message.len);
            connection_dirty(fake, connection);
            receivers++;
        }
    }
    return receivers;
}

void
fake_publish(struct fake *fake, const char *channel, size_t channel_len,
    const char *message, size_t message_len)
{
    require(fake->depth == 0);
    fake->depth++;
    channel_publish(
        fake, text_make(channel, channel_len), text_make(message, message_len));
    connections_settle(fake);
    fake->depth--;
}
