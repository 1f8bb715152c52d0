/*
 * The table of commands, how replies are written, and the commands that are
 * about connections and messages.
 */
#include "tests/sim/fake_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- replies -------------------------------------------------------------- */

/* TYPE, a number, the line's end. */
static void
reply_number(struct call *call, char type, int64_t value)
{
    char *room = bytes_room(call->out, 24);
    size_t len = 0;
    uint64_t positive = (uint64_t)value;

    room[len++] = type;
    if (value < 0) {
        room[len++] = '-';
        positive = -positive;
    }
    len += text_from_u64(room + len, positive);
    room[len++] = '\r';
    room[len++] = '\n';
    call->out->len += len;
}

void
reply_status(struct call *call, const char *status)
{
    bytes_add(call->out, "+", 1);
    bytes_add(call->out, status, strlen(status));
    bytes_add(call->out, "\r\n", 2);
}

void
reply_integer(struct call *call, int64_t value)
{
    reply_number(call, ':', value);
}

void
reply_bulk(struct call *call, const char *at, size_t len)
{
    reply_number(call, '$', (int64_t)len);
    bytes_add(call->out, at, len);
    bytes_add(call->out, "\r\n", 2);
}

void
reply_string(struct call *call, const char *string)
{
    reply_bulk(call, string, strlen(string));
}

void
reply_nil(struct call *call)
{
    bytes_add(call->out, "$-1\r\n", 5);
}

void
reply_array(struct call *call, size_t count)
{
    reply_number(call, '*', (int64_t)count);
}

void
reply_error_raw(struct call *call, const char *at, size_t len)
{
    if (!call->in_script)
        call->fake->counts.errors++;
    if (len == 0 || at[0] != '-')
        bytes_add(call->out, "-ERR ", 5);
    bytes_add(call->out, at, len);
    bytes_add(call->out, "\r\n", 2);
}

static bool
is_line_end(char c)
{
    return c == '\r' || c == '\n';
}

void
reply_error(struct call *call, const char *format, ...)
{
    struct bytes text = {0};
    va_list list;

    va_start(list, format);
    int len = vsnprintf(NULL, 0, format, list);
    va_end(list);
    require(len >= 0);
    va_start(list, format);
    vsnprintf(
        bytes_room(&text, (size_t)len + 1), (size_t)len + 1, format, list);
    va_end(list);
    size_t from = 0;
    size_t end = (size_t)len;
    while (from < end && is_line_end(text.at[from]))
        from++;
    while (end > from && is_line_end(text.at[end - 1]))
        end--;
    for (size_t i = from; i < end; i++)
        if (is_line_end(text.at[i]))
            text.at[i] = ' ';
    reply_error_raw(call, text.at + from, end - from);
    bytes_fini(&text);
}

bool
arg_number(struct call *call, size_t index, int64_t *out)
{
    if (number_read(call->arg[index], out))
        return true;
    reply_error(call, "value is not an integer or out of range");
    return false;
}

/* --- connections ---------------------------------------------------------- */

static void
command_auth(struct call *call)
{
    const char *password = call->fake->settings.password;

    if (call->count > 3) {
        reply_error(call, "syntax error");
        return;
    }
    if (call->count == 2 && password[0] == '\0') {
        reply_error(call,
            "AUTH <password> called without any password configured for the "
            "default user. Are you sure your configuration is correct?");
        return;
    }
    /* A user without a password is let in by any. */
    if ((call->count == 2 || text_equal(call->arg[1], TEXT("default"))) &&
        (password[0] == '\0' ||
            text_equal(call->arg[call->count - 1], text_from(password)))) {
        call->connection->authenticated = true;
        reply_status(call, "OK");
        return;
    }
    reply_error(
        call, "-WRONGPASS invalid username-password pair or user is disabled.");
}

static void
command_ping(struct call *call)
{
    if (call->count > 2) {
        reply_error(call, "wrong number of arguments for 'ping' command");
        return;
    }
    if (call->connection->channel_count > 0) {
        reply_array(call, 2);
        reply_string(call, "pong");
        reply_bulk(call, call->count == 2 ? call->arg[1].at : "",
            call->count == 2 ? call->arg[1].len : 0);
    } else if (call->count == 1) {
        reply_status(call, "PONG");
    } else {
        reply_bulk(call, call->arg[1].at, call->arg[1].len);
    }
}

static void
command_echo(struct call *call)
{
    reply_bulk(call, call->arg[1].at, call->arg[1].len);
}

static void
command_select(struct call *call)
{
    int64_t index;

    if (!number_read(call->arg[1], &index) || index > INT32_MAX ||
        index < INT32_MIN)
        reply_error(call, "value is not an integer or out of range");
    else if (call->fake->cluster != NULL && index != 0)
        reply_error(call, "SELECT is not allowed in cluster mode");
    else if (index != 0)
        reply_error(call, "DB index is out of range");
    else
        reply_status(call, "OK");
}

static void
command_quit(struct call *call)
{
    call->connection->closing = true;
    reply_status(call, "OK");
}

static void
command_time(struct call *call)
{
    char digits[20];
    uint64_t now = call->fake->realtime_us;

    reply_array(call, 2);
    reply_bulk(call, digits, text_from_u64(digits, now / 1000000));
    reply_bulk(call, digits, text_from_u64(digits, now % 1000000));
}

static void
command_asking(struct call *call)
{
    if (call->fake->cluster == NULL) {
        reply_error(call, "This instance has cluster support disabled");
        return;
    }
    call->connection->asking = true;
    reply_status(call, "OK");
}

static void
command_readonly(struct call *call)
{
    if (call->fake->cluster == NULL) {
        reply_error(call, "This instance has cluster support disabled");
        return;
    }
    call->connection->readonly = strcmp(call->command->name, "readonly") == 0;
    reply_status(call, "OK");
}

static void
command_client_id(struct call *call)
{
    reply_integer(call, call->connection->id);
}

static void
command_client_setname(struct call *call)
{
    struct text name = call->arg[2];

    for (size_t i = 0; i < name.len; i++)
        if (name.at[i] < '!' || name.at[i] > '~') {
            reply_error(call, "Client names cannot contain spaces, newlines "
                              "or special characters.");
            return;
        }
    call->connection->name.len = 0;
    bytes_add(&call->connection->name, name.at, name.len);
    reply_status(call, "OK");
}

static void
command_client_getname(struct call *call)
{
    const struct bytes *name = &call->connection->name;

    if (name->len == 0)
        reply_nil(call);
    else
        reply_bulk(call, name->at, name->len);
}

/* CLIENT KILL ID n [ID n ...] [SKIPME yes|no]; of addresses nothing is known.
 */
static void
command_client_kill(struct call *call)
{
    struct fake *fake = call->fake;
    int64_t id = 0;
    bool skip_me = true;

    if (call->count == 3) {
        reply_error(call, "No such client");
        return;
    }
    for (size_t i = 2; i < call->count; i += 2) {
        bool more = i + 1 < call->count;
        if (more && text_is(call->arg[i], "id")) {
            if (!number_read(call->arg[i + 1], &id) || id < 1) {
                reply_error(call, "client-id should be greater than 0");
                return;
            }
        } else if (more && text_is(call->arg[i], "skipme") &&
                   (text_is(call->arg[i + 1], "yes") ||
                       text_is(call->arg[i + 1], "no"))) {
            skip_me = text_is(call->arg[i + 1], "yes");
        } else {
            reply_error(call, "syntax error");
            return;
        }
    }
    struct connection *victim =
        id > 0 && id <= UINT32_MAX ? connection_find(fake, (uint32_t)id) : NULL;
    if (victim != NULL && victim == call->connection) {
        call->connection->closing = !skip_me;
        reply_integer(call, skip_me ? 0 : 1);
        return;
    }
    if (victim != NULL)
        connection_close(fake, victim);
    reply_integer(call, victim != NULL);
}

/* --- messages ------------------------------------------------------------- */

static void
reply_subscription(struct call *call, const char *what, const struct text *name)
{
    reply_array(call, 3);
    reply_string(call, what);
    if (name != NULL)
        reply_bulk(call, name->at, name->len);
    else
        reply_nil(call);
    reply_integer(call, (int64_t)call->connection->channel_count);
}

static size_t
channel_place(const struct connection *connection, struct text name)
{
    size_t place = 0;

    while (place < connection->channel_count &&
           !text_equal(text_make(connection->channels[place].at,
                           connection->channels[place].len),
               name))
        place++;
    return place;
}

static void
command_subscribe(struct call *call)
{
    struct connection *connection = call->connection;

    for (size_t i = 1; i < call->count; i++) {
        struct text name = call->arg[i];
        if (channel_place(connection, name) == connection->channel_count) {
            connection->channels =
                array_room(connection->channels, connection->channel_count,
                    &connection->channel_cap, sizeof(struct bytes));
            struct bytes *channel =
                &connection->channels[connection->channel_count++];
            memset(channel, 0, sizeof(*channel));
            bytes_add(channel, name.at, name.len);
        }
        reply_subscription(call, "subscribe", &name);
    }
}

static void
channel_leave(struct call *call, struct text name)
{
    struct connection *connection = call->connection;
    size_t place = channel_place(connection, name);

    if (place < connection->channel_count) {
        struct bytes gone = connection->channels[place];
        memmove(connection->channels + place, connection->channels + place + 1,
            (connection->channel_count - place - 1) * sizeof(struct bytes));
        connection->channel_count--;
        reply_subscription(call, "unsubscribe", &name);
        bytes_fini(&gone);
    } else {
        reply_subscription(call, "unsubscribe", &name);
    }
}

static void
command_unsubscribe(struct call *call)
{
    struct connection *connection = call->connection;

    for (size_t i = 1; i < call->count; i++)
        channel_leave(call, call->arg[i]);
    if (call->count > 1)
        return;
    if (connection->channel_count == 0)
        reply_subscription(call, "unsubscribe", NULL);
    while (connection->channel_count > 0)
        channel_leave(call,
            text_make(connection->channels[0].at, connection->channels[0].len));
}

static void
command_publish(struct call *call)
{
    size_t receivers = channel_publish(call->fake, call->arg[1], call->arg[2]);

    if (call->fake->cluster != NULL)
        cluster_publish(call);
    reply_integer(call, (int64_t)receivers);
}

static void
command_sentinel(struct call *call)
{
    const struct fake *fake = call->fake;
    char digits[20];

    if (call->count != 3 ||
        !text_equal(call->arg[1], TEXT("GET-MASTER-ADDR-BY-NAME"))) {
        reply_error(call, "unknown subcommand");
        return;
    }
    reply_array(call, 2);
    reply_bulk(call, fake->master_host, strlen(fake->master_host));
    reply_bulk(call, digits, text_from_u64(digits, fake->master_port));
}

void
fake_name_master(struct fake *fake, const char *host, uint16_t port)
{
    char text[160];
    bool known = fake->master_host[0] != '\0';
    int len = snprintf(text, sizeof(text), "mymaster %s %u %s %u",
        fake->master_host, fake->master_port, host, port);

    snprintf(fake->master_host, sizeof(fake->master_host), "%s", host);
    fake->master_port = port;
    if (known)
        (void)channel_publish(
            fake, TEXT("+switch-master"), text_make(text, (size_t)len));
}

/* --- the table ------------------------------------------------------------ */

#define W   COMMAND_WRITE
#define R   COMMAND_READ
#define OOM COMMAND_DENYOOM
#define L   COMMAND_LOADING
#define NS  COMMAND_NOSCRIPT
#define SUB COMMAND_SUBSCRIBED
#define MAY COMMAND_MAY_REPLICATE
#define NA  (COMMAND_NO_AUTH | COMMAND_BUSY)

/* A name without a function is that of a container. Sorted by name. */
static const struct command commands[] = {
    {"append", 3, W | OOM, 1, 1, command_append},
    {"asking", 1, 0, 0, 0, command_asking},
    {"auth", -2, NS | L | NA, 0, 0, command_auth},
    {"client", -2, 0, 0, 0, NULL},
    {"client|getname", 2, NS | L, 0, 0, command_client_getname},
    {"client|id", 2, NS | L, 0, 0, command_client_id},
    {"client|kill", -3, NS | L, 0, 0, command_client_kill},
    {"client|setname", 3, NS | L, 0, 0, command_client_setname},
    {"cluster", -2, 0, 0, 0, NULL},
    {"cluster|keyslot", 3, 0, 0, 0, command_cluster_keyslot},
    {"cluster|myid", 2, 0, 0, 0, command_cluster_myid},
    {"cluster|replicas", 3, 0, 0, 0, command_cluster_replicas},
    {"cluster|slots", 2, 0, 0, 0, command_cluster_slots},
    {"dbsize", 1, R, 0, 0, command_dbsize},
    {"decr", 2, W | OOM, 1, 1, command_incr},
    {"del", -2, W, 1, -1, command_del},
    {"echo", 2, L, 0, 0, command_echo},
    {"eval", -3, NS | MAY | COMMAND_SCRIPT, 2, 0, command_eval},
    {"evalsha", -3, NS | MAY | COMMAND_SCRIPT, 2, 0, command_eval},
    {"exists", -2, R, 1, -1, command_exists},
    {"expire", -3, W, 1, 1, command_expire},
    {"expireat", -3, W, 1, 1, command_expire},
    {"expiretime", 2, R, 1, 1, command_ttl},
    {"flushall", -1, W, 0, 0, command_flushall},
    {"get", 2, R, 1, 1, command_get},
    {"getrange", 4, R, 1, 1, command_getrange},
    {"hget", 3, R, 1, 1, command_hget},
    {"hset", -4, W | OOM, 1, 1, command_hset},
    {"incr", 2, W | OOM, 1, 1, command_incr},
    {"incrby", 3, W | OOM, 1, 1, command_incr},
    {"info", -1, L, 0, 0, command_info},
    {"llen", 2, R, 1, 1, command_llen},
    {"lpush", -3, W | OOM, 1, 1, command_lpush},
    {"mget", -2, R, 1, -1, command_mget},
    {"persist", 2, W, 1, 1, command_persist},
    {"pexpire", -3, W, 1, 1, command_expire},
    {"pexpireat", -3, W, 1, 1, command_expire},
    {"pexpiretime", 2, R, 1, 1, command_ttl},
    {"ping", -1, SUB, 0, 0, command_ping},
    {"pttl", 2, R, 1, 1, command_ttl},
    {"publish", 3, L | MAY, 0, 0, command_publish},
    {"quit", -1, NS | L | NA | SUB, 0, 0, command_quit},
    {"readonly", 1, L, 0, 0, command_readonly},
    {"readwrite", 1, L, 0, 0, command_readonly},
    {"role", 1, NS | L, 0, 0, command_role},
    {"rpush", -3, W | OOM, 1, 1, command_lpush},
    {"scan", -2, R, 0, 0, command_scan},
    {"script", -2, 0, 0, 0, NULL},
    {"script|exists", -3, NS, 0, 0, command_script_exists},
    {"script|flush", -2, NS, 0, 0, command_script_flush},
    {"script|load", 3, NS, 0, 0, command_script_load},
    {"select", 2, L, 0, 0, command_select},
    {"sentinel", -2, NS | L | COMMAND_SENTINEL, 0, 0, command_sentinel},
    {"set", -3, W | OOM, 1, 1, command_set},
    {"setrange", 4, W | OOM, 1, 1, command_setrange},
    {"strlen", 2, R, 1, 1, command_strlen},
    {"subscribe", -2, NS | L | SUB, 0, 0, command_subscribe},
    {"time", 1, L, 0, 0, command_time},
    {"ttl", 2, R, 1, 1, command_ttl},
    {"type", 2, R, 1, 1, command_type},
    {"unlink", -2, W, 1, -1, command_del},
    {"unsubscribe", -1, NS | L | SUB, 0, 0, command_unsubscribe},
    {"wait", 3, NS, 0, 0, command_wait},
};

#define NAME_MAX_BYTES 40

static int
name_compare(const void *name, const void *command)
{
    return strcmp(name, ((const struct command *)command)->name);
}

static const struct command *
command_named(const char *name)
{
    return bsearch(name, commands, sizeof(commands) / sizeof(commands[0]),
        sizeof(commands[0]), name_compare);
}

/* A word in lower case behind `len` bytes; 0: it cannot be one. */
static size_t
name_add(char name[NAME_MAX_BYTES], size_t len, struct text word)
{
    if (word.len == 0 || word.len > NAME_MAX_BYTES - 2 - len ||
        memchr(word.at, '\0', word.len) != NULL ||
        memchr(word.at, '|', word.len) != NULL)
        return 0;
    for (size_t i = 0; i < word.len; i++) {
        char c = word.at[i];
        name[len++] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    name[len] = '\0';
    return len;
}

const struct command *
command_find(const struct text *arg, size_t count, bool *container)
{
    char name[NAME_MAX_BYTES];
    size_t len = name_add(name, 0, arg[0]);
    const struct command *command = len > 0 ? command_named(name) : NULL;

    *container = command != NULL && command->run == NULL;
    if (!*container || count == 1)
        return command;
    name[len++] = '|';
    if (len >= NAME_MAX_BYTES - 2 || name_add(name, len, arg[1]) == 0)
        return NULL;
    return command_named(name);
}

/* A count of keys, as atoi() reads it: whatever comes behind the digits. */
static int32_t
count_read(struct text text)
{
    int64_t value = 0;
    size_t at = 0;
    bool negative = false;

    while (at < text.len &&
           (text.at[at] == ' ' || (text.at[at] >= '\t' && text.at[at] <= '\r')))
        at++;
    if (at < text.len && (text.at[at] == '-' || text.at[at] == '+'))
        negative = text.at[at++] == '-';
    for (; at < text.len && text.at[at] >= '0' && text.at[at] <= '9'; at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text.at[at] - '0', &value))
            return negative ? 0 : -1; /* the end of a long, cut to an int */
    return (int32_t)(uint32_t)(uint64_t)(negative ? -value : value);
}

void
command_keys(const struct command *command, const struct text *arg,
    size_t count, size_t *first, size_t *keys)
{
    *first = 0;
    *keys = 0;
    if (command->first_key == 0)
        return;
    if ((command->flags & COMMAND_SCRIPT) != 0) {
        *first = 3;
        int32_t number = count_read(arg[2]);
        if (number > 0 && number <= (int64_t)count - 3)
            *keys = (size_t)number;
        return;
    }
    *first = (size_t)command->first_key;
    *keys = command->last_key < 0
                ? count - *first
                : (size_t)(command->last_key - command->first_key + 1);
}
