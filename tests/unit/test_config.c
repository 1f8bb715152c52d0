/*
 * The configuration: the shipped files, each key's range, each kind of error
 * with its place, and the reading of printed configurations.
 */
#include "conf/config.h"
#include "conf/keys.h"
#include "conf/value.h"
#include "conf/walk.h"
#include "daemon/base/log.h"
#include "daemon/base/random.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *config_suite(void);

#define TEXT_BYTES 32768

static struct config config;
static char error[CONFIG_ERROR_BYTES];

static bool
load(const char *text)
{
    /* Of exactly its size: a sanitizer sees a byte read beyond it. */
    size_t len = strlen(text);
    char *copy = malloc(len + 1);
    bool done;

    ck_assert_ptr_nonnull(copy);
    memmove(copy + 1, text, len);
    error[0] = '\0';
    done = config_load_text(&config, "f", copy + 1, len, error, sizeof(error));
    free(copy);
    return done;
}

static void
print(const struct config *from, char *out)
{
    FILE *file = fmemopen(out, TEXT_BYTES, "w");

    ck_assert_ptr_nonnull(file);
    config_print(from, file);
    ck_assert_int_eq(fclose(file), 0);
}

static void
read_all(const char *path, char *out)
{
    FILE *file = fopen(path, "r");
    size_t len;

    ck_assert_msg(file != NULL, "%s", path);
    len = fread(out, 1, TEXT_BYTES - 1, file);
    ck_assert_uint_lt(len, TEXT_BYTES - 1);
    out[len] = '\0';
    fclose(file);
}

static void
write_file(char *path, const char *bytes, size_t len)
{
    int file;

    memcpy(path, "/tmp/holdfast-config-XXXXXX", 28);
    file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, bytes, len), (ssize_t)len);
    close(file);
}

/* The shipped files */

static const char documented[] =
    "listen:\n"
    "    tcp: [\"127.0.0.1:4653\"]\n"
    "    unix: []\n"
    "    tls: []\n"
    "    tls_cert: \"\"\n"
    "    tls_key: \"\"\n"
    "    tls_client_ca: \"\"\n"
    "    tls_client_cert: asked\n"
    "    backlog: 1024\n"
    "    beyond_loopback_without_users: refused\n"
    "auth:\n"
    "    users_file: \"\"\n"
    "    timeout: 30s\n"
    "admin:\n"
    "    http: \"127.0.0.1:4654\"\n"
    "redis:\n"
    "    topology: cluster\n"
    "    nodes: [\"127.0.0.1:7000\", \"127.0.0.1:7001\", \"127.0.0.1:7002\"]\n"
    "    sentinel_master: \"mymaster\"\n"
    "    sentinel_username: \"\"\n"
    "    sentinel_password_file: \"\"\n"
    "    username: \"\"\n"
    "    password_file: \"\"\n"
    "    tls:\n"
    "        ca: \"\"\n"
    "        cert: \"\"\n"
    "        key: \"\"\n"
    "        server_name: \"\"\n"
    "        verify: full\n"
    "    key_prefix: \"holdfast\"\n"
    "    safety: fenced\n"
    "    replicas: 0\n"
    "    settle: 30s\n"
    "    forget_after: 24h\n"
    "    patience: 5s\n"
    "    connect_timeout: 1s\n"
    "    command_timeout: 1s\n"
    "    batch: 64\n"
    "    in_flight: 0\n"
    "    busy_poll_us: 50\n"
    "lease:\n"
    "    default: 30s\n"
    "session:\n"
    "    keepalive:\n"
    "        idle: 5s\n"
    "        interval: 2s\n"
    "        count: 3\n"
    "    tcp_user_timeout: 10s\n"
    "    stop_grace: 5s\n"
    "limits:\n"
    "    connections: 0\n"
    "    connections_per_address: 0\n"
    "    connections_per_user: 0\n"
    "    holds_per_user: 0\n"
    "    line: 4096\n"
    "    name: 255\n"
    "    outstanding: 4096\n"
    "    holds: 16384\n"
    "    waiters: 10000\n"
    "    tickets: 262144\n"
    "    requests: 262144\n"
    "    output: 1MiB\n"
    "    memory: 256MiB\n"
    "namespaces: []\n"
    "audit:\n"
    "    interval: 10m\n"
    "    keys: 100\n"
    "    pause: 10ms\n"
    "    warn_after: 24h\n"
    "    wait_after: 1h\n"
    "    break_after: 0s\n"
    "    hook: []\n"
    "    hook_timeout: 10s\n"
    "slow:\n"
    "    threshold: 100ms\n"
    "log:\n"
    "    level: info\n"
    "    format: text\n"
    "    rate: 50\n";

START_TEST(defaults_are_the_documented_ones)
{
    char text[TEXT_BYTES];

    config_init(&config);
    print(&config, text);
    ck_assert_str_eq(text, documented);
    ck_assert_uint_eq(config.limit_output, 1024 * 1024);
    ck_assert_uint_eq(config.forget_after_ms, 24 * 3600 * 1000);
    ck_assert_uint_eq(config.redis_nodes.item[2].port, 7002);
}

END_TEST

START_TEST(full_file_is_the_defaults)
{
    struct config defaults;

    config_init(&defaults);
    ck_assert_msg(
        config_load(&config, "conf/holdfast.yaml", error, sizeof(error)), "%s",
        error);
    ck_assert_mem_eq(&config, &defaults, sizeof(config));
}

END_TEST

struct full_file {
    char text[TEXT_BYTES];
    bool seen[128];
};

/* Uncomments the keys after a # without a blank. */
static void
uncomment(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        if (at[0] == '#' && at[1] >= 'a' && at[1] <= 'z')
            memmove(at, at + 1, strlen(at));
    }
}

/* The end of a key's line says what a reload does with the key. */
static void
check_mark(const struct key *key, const char *line, size_t number)
{
    const char *mark = key->type == KEY_SECTION ? ":"
                       : key->reloadable        ? "  # reload"
                                                : "  # restart";

    while (number-- > 1)
        line = strchr(line, '\n') + 1;
    const char *end = strchr(line, '\n') - strlen(mark);
    ck_assert_msg(strncmp(end, mark, strlen(mark)) == 0, "%s", key->path);
}

static bool
mark_key(struct walk *walk, struct text path, struct text name,
    struct walk_place place, enum walk_shape *shape)
{
    const struct key *key = key_find(path);
    struct full_file *full = walk->context;

    (void)name;
    ck_assert_ptr_nonnull(key);
    full->seen[key_index(key)] = true;
    check_mark(key, full->text, place.line);
    *shape = WALK_VALUE;
    if (key->type == KEY_SECTION)
        *shape = WALK_SECTION;
    else if (key->type == KEY_ITEMS)
        *shape = WALK_ITEMS;
    else if (key->bytes == sizeof(struct config_list))
        *shape = WALK_LIST;
    return true;
}

static bool
ignore_value(struct walk *walk, struct text value, struct walk_place place)
{
    (void)walk;
    (void)value;
    (void)place;
    return true;
}

START_TEST(full_file_names_every_key)
{
    struct config defaults;
    struct full_file full = {0};
    struct walk walk = {.file = "f",
        .error = error,
        .error_bytes = sizeof(error),
        .context = &full,
        .on_key = mark_key,
        .on_value = ignore_value};

    read_all("conf/holdfast.yaml", full.text);
    uncomment(full.text);
    ck_assert_uint_le(key_count(), sizeof(full.seen));
    ck_assert_msg(walk_text(&walk, text_from(full.text)), "%s", error);
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        bool told = full.seen[i];
        if (key_items(key) != NULL) /* by default there are no items */
            told = strstr(full.text, key_name(key)) != NULL;
        ck_assert_msg(told, "%s is missing", key->path);
    }
    config_init(&defaults);
    ck_assert_msg(load(full.text), "%s", error);
    ck_assert_mem_eq(&config, &defaults, sizeof(config));
}

END_TEST

START_TEST(minimal_file_is_one_server)
{
    struct config expected;

    config_init(&expected);
    expected.topology = TOPOLOGY_SINGLE;
    memset(&expected.redis_nodes, 0, sizeof(expected.redis_nodes));
    memcpy(expected.redis_nodes.item[0].host, "127.0.0.1", 9);
    expected.redis_nodes.item[0].port = 6379;
    expected.redis_nodes.count = 1;
    ck_assert_msg(
        config_load(&config, "conf/minimal.yaml", error, sizeof(error)), "%s",
        error);
    ck_assert_mem_eq(&config, &expected, sizeof(config));
}

END_TEST

START_TEST(nothing_in_it_is_the_defaults)
{
    static const char *const empty[] = {
        "",
        "\n",
        "# only this\n",
        "---\n",
        "---\n...\n",
        "{}\n",
        "listen:\nadmin:\nredis:\nlease:\nsession:\nlimits:\nlog:\n",
        "session:\n  keepalive:\n    # idle: 5s\n",
        "\xef\xbb\xbf",
        "%YAML 1.1\n---\n",
    };
    struct config defaults;

    config_init(&defaults);
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        ck_assert_msg(load(empty[i]), "%zu: %s", i, error);
        ck_assert_mem_eq(&config, &defaults, sizeof(config));
    }
}

END_TEST

/* The table */

static bool
is_number(const struct key *key)
{
    return key->type == KEY_COUNT || key->type == KEY_SIZE ||
           key->type == KEY_DURATION || key->type == KEY_SECONDS;
}

static bool
parse_text(const struct key *key, const char *text)
{
    char why[128];

    value_clear(key, &config);
    return value_parse(key, text_from(text), &config, why, sizeof(why));
}

static bool
parse_number(const struct key *key, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    if (key->type != KEY_DURATION && key->type != KEY_SECONDS)
        return parse_text(key, text);
    /* A number without a unit may be taken for seconds. */
    ck_assert_msg(parse_text(key, text) == (number == 0 && key->min == 0),
        "%s: %s", key->path, text);
    snprintf(text, sizeof(text), "%llums", (unsigned long long)number);
    return parse_text(key, text);
}

START_TEST(ranges_are_exact)
{
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        uint64_t step = key->type == KEY_SECONDS ? 1000 : 1;

        if (!is_number(key))
            continue;
        ck_assert_uint_lt(key->min, key->max);
        ck_assert_msg(parse_number(key, key->min), "%s", key->path);
        ck_assert_msg(parse_number(key, key->max), "%s", key->path);
        ck_assert_msg(parse_number(key, key->min + step), "%s", key->path);
        ck_assert_msg(!parse_number(key, key->max + 1), "%s", key->path);
        if (key->min > 0)
            ck_assert_msg(!parse_number(key, key->min - 1), "%s", key->path);
    }
}

END_TEST

START_TEST(table_is_well_formed)
{
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        const char *dot = strrchr(key->path, '.');

        ck_assert_uint_eq(key_index(key), i);
        ck_assert_ptr_eq(key_find(text_from(key->path)), key);
        ck_assert_str_eq(key_name(key), dot == NULL ? key->path : dot + 1);
        if (dot != NULL) {
            struct text section = {key->path, (size_t)(dot - key->path)};

            ck_assert_ptr_nonnull(key_find(section));
            ck_assert_uint_lt(key_index(key_find(section)), i);
        }
        ck_assert((key->type == KEY_SECTION) == (key->bytes == 0));
        ck_assert((key->type == KEY_ITEMS) == (key->item_bytes > 0));
        ck_assert((key->words != NULL) ==
                  (key->type == KEY_CHOICE || key->type == KEY_WORD));
    }
}

END_TEST

START_TEST(log_levels_are_those_of_the_log)
{
    const struct key_word *word = key_find(TEXT("log.level"))->words;
    enum log_level level;
    size_t count = 0;

    for (; word->name != NULL; word++, count++)
        ck_assert(log_level_parse(text_from(word->name), &level));
    ck_assert_uint_eq(count, LOG_DEBUG - LOG_ERROR + 1);
}

END_TEST

/* Good values */

/* Loads `text`; the line of config_print() with `name` must be `line`. */
static void
check_line(const char *text, const char *line)
{
    char printed[TEXT_BYTES];

    ck_assert_msg(load(text), "%s: %s", text, error);
    print(&config, printed);
    ck_assert_msg(strstr(printed, line) != NULL, "%s: no \"%s\" in:\n%s", text,
        line, printed);
}

START_TEST(good_values)
{
    static const struct {
        const char *text;
        const char *line;
    } cases[] = {
        {"lease: {default: 1000ms}", " default: 1s\n"},
        {"lease: {default: 1500ms}", " default: 1500ms\n"},
        {"lease: {default: 45s}", " default: 45s\n"},
        {"lease: {default: 60s}", " default: 1m\n"},
        {"lease: {default: \"5m\"}", " default: 5m\n"},
        {"lease: {default: 1h}", " default: 1h\n"},
        {"lease: {default: 1h}", " settle: 1h\n"},
        {"lease: {default: 1h}", " command_timeout: 1s\n"},
        {"lease: {default: 1s}", " command_timeout: 250ms\n"},
        {"redis: {settle: 0s}", " settle: 0s\n"},
        {"redis: {settle: 0}\nlease: {default: 9s}", " settle: 0s\n"},
        {"redis: {forget_after: 5h}", " forget_after: 5h\n"},
        {"redis: {command_timeout: 9999ms}", " command_timeout: 9999ms\n"},
        {"redis: {safety: fenced}", " safety: fenced\n"},
        {"redis: {key_prefix: a.b_c:d-9}", " key_prefix: \"a.b_c:d-9\"\n"},
        {"redis: {username: u, password_file: /p}", " username: \"u\"\n"},
        {"redis: {password_file: '/a \"b\\c'}", " \"/a \\\"b\\\\c\"\n"},
        {"redis: {password_file: \"/gr\\xf6\\xdfe\"}",
            " \"/gr\\U000000F6\\U000000DFe\"\n"},
        {"redis: {password_file: \"/\xe2\x82\xac\xf0\x9f\x94\x92\"}",
            " \"/\\U000020AC\\U0001F512\"\n"},
        {"redis: {tls: {ca: /c}}", " ca: \"/c\"\n"},
        {"redis: {tls: {ca: /c, cert: /d, key: /k}}", " key: \"/k\"\n"},
        {"redis: {tls: {ca: /c, verify: ca}}", " verify: ca\n"},
        {"redis: {tls: {ca: /c, server_name: r-1.example}}",
            " server_name: \"r-1.example\"\n"},
        {"redis: {tls: {ca: /c, server_name: 10.0.0.1}}",
            " server_name: \"10.0.0.1\"\n"},
        {"redis: {tls: {ca: /c, server_name: '::1'}}",
            " server_name: \"::1\"\n"},
        {"redis: {tls: {ca: ''}}", " ca: \"\"\n"},
        {"redis: {nodes: 'r.example:1'}", " nodes: [\"r.example:1\"]\n"},
        {"redis:\n  nodes:\n  - r_1.x-y:65535\n  - \"[::1]:7\"\n",
            " nodes: [\"r_1.x-y:65535\", \"[::1]:7\"]\n"},
        {"redis: {topology: single, nodes: ['10.0.0.1:6379']}",
            " topology: single\n"},
        {"listen: {tcp: ['[fe80::1%eth0]:1']}", " [\"[fe80::1%eth0]:1\"]\n"},
        {"listen: {tcp: 'localhost:0'}", " tcp: [\"localhost:0\"]\n"},
        {"listen: {tcp: ['a:0', 'a:0']}", " tcp: [\"a:0\", \"a:0\"]\n"},
        {"listen: {tcp: [], unix: /run/x}", " unix: [\"/run/x\"]\n"},
        {"listen: {tcp: [], tls: '[::1]:4655', tls_cert: /c, tls_key: /k}",
            " tls: [\"[::1]:4655\"]\n"},
        {"listen: {tls_cert: /c, tls_key: /k}", " tls_key: \"/k\"\n"},
        {"listen: {tls_cert: /c, tls_key: /k, tls_client_ca: /a, "
         "tls_client_cert: required}",
            " tls_client_cert: required\n"},
        {"listen: {tcp: [], unix: [./x, y/z]}", " [\"./x\", \"y/z\"]\n"},
        {"admin: {http: none}", " http: none\n"},
        {"admin: {http: ''}", " http: none\n"},
        {"admin: {http: '[::]:0'}", " http: \"[::]:0\"\n"},
        {"limits: {output: 16384}", " output: 16KiB\n"},
        {"limits: {output: 20000}", " output: 20000\n"},
        {"limits: {output: 64KiB}", " output: 64KiB\n"},
        {"limits: {output: 1024KiB}", " output: 1MiB\n"},
        {"limits: {memory: 1024GiB}", " memory: 1024GiB\n"},
        {"limits: {memory: 2048MiB}", " memory: 2GiB\n"},
        {"limits: {connections: 17}", " connections: 17\n"},
        {"session: {keepalive: {idle: 7000ms}}", " idle: 7s\n"},
        {"session: {keepalive: {interval: 2m}}", " interval: 2m\n"},
        {"session: {stop_grace: 0s}", " stop_grace: 0s\n"},
        {"log: {level: debug}", " level: debug\n"},
        {"log:\r\n  level: 'warn'\r\n", " level: warn\n"},
        {"slow: {threshold: 0s}", " threshold: 0s\n"},
        {"log: {format: json}", " format: json\n"},
        {"log: {rate: 0}", " rate: 0\n"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_line(cases[i].text, cases[i].line);
}

END_TEST

START_TEST(addresses_as_text)
{
    struct config_address address = {"::1", 4653};
    char text[16];

    ck_assert_str_eq(config_address_text(&address, text, 16), "[::1]:4653");
    ck_assert_str_eq(config_address_text(&address, text, 4), "[::");
    address = (struct config_address){"a.b", 1};
    ck_assert_str_eq(config_address_text(&address, text, 16), "a.b:1");
    address = (struct config_address){"/run/x", 0};
    ck_assert_str_eq(config_address_text(&address, text, 16), "/run/x");
}

END_TEST

/* Round trip */

static struct random random_state;

static uint64_t
pick(uint64_t min, uint64_t max)
{
    return min + random_below(&random_state, max - min + 1);
}

/* Small and large numbers: most random numbers are large. */
static uint64_t
pick_number(const struct key *key)
{
    static const uint64_t steps[] = {1, 1000, 1024, 60000, 3600000, 1048576};
    uint64_t step = steps[pick(0, 5)];
    uint64_t span = (key->max - key->min) >> pick(0, 30);
    uint64_t number = key->min + pick(0, span);

    if (key->type == KEY_SECONDS)
        return number / 1000 * 1000;
    return number / step * step < key->min ? number : number / step * step;
}

static void
pick_text(char *out, size_t len_max, const char *pieces[])
{
    size_t count = 0;
    size_t len = 0;

    while (pieces[count] != NULL)
        count++;
    for (size_t left = pick(1, 40); left > 0; left--) {
        const char *piece = pieces[pick(0, count - 1)];

        if (len + strlen(piece) > len_max)
            break;
        memcpy(out + len, piece, strlen(piece));
        len += strlen(piece);
    }
}

static const char *const hosts[] = {
    "10.0.0.1", "::1", "host-1.example", "fe80::1%eth0", "::ffff:1.2.3.4", "x"};

static void
pick_list(const struct key *key, struct config_list *list)
{
    uint64_t room = key->max < 9 ? key->max : 9;

    list->count = pick(key->min, room);
    for (size_t i = 0; i < list->count; i++) {
        struct config_address *address = &list->item[i];

        if (key->type == KEY_PATHS || key->type == KEY_WORDS) {
            snprintf(
                address->host, sizeof(address->host), "/run/%zu \"%%\\'", i);
        } else {
            const char *host = hosts[pick(0, 5)];

            memcpy(address->host, host, strlen(host));
            address->port = (uint16_t)(key->type == KEY_LISTEN_ONE ? 9 : i + 1);
        }
    }
}

static void
pick_value(const struct key *key, void *field)
{
    const char *prefix[] = {"a", "Z", "0", "_", ".", ":", "-", NULL};
    const char *user[] = {"u", "#", ":", "\"", "\\", "\xc3\xb6", "'", NULL};
    const char *host = hosts[pick(0, 5)];
    const char *path[] = {"/", " ", "%", "\xe2\x80\xa8", "\xf0\x9f\x94\x92",
        "\xc2\x85", "\xef\xbb\xbf", "\\", "\"", NULL};

    if (key->type == KEY_COUNT)
        *(uint32_t *)field = (uint32_t)pick_number(key);
    else if (is_number(key))
        *(uint64_t *)field = pick_number(key);
    else if (key->type == KEY_PREFIX)
        pick_text(field, key->bytes - 1, prefix);
    else if (key->type == KEY_USER)
        pick_text(field, key->bytes - 1, user);
    else if (key->type == KEY_FILE)
        pick_text(field, key->bytes - 1, path);
    else if (key->type == KEY_HOST)
        memcpy(field, host, strlen(host));
    else if (key->bytes == sizeof(struct config_list))
        pick_list(key, field);
}

/*
 * Sets each key at random within its range, then obeys the rules between keys.
 */
static void
pick_config(struct config *out)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    const char *level = levels[pick(0, 3)];

    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);

        if (key->type != KEY_SECTION && key->type != KEY_ITEMS &&
            key_items(key) == NULL)
            pick_value(key, (char *)out + key->offset);
    }
    out->namespace_count = (uint32_t)pick(0, 3);
    for (uint32_t i = 0; i < out->namespace_count; i++)
        snprintf(out->namespaces[i].prefix, sizeof(out->namespaces[i].prefix),
            "%u#:{'%%", (unsigned)pick(1, 9) + 10 * i);
    memcpy(out->log_level, level, strlen(level));
    out->safety = SAFETY_FENCED;
    out->topology = TOPOLOGY_CLUSTER;
    if (out->redis_nodes.count == 1)
        out->topology = TOPOLOGY_SINGLE;
    if (out->listen_tcp.count + out->listen_unix.count == 0) {
        memcpy(out->listen_tcp.item[0].host, "::", 2);
        out->listen_tcp.count = 1;
    }
    for (size_t i = 0; i < out->listen_tls.count; i++)
        out->listen_tls.item[i].port += 1000;
    if (out->admin_http.count == 1)
        out->admin_http.item[0].port = 4000;
    if (out->command_timeout_ms * 3 >= out->lease_ms)
        out->command_timeout_ms = out->lease_ms / 4;
    if (out->forget_after_ms < out->lease_ms * 10)
        out->forget_after_ms = out->lease_ms * 10;
    if (out->limit_memory < out->limit_output)
        out->limit_memory = out->limit_output;
}

START_TEST(what_is_printed_reads_the_same)
{
    struct config picked;
    char text[TEXT_BYTES];
    char again[TEXT_BYTES];

    random_init(&random_state, 4653);
    for (int i = 0; i < 3000; i++) {
        pick_config(&picked);
        print(&picked, text);
        ck_assert_msg(load(text), "%d: %s\n%s", i, error, text);
        print(&config, again);
        ck_assert_str_eq(text, again);
        ck_assert_mem_eq(&picked, &config, sizeof(config));
    }
}

END_TEST

/* Errors */

struct bad_case {
    const char *text;
    const char *error;
};

static void
check_bad(const struct bad_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(!load(cases[i].text), "taken: %s", cases[i].text);
        ck_assert_str_eq(error, cases[i].error);
    }
}

#define CHECK_BAD(cases) check_bad(cases, sizeof(cases) / sizeof((cases)[0]))

START_TEST(unknown_keys_are_refused)
{
    static const struct bad_case cases[] = {
        {"lisen:\n", "f:1:1: unknown key \"lisen\"; did you mean \"listen\"?"},
        {"# x\n\nlisten:\n  tpc: x\n",
            "f:4:3: unknown key \"listen.tpc\"; did you mean \"listen.tcp\"?"},
        {"redis: {key-prefix: a}", "f:1:9: unknown key \"redis.key-prefix\"; "
                                   "did you mean \"redis.key_prefix\"?"},
        {"redis: {keyPrefix: a}", "f:1:9: unknown key \"redis.keyPrefix\"; did "
                                  "you mean \"redis.key_prefix\"?"},
        {"redis:\n    node: a:1\n",
            "f:2:5: unknown key \"redis.node\"; did you mean \"redis.nodes\"?"},
        {"Lease: {default: 1s}",
            "f:1:1: unknown key \"Lease\"; did you mean \"lease\"?"},
        {"session: {keepalive: {idel: 1s}}",
            "f:1:23: unknown key \"session.keepalive.idel\"; did you mean "
            "\"session.keepalive.idle\"?"},
        {"lease: {settle: 1s}", "f:1:9: unknown key \"lease.settle\"; did you "
                                "mean \"redis.settle\"?"},
        {"patience: 1s", "f:1:1: unknown key \"patience\"; did you mean "
                         "\"redis.patience\"?"},
        {"tls: {}", "f:1:1: unknown key \"tls\"; did you mean \"listen.tls\"?"},
        {"redis: {tls: {crt: /c}}",
            "f:1:15: unknown key \"redis.tls.crt\"; did you mean "
            "\"redis.tls.cert\", the name of a file?"},
        {"redis: {tls: {insecure: yes}}",
            "f:1:15: unknown key \"redis.tls.insecure\"\n"
            "f:1:9: redis.tls: needs redis.tls.ca"},
        {"redis: {sentinels: [a]}", "f:1:9: unknown key \"redis.sentinels\""},
        {"xyzzy: 1", "f:1:1: unknown key \"xyzzy\""},
        {"\"\": 1", "f:1:1: unknown key \"\""},
        {"<<: {}", "f:1:1: unknown key \"<<\""},
        {"\"a\\nb\": 1", "f:1:1: unknown key \"a\\x0ab\""},
        {"\"log\\0\": 1",
            "f:1:1: unknown key \"log\\x00\"; did you mean \"log\"?"},
        {"lease.default: 1s", "f:1:1: unknown key \"lease.default\"; write the "
                              "section and the key below it, without a dot"},
        {"session: {keepalive.idle: 1s}",
            "f:1:11: unknown key \"session.keepalive.idle\"; write the section "
            "and the key below it, without a dot"},
    };

    CHECK_BAD(cases);
}

END_TEST

START_TEST(doubled_keys_are_refused)
{
    static const struct bad_case cases[] = {
        {"log:\nlog:\n", "f:2:1: key \"log\" is already on line 1"},
        {"lease: {default: 5s, default: 5s}",
            "f:1:22: key \"lease.default\" is already on line 1"},
        {"redis:\n  batch: 1\n  settle: 1s\n  batch: 2\n",
            "f:4:3: key \"redis.batch\" is already on line 2"},
        {"listen: {tcp: ['a:1', 'b:1', 'a:1']}",
            "f:1:30: listen.tcp: \"a:1\": listed twice"},
        {"redis: {nodes: ['[::1]:1', '[::1]:1']}",
            "f:1:28: redis.nodes: \"[::1]:1\": listed twice"},
        {"listen: {unix: [/a, /b, /a]}",
            "f:1:25: listen.unix: \"/a\": listed twice"},
    };

    CHECK_BAD(cases);
}

END_TEST

START_TEST(wrong_kinds_are_refused)
{
    static const struct bad_case cases[] = {
        {"word", "f:1:1: keys expected, \"name: value\" each"},
        {"- a", "f:1:1: keys expected, \"name: value\" each"},
        {"redis: 5", "f:1:8: redis: keys expected, \"name: value\" each"},
        {"redis: ''", "f:1:8: redis: keys expected, \"name: value\" each"},
        {"redis:\n- a", "f:2:1: redis: keys expected, \"name: value\" each"},
        {"lease: {default: [1s]}", "f:1:18: lease.default: one value expected"},
        {"lease: {default: {}}", "f:1:18: lease.default: one value expected"},
        {"admin: {http: [a:1]}", "f:1:15: admin.http: one value expected"},
        {"listen: {tcp: {a: b}}",
            "f:1:15: listen.tcp: a list of values expected"},
        {"listen: {tcp: ['a:1', ['a:2']]}",
            "f:1:23: listen.tcp: one value expected"},
        {"listen:\n  tcp:\n  - a: 1\n",
            "f:3:5: listen.tcp: one value expected"},
        {"? [a]\n: b\n", "f:1:3: a key must be a word"},
        {"log:\n  ? {a: b}\n  : c\n", "f:2:5: log: a key must be a word"},
    };

    CHECK_BAD(cases);
}

END_TEST

START_TEST(empty_values_are_refused)
{
    static const struct bad_case cases[] = {
        {"lease:\n  default:\n", "f:2:11: lease.default: no value given"},
        {"lease: {default: ~}", "f:1:18: lease.default: no value given"},
        {"lease: {default: null}", "f:1:18: lease.default: no value given"},
        {"redis: {username: Null}", "f:1:19: redis.username: no value given"},
        {"listen:\n  tcp:\n", "f:2:7: listen.tcp: no value given"},
        {"listen:\n  tcp:\n  -\n", "f:3:4: listen.tcp: no value given"},
        {"lease: {default: ''}", "f:1:18: lease.default: \"\": a duration "
                                 "expected, such as 1500ms, 30s, 5m or 1h"},
        {"log: {level: ''}", "f:1:14: log.level: \"\": not known; expected "
                             "error or warn or info or debug"},
        {"redis: {key_prefix: ''}", "f:1:21: redis.key_prefix: \"\": 1 to 32 "
                                    "letters, digits or any of _.:- expected"},
        {"redis: {nodes: ''}",
            "f:1:16: redis.nodes: \"\": HOST:PORT or [IPV6]:PORT expected"},
        {"redis: {nodes: []}",
            "f:1:9: redis.nodes: at least one value expected"},
        {"listen: {unix: ['']}",
            "f:1:17: listen.unix: \"\": a path with a slash expected, such as "
            "/run/holdfast/holdfast.sock"},
    };

    CHECK_BAD(cases);
}

END_TEST

START_TEST(bad_numbers_are_refused)
{
#define COUNTS  ": a whole number expected"
#define LENGTHS ": a size expected, such as 4096, 64KiB, 1MiB or 1GiB"
#define TIMES   ": a duration expected, such as 1500ms, 30s, 5m or 1h"
    static const struct bad_case cases[] = {
        {"limits: {line: x}", "f:1:16: limits.line: \"x\"" COUNTS},
        {"limits: {line: -1}", "f:1:16: limits.line: \"-1\"" COUNTS},
        {"limits: {line: +1}", "f:1:16: limits.line: \"+1\"" COUNTS},
        {"limits: {line: 01000}", "f:1:16: limits.line: \"01000\"" COUNTS},
        {"limits: {line: 0x800}", "f:1:16: limits.line: \"0x800\"" COUNTS},
        {"limits: {line: 1_000}", "f:1:16: limits.line: \"1_000\"" COUNTS},
        {"limits: {line: 1e3}", "f:1:16: limits.line: \"1e3\"" COUNTS},
        {"limits: {line: 4KiB}", "f:1:16: limits.line: \"4KiB\"" COUNTS},
        {"limits: {line: ' 1000'}", "f:1:16: limits.line: \" 1000\"" COUNTS},
        {"limits: {line: \"1000\\0\"}",
            "f:1:16: limits.line: \"1000\\x00\"" COUNTS},
        {"limits: {output: 1mib}", "f:1:18: limits.output: \"1mib\"" LENGTHS},
        {"limits: {output: 1MB}", "f:1:18: limits.output: \"1MB\"" LENGTHS},
        {"limits: {output: 1 MiB}", "f:1:18: limits.output: \"1 MiB\"" LENGTHS},
        {"limits: {output: MiB}", "f:1:18: limits.output: \"MiB\"" LENGTHS},
        {"lease: {default: 30S}", "f:1:18: lease.default: \"30S\"" TIMES},
        {"lease: {default: 1.5s}", "f:1:18: lease.default: \"1.5s\"" TIMES},
        {"lease: {default: 30 s}", "f:1:18: lease.default: \"30 s\"" TIMES},
        {"lease: {default: 1d}", "f:1:18: lease.default: \"1d\"" TIMES},
        {"lease: {default: s}", "f:1:18: lease.default: \"s\"" TIMES},
        {"lease: {default: |\n 30s\n}",
            "f:1:18: not YAML: found character that cannot start any token"},
        {"lease:\n  default: |\n    30s\n",
            "f:2:12: lease.default: \"30s\\x0a\"" TIMES},
        {"redis: {settle: 30}", "f:1:17: redis.settle: \"30\": a duration "
                                "needs a unit: write 30ms, or s, m, h"},
        {"namespaces: [{prefix: a, warn_after: '24'}]",
            "f:1:38: namespaces.warn_after: \"24\": a duration needs a unit: "
            "write 24ms, or s, m, h"},
        {"session: {keepalive: {idle: 5}}",
            "f:1:29: session.keepalive.idle: \"5\": a duration needs a unit: "
            "write 5ms, or s, m, h"},
        {"lease: {default: 030}", "f:1:18: lease.default: \"030\"" TIMES},
        {"lease: {default: 99999999999999999999}",
            "f:1:18: lease.default: \"99999999999999999999\"" TIMES},
        {"session: {keepalive: {idle: 5500ms}}",
            "f:1:29: session.keepalive.idle: \"5500ms\": whole seconds "
            "expected"},
    };

    CHECK_BAD(cases);
#undef COUNTS
#undef LENGTHS
#undef TIMES
}

END_TEST

START_TEST(numbers_out_of_range_are_refused)
{
    static const struct bad_case cases[] = {
        {"limits: {line: 511}",
            "f:1:16: limits.line: \"511\": out of range, 512 to 4096 expected"},
        {"limits: {line: 4097}", "f:1:16: limits.line: \"4097\": out of range, "
                                 "512 to 4096 expected"},
        {"limits: {name: 0}",
            "f:1:16: limits.name: \"0\": out of range, 1 to 255 expected"},
        {"limits: {name: 256}",
            "f:1:16: limits.name: \"256\": out of range, 1 to 255 expected"},
        {"lease: {default: 999ms}", "f:1:18: lease.default: \"999ms\": out of "
                                    "range, 1s to 1h expected"},
        {"lease: {default: 0}",
            "f:1:18: lease.default: \"0\": out of range, 1s to 1h expected"},
        {"lease: {default: 61m}",
            "f:1:18: lease.default: \"61m\": out of range, 1s to 1h expected"},
        {"redis: {settle: 2h}",
            "f:1:17: redis.settle: \"2h\": out of range, 0s to 1h expected"},
        {"redis: {forget_after: 59m}", "f:1:23: redis.forget_after: \"59m\": "
                                       "out of range, 1h to 8760h expected"},
        {"redis: {batch: 65}",
            "f:1:16: redis.batch: \"65\": out of range, 1 to 64 expected"},
        {"limits: {memory: 1023KiB}", "f:1:18: limits.memory: \"1023KiB\": out "
                                      "of range, 1MiB to 1024GiB expected"},
        {"limits: {holds: 4294967297}", "f:1:17: limits.holds: \"4294967297\": "
                                        "out of range, 1 to 1048576 expected"},
        {"limits: {holds: 18446744073709551617}",
            "f:1:17: limits.holds: \"18446744073709551617\": out of range, 1 "
            "to 1048576 expected"},
        {"lease: {default: 5124095576030432h}",
            "f:1:18: lease.default: \"5124095576030432h\": out of range, 1s to "
            "1h expected"},
        {"limits: {output: 17179869185GiB}",
            "f:1:18: limits.output: \"17179869185GiB\": out of range, 16KiB to "
            "1GiB expected"},
    };

    CHECK_BAD(cases);
}

END_TEST

START_TEST(bad_words_and_texts_are_refused)
{
    static const struct bad_case cases[] = {
        {"redis: {topology: Cluster}",
            "f:1:19: redis.topology: \"Cluster\": not known; expected single "
            "or cluster or sentinel or quorum"},
        {"redis: {safety: Strict}", "f:1:17: redis.safety: \"Strict\": not "
                                    "known; expected fenced or strict"},
        {"redis: {replicas: 101}",
            "f:1:19: redis.replicas: \"101\": out of range, 0 to 100 expected"},
        {"slow: {threshold: 2h}",
            "f:1:19: slow.threshold: \"2h\": out of range, 0s to 1h expected"},
        {"log: {format: yaml}",
            "f:1:15: log.format: \"yaml\": not known; expected text or json"},
        {"log: {rate: 1000001}", "f:1:13: log.rate: \"1000001\": out of range, "
                                 "0 to 1000000 expected"},
        {"log: {level: verbose}", "f:1:14: log.level: \"verbose\": not known; "
                                  "expected error or warn or info or debug"},
        {"redis: {key_prefix: 'a{b}'}",
            "f:1:21: redis.key_prefix: \"a{b}\": 1 to 32 letters, digits or "
            "any of _.:- expected"},
        {"redis: {key_prefix: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}",
            "f:1:21: redis.key_prefix: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": "
            "longer than 32 bytes"},
        {"redis: {key_prefix: \"\xc3\xb6\"}",
            "f:1:21: redis.key_prefix: \"\\xc3\\xb6\": 1 to 32 letters, digits "
            "or any of _.:- expected"},
        {"redis: {username: a b}", "f:1:19: redis.username: has a blank"},
        {"redis: {username: \"a\\tb\"}",
            "f:1:19: redis.username: has a control character"},
        {"redis: {tls: {verify: none}}", "f:1:23: redis.tls.verify: \"none\": "
                                         "not known; expected full or ca"},
        {"redis: {tls: /ca}",
            "f:1:14: redis.tls: keys expected, \"name: value\" each"},
        {"redis: {tls: {server_name: 'a:1'}}",
            "f:1:28: redis.tls.server_name: \"a:1\": not an IPv6 address"},
        {"redis: {tls: {server_name: '*.a'}}",
            "f:1:28: redis.tls.server_name: \"*.a\": a host's name or number "
            "expected"},
        {"redis: {tls: {server_name: \"a\\0\"}}",
            "f:1:28: redis.tls.server_name: \"a\\x00\": a host's name or "
            "number expected"},
        {"redis: {tls: {server_name: 10.0.0.256}}",
            "f:1:28: redis.tls.server_name: \"10.0.0.256\": not an IPv4 "
            "address"},
        {"redis: {password_file: \"/a\\0b\"}",
            "f:1:24: redis.password_file: has a control character"},
        {"listen: {tls_client_cert: wanted}",
            "f:1:27: listen.tls_client_cert: \"wanted\": not known; expected "
            "asked or required"},
        {"listen: {unix: x.sock}",
            "f:1:16: listen.unix: \"x.sock\": a path with a slash expected, "
            "such as /run/holdfast/holdfast.sock"},
        {"listen: {unix: \"/x\\n\"}",
            "f:1:16: listen.unix: \"/x\\x0a\": has a control character"},
        {"listen:\n"
         "  unix: "
         "/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
            "f:2:9: listen.unix: "
            "\"/"
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
            "xxxxxxxxxx\": longer than a socket's path may be, 107 bytes"},
    };

    CHECK_BAD(cases);
}

END_TEST

START_TEST(bad_addresses_are_refused)
{
#define EXPECTED ": HOST:PORT or [IPV6]:PORT expected"

    static const struct {
        const char *address;
        const char *reason;
    } cases[] = {
        {"4653", EXPECTED},
        {"localhost", EXPECTED},
        {"[::1]", EXPECTED},
        {"[::1:1", EXPECTED},
        {"[]:1", ": not an IPv6 address"},
        {"[1.2.3.4]:1", ": not an IPv6 address"},
        {"[::g]:1", ": not an IPv6 address"},
        {"[fe80::1%]:1", ": not an IPv6 address with a zone"},
        {"[fe80::1%a/b]:1", ": not an IPv6 address with a zone"},
        {"[fe80::1%sixteen-letters-]:1", ": not an IPv6 address with a zone"},
        {"::1:4653", ": an IPv6 address needs brackets: [::1]:4653"},
        {"*:4653", EXPECTED},
        {"/run/x:1", EXPECTED},
        {"a b:1", EXPECTED},
        {"-a:1", EXPECTED},
        {"a..b:1", EXPECTED},
        {":4653", ": no host; write 127.0.0.1 for this machine"},
        {"127.0.0.256:1", ": not an IPv4 address"},
        {"127.1:1", ": not an IPv4 address"},
        {"a:", ": a port from 1 to 65535 expected"},
        {"a:0", ": a port from 1 to 65535 expected"},
        {"a:00", ": a port from 1 to 65535 expected"},
        {"a:65536", ": a port from 1 to 65535 expected"},
    };

    char text[128];
    char expected[256];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(text, sizeof(text), "redis:\n  nodes:\n  - 'ok:1'\n  - '%s'\n",
            cases[i].address);
        snprintf(expected, sizeof(expected), "f:4:5: redis.nodes: \"%s\"%s",
            cases[i].address, cases[i].reason);
        ck_assert_msg(!load(text), "taken: %s", text);
        ck_assert_str_eq(error, expected);
    }
    ck_assert(!load("listen: {tcp: 'a:65536'}"));
    ck_assert_str_eq(error,
        "f:1:15: listen.tcp: \"a:65536\": a port from 0 to 65535 expected");
    ck_assert(!load("listen: {tcp: \"a\\0b:1\"}"));
    ck_assert_str_eq(
        error, "f:1:15: listen.tcp: HOST:PORT or [IPV6]:PORT expected");
#undef EXPECTED
}

END_TEST

START_TEST(long_lists_and_hosts_are_refused)
{
    char text[4096];
    size_t len = (size_t)snprintf(text, sizeof(text), "listen:\n  tcp:\n");

    for (int i = 1; i <= 17; i++)
        len +=
            (size_t)snprintf(text + len, sizeof(text) - len, "  - 'a:%d'\n", i);
    ck_assert(!load(text));
    ck_assert_str_eq(
        error, "f:19:5: listen.tcp: \"a:17\": at most 16 values allowed");
    len = (size_t)snprintf(text, sizeof(text), "admin: {http: '");
    memset(text + len, 'h', 256);
    snprintf(text + len + 256, sizeof(text) - len - 256, ":1'}");
    ck_assert(!load(text));
    ck_assert_ptr_nonnull(strstr(error, "longer than 255 bytes"));
    memmove(text + len, text + len + 1, strlen(text + len));
    ck_assert_msg(load(text), "%s", error);
}

END_TEST

START_TEST(namespaces_are_taken)
{
    ck_assert_msg(load("namespaces:\n"
                       "  - prefix: stock/\n"
                       "  - {prefix: 'job#'}\n"),
        "%s", error);
    ck_assert_uint_eq(config.namespace_count, 2);
    ck_assert_str_eq(config.namespaces[0].prefix, "stock/");
    ck_assert_str_eq(config.namespaces[1].prefix, "job#");
    ck_assert_msg(load("namespaces:\n"), "%s", error);
    ck_assert_uint_eq(config.namespace_count, 0);
}

END_TEST

/* A missing key of a namespace has the value for all locks, wherever `audit` is
 * in the file. */
START_TEST(namespaces_inherit)
{
    ck_assert_msg(load("namespaces:\n"
                       "  - prefix: a\n"
                       "    warn_after: 0s\n"
                       "    break_after: 3h\n"
                       "  - prefix: b\n"
                       "audit:\n"
                       "  warn_after: 2h\n"
                       "  wait_after: 5m\n"),
        "%s", error);
    ck_assert_uint_eq(config.namespaces[0].warn_after_ms, 0);
    ck_assert_uint_eq(config.namespaces[0].wait_after_ms, 300000);
    ck_assert_uint_eq(config.namespaces[0].break_after_ms, 10800000);
    ck_assert_uint_eq(config.namespaces[1].warn_after_ms, 7200000);
    ck_assert_uint_eq(config.namespaces[1].wait_after_ms, 300000);
    ck_assert_uint_eq(config.namespaces[1].break_after_ms, 0);
}

END_TEST

START_TEST(hooks)
{
    static const struct bad_case cases[] = {
        {"audit: {hook: [tell]}\n",
            "f:1:9: audit.hook: an absolute path of a program expected"},
        {"audit: {hook: ['', /a]}\n",
            "f:1:9: audit.hook: an absolute path of a program expected"},
    };

    CHECK_BAD(cases);
    ck_assert_msg(
        load("audit: {hook: [/bin/tell, '', x, x, ' \"']}\n"), "%s", error);
    ck_assert_uint_eq(config.audit_hook.count, 5);
    ck_assert_str_eq(config.audit_hook.item[1].host, "");
    ck_assert_str_eq(config.audit_hook.item[4].host, " \"");
    ck_assert_msg(load("audit: {hook: /bin/tell}\n"), "%s", error);
    ck_assert_uint_eq(config.audit_hook.count, 1);
}

END_TEST

START_TEST(bad_namespaces_are_refused)
{
    static const struct bad_case cases[] = {
        {"namespaces: stock/\n",
            "f:1:13: namespaces: a list of sections expected"},
        {"namespaces: [stock/]\n",
            "f:1:14: namespaces: keys expected, \"name: value\" each"},
        {"namespaces:\n  - {}\n", "f:2:5: namespaces: a prefix expected"},
        {"namespaces:\n  - prefix: ''\n",
            "f:2:5: namespaces: a prefix expected"},
        {"namespaces:\n  - prefix: a\n  - prefix: b\n  - prefix: a\n",
            "f:4:5: namespaces: \"a\" is already on line 2"},
        {"namespaces:\n  - prefix: others\n  - prefix: other\n",
            "f:3:5: namespaces: \"other\" is the label of all other locks; "
            "choose another prefix"},
        {"namespaces:\n  - prefix: a\n    prefix: b\n",
            "f:3:5: key \"namespaces.prefix\" is already on line 2"},
        {"namespaces:\n  - prefx: a\n",
            "f:2:5: unknown key \"namespaces.prefx\"; did you mean "
            "\"namespaces.prefix\"?"},
        {"namespaces:\n  - prefix: a\\b\n",
            "f:2:13: namespaces.prefix: \"a\\\\b\": 1 to 64 printable "
            "characters of ASCII expected, neither blank, quote nor backslash"},
        {"namespaces: {prefix: a}\n",
            "f:1:13: namespaces: a list of sections expected"},
    };
    char text[2048];
    size_t len = (size_t)snprintf(text, sizeof(text), "namespaces:\n");

    CHECK_BAD(cases);
    for (int i = 1; i <= CONFIG_NAMESPACES_MAX + 1; i++)
        len += (size_t)snprintf(
            text + len, sizeof(text) - len, "  - prefix: a%d\n", i);
    ck_assert(!load(text));
    ck_assert_str_eq(error, "f:34:5: namespaces: at most 32 allowed");
    snprintf(text, sizeof(text), "namespaces: [{prefix: %065d}]\n", 0);
    ck_assert(!load(text));
    ck_assert_ptr_nonnull(strstr(error, "longer than 64 bytes"));
}

END_TEST

START_TEST(keys_that_do_not_fit_are_refused)
{
    static const struct bad_case cases[] = {
        {"lease: {default: 9s}\nredis:\n  command_timeout: 3s\n",
            "f:3:3: redis.command_timeout: 3s must be less than a third of "
            "lease.default, 9s"},
        {"redis:\n  command_timeout: 10s\n",
            "f:2:3: redis.command_timeout: 10s must be less than a third of "
            "lease.default, 30s"},
        {"redis: {forget_after: 1h}\nlease: {default: 361s}\n",
            "f:1:9: redis.forget_after: 1h must be at least ten times "
            "lease.default, 361s"},
        {"listen: {tcp: []}", "f:1:10: listen.tcp: no address to listen on; "
                              "give one here, or in listen.unix or listen.tls"},
        {"listen: {tls: '127.0.0.1:4655'}",
            "f:1:10: listen.tls: needs listen.tls_cert"},
        {"listen: {tls_cert: /c}",
            "f:1:10: listen.tls_cert: needs listen.tls_key"},
        {"listen: {tls_key: /k}",
            "f:1:10: listen.tls_key: needs listen.tls_cert"},
        {"listen: {tls_client_ca: /a}",
            "f:1:10: listen.tls_client_ca: needs listen.tls_cert"},
        {"listen: {tls_cert: /c, tls_key: /k, tls_client_cert: required}",
            "f:1:37: listen.tls_client_cert: needs listen.tls_client_ca"},
        {"listen: {tls_cert: /c, tls_key: /k, tls: '127.0.0.1:4653'}",
            "f:1:37: listen.tls: the address is also in listen.tcp"},
        {"listen: {tls_cert: /c, tls_key: /k, tls: '127.0.0.1:4654'}",
            "f:1:37: admin.http: the address is also in listen.tls"},
        {"admin: {http: '127.0.0.1:4653'}",
            "f:1:9: admin.http: the address is also in listen.tcp"},
        {"listen: {tcp: '127.0.0.1:4654'}",
            "f:1:10: admin.http: the address is also in listen.tcp"},
        {"redis: {topology: single}",
            "f:1:9: redis.nodes: 3 nodes; \"topology: single\" needs one"},
        {"redis: {topology: single, nodes: ['a:1', 'b:1']}",
            "f:1:27: redis.nodes: 2 nodes; \"topology: single\" needs one"},
        {"redis: {username: u}",
            "f:1:9: redis.username: needs redis.password_file"},
        {"redis: {sentinel_username: u, username: '', password_file: /p}",
            "f:1:9: redis.sentinel_username: needs "
            "redis.sentinel_password_file"},
        {"redis: {tls: {}}", "f:1:9: redis.tls: needs redis.tls.ca"},
        {"redis:\n  tls:\n", "f:2:3: redis.tls: needs redis.tls.ca"},
        {"redis: {tls: {cert: /c, key: /k}}",
            "f:1:9: redis.tls: needs redis.tls.ca"},
        {"redis: {tls: {ca: '', cert: /c, key: /k}}",
            "f:1:23: redis.tls.cert: needs redis.tls.ca"},
        {"redis: {tls: {ca: '', server_name: a}}",
            "f:1:23: redis.tls.server_name: needs redis.tls.ca"},
        {"redis: {tls: {ca: '', verify: ca}}",
            "f:1:23: redis.tls.verify: needs redis.tls.ca"},
        {"redis: {tls: {ca: /c, cert: /c}}",
            "f:1:23: redis.tls.cert: needs redis.tls.key"},
        {"redis: {tls: {key: /c, ca: /c}}",
            "f:1:15: redis.tls.key: needs redis.tls.cert"},
        {"redis: {topology: quorum, nodes: ['a:1', 'b:1', 'c:1', 'd:1']}",
            "f:1:27: redis.nodes: 4 nodes; \"topology: quorum\" needs an odd "
            "number from 3 to 15"},
        {"redis: {topology: quorum, nodes: ['a:1']}",
            "f:1:27: redis.nodes: 1 nodes; \"topology: quorum\" needs an odd "
            "number from 3 to 15"},
        {"redis: {safety: strict, topology: quorum, nodes: ['a:1', 'b:1', "
         "'c:1']}",
            "f:1:9: redis.safety: strict needs replicas; \"topology: quorum\" "
            "has masters only"},
        {"redis: {topology: sentinel, sentinel_master: ''}",
            "f:1:29: redis.sentinel_master: empty; \"topology: sentinel\" "
            "needs the name"},
        {"limits: {memory: 1MiB, output: 2MiB}",
            "f:1:10: limits.memory: 1MiB must be at least limits.output, 2MiB"},
        {"limits: {output: 512MiB}", "f:1:10: limits.memory: 256MiB must be at "
                                     "least limits.output, 512MiB"},
    };

    CHECK_BAD(cases);
    ck_assert(load("lease: {default: 9s}\nredis: {command_timeout: 2999ms}"));
    ck_assert(load("redis: {forget_after: 1h}\nlease: {default: 6m}"));
}

END_TEST

START_TEST(other_yaml_is_refused)
{
    static const struct bad_case cases[] = {
        {"log: &a {level: info}",
            "f:1:6: log: an anchor (&) is not allowed here"},
        {"&a log: {level: info}", "f:1:1: an anchor (&) is not allowed here"},
        {"log: {level: &a info}",
            "f:1:14: log.level: an anchor (&) is not allowed here"},
        {"log: {level: *a}",
            "f:1:14: log.level: an alias (*) is not allowed here"},
        {"*a : 1", "f:1:1: an alias (*) is not allowed here"},
        {"log: {level: !!str info}",
            "f:1:14: log.level: a tag (!) is not allowed here"},
        {"listen: {tcp: !x []}",
            "f:1:15: listen.tcp: a tag (!) is not allowed here"},
        {"!x {}", "f:1:1: a tag (!) is not allowed here"},
        {"log:\n---\nlog:\n", "f:2:1: a second document is not allowed"},
        {"log:\n...\nlog:\n",
            "f:3:1: not YAML: did not find expected <document start>"},
        {"%YAML 1.3\n---\n",
            "f:1:1: not YAML: found incompatible YAML document"},
        {"log:\n\tlevel: info\n",
            "f:2:1: not YAML: found character that cannot start any token"},
        {"log: {level: info",
            "f:2:1: not YAML: did not find expected ',' or '}'"},
        {"log: 'x", "f:1:8: not YAML: found unexpected end of stream"},
        {"listen:\n  tcp: [::1]:4653\n",
            "f:2:9: not YAML: did not find expected node content"},
        {"log:\n  level: inf\xff\n",
            "f:2:13: not UTF-8: invalid leading UTF-8 octet"},
        {"log:\n  level: \xc3\xb6\xc3(\n",
            "f:2:12: not UTF-8: invalid trailing UTF-8 octet"},
        {"log:\n  level: \xc0\xaf\n",
            "f:2:10: not UTF-8: invalid length of a UTF-8 sequence"},
        {"log: \xe2\x82", "f:1:6: not UTF-8: incomplete UTF-8 octet sequence"},
        {"log: \x01", "f:1:6: not UTF-8: control characters are not allowed"},
        {"\xff\xfel", "f:1:1: not UTF-8: invalid leading UTF-8 octet"},
        {"\xef\xbb\xbfx: 1", "f:1:1: unknown key \"x\""},
        {"\xef\xbb\xbf\xff", "f:1:1: not UTF-8: invalid leading UTF-8 octet"},
        /* A column is a character. */
        {"redis: {patience: '\xc3\xb6', x: 1}",
            "f:1:19: redis.patience: \"\\xc3\\xb6\": a duration expected, such "
            "as 1500ms, 30s, 5m or 1h\n"
            "f:1:24: unknown key \"redis.x\""},
    };

    CHECK_BAD(cases);
}

END_TEST

/* No error shows a password in the wrong place. */
START_TEST(misplaced_passwords_are_not_told)
{
#define GOES "; the password goes into the file of redis.password_file"
    static const struct bad_case cases[] = {
        {"redis: {nodes: ['redis://h:6379']}",
            "f:1:17: redis.nodes: a URL is not supported: write h:6379"},
        {"redis: {nodes: ['redis://:hunter2@h:6379/0']}",
            "f:1:17: redis.nodes: a URL is not supported: write h:6379" GOES},
        {"redis: {nodes: ['rediss://u:hun@ter2@[::1]:1?x']}",
            "f:1:17: redis.nodes: a URL is not supported: write [::1]:1" GOES
            "; redis.tls.ca turns TLS on"},
        {"redis: {nodes: ['redis://hunter2']}",
            "f:1:17: redis.nodes: a URL is not supported: write HOST:PORT"},
        {"redis: {nodes: ['u:hunter2@h:6379']}",
            "f:1:17: redis.nodes: a URL is not supported: write h:6379" GOES},
        {"redis: {nodes: ['h:6379,password=hunter2']}",
            "f:1:17: redis.nodes: a port from 1 to 65535 expected"},
        {"redis: {nodes: ['h:hunter2']}",
            "f:1:17: redis.nodes: a port from 1 to 65535 expected"},
        {"redis: {nodes: ['u:hunter']}",
            "f:1:17: redis.nodes: a port from 1 to 65535 expected"},
        {"redis: {nodes: ['h:123456']}",
            "f:1:17: redis.nodes: a port from 1 to 65535 expected"},
        {"listen: {tcp: ':hunter2'}",
            "f:1:15: listen.tcp: a port from 0 to 65535 expected"},
        {"listen: {tcp: 'tcp://u:hunter2@h'}",
            "f:1:15: listen.tcp: a URL is not supported: write HOST:PORT"},
        {"redis: {password_file: \"hun\\nter2\"}",
            "f:1:24: redis.password_file: has a control character"},
        {"redis: {username: 'u hunter2'}",
            "f:1:19: redis.username: has a blank"},
        {"redis: {tls: {key: '-----BEGIN PRIVATE KEY----- hunter2'}}",
            "f:1:20: redis.tls.key: the name of a file is expected, not its "
            "content"},
        {"log: {level: '-----BEGIN PRIVATE KEY----- hunter2'}",
            "f:1:14: log.level: not known; expected error or warn or info or "
            "debug"},
        {"redis: {password: hunter2}",
            "f:1:9: unknown key \"redis.password\"; did you mean "
            "\"redis.password_file\", the name of a file?"},
        {"redis: {password:hunter2}",
            "f:1:9: unknown key \"redis.password\"...; a word and \": \" "
            "expected"},
        {"redis: {password hunter2}",
            "f:1:9: unknown key \"redis.password\"...; a word and \": \" "
            "expected"},
    };

    CHECK_BAD(cases);
#undef GOES
}

END_TEST

START_TEST(all_mistakes_are_told)
{
    static const struct bad_case cases[] = {
        {"lisen: {tcp: x}\nlog:\n  level: loud\n  rate: [1]\n  rate: x\n"
         "listen:\n  tcp: [a, 'b:1', {c: d}]\n  ? [e]\n  : {f: g}\n"
         "  unix: !x {y: [z]}\nredis:\n  password: {a: [b, {c: d}]}\n"
         "  batch:\nnamespaces:\n- 1\n- {prefix: a, x: 1}\n",
            "f:1:1: unknown key \"lisen\"; did you mean \"listen\"?\n"
            "f:3:10: log.level: \"loud\": not known; expected error or warn or "
            "info or debug\n"
            "f:4:9: log.rate: one value expected\n"
            "f:5:3: key \"log.rate\" is already on line 4\n"
            "f:5:9: log.rate: \"x\": a whole number expected\n"
            "f:7:9: listen.tcp: \"a\": HOST:PORT or [IPV6]:PORT expected\n"
            "f:7:19: listen.tcp: one value expected\n"
            "f:8:5: listen: a key must be a word\n"
            "f:10:9: listen.unix: a tag (!) is not allowed here\n"
            "f:12:3: unknown key \"redis.password\"; did you mean "
            "\"redis.password_file\", the name of a file?\n"
            "f:13:9: redis.batch: no value given\n"
            "f:15:3: namespaces: keys expected, \"name: value\" each\n"
            "f:16:15: unknown key \"namespaces.x\""},
        /* Mistakes of rules between keys count too. */
        {"redis: {topology: single, username: u, sentinel_username: v}\n"
         "listen: {tcp: ['0.0.0.0:1', '[::]:2']}\n"
         "limits: {memory: 1MiB, output: 2MiB}",
            "f:2:10: listen.tcp: 0.0.0.0:1 is reached from beyond this "
            "machine, and there are no users: give auth.users_file, or "
            "beyond_loopback_without_users: allowed\n"
            "f:2:10: listen.tcp: [::]:2 is reached from beyond this machine, "
            "and there are no users: give auth.users_file, or "
            "beyond_loopback_without_users: allowed\n"
            "f:1:9: redis.nodes: 3 nodes; \"topology: single\" needs one\n"
            "f:1:27: redis.username: needs redis.password_file\n"
            "f:1:40: redis.sentinel_username: needs "
            "redis.sentinel_password_file\n"
            "f:3:10: limits.memory: 1MiB must be at least limits.output, 2MiB"},
        /* Mistakes that may follow from another one are left out. */
        {"redis: {topology: single, node: 'a:1', username: u, pasword_file: p, "
         "tls: {crt: /c, key: /k}}\n"
         "lease: {default: 3}",
            "f:1:27: unknown key \"redis.node\"; did you mean "
            "\"redis.nodes\"?\n"
            "f:1:53: unknown key \"redis.pasword_file\"; did you mean "
            "\"redis.password_file\", the name of a file?\n"
            "f:1:76: unknown key \"redis.tls.crt\"; did you mean "
            "\"redis.tls.cert\", the name of a file?\n"
            "f:2:18: lease.default: \"3\": a duration needs a unit: write 3ms, "
            "or s, m, h"},
        /* An error of the YAML syntax is the last one. */
        {"x: 1\nredis: {topology: single}\nlog: 'x",
            "f:1:1: unknown key \"x\"\n"
            "f:3:8: not YAML: found unexpected end of stream"},
    };

    CHECK_BAD(cases);
}

END_TEST

START_TEST(mistakes_are_bounded)
{
    char text[4096] = "";
    const char *at = error;
    size_t len = 0;

    for (int i = 1; i <= 30; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "x%d: 1\n", i);
    ck_assert(!load(text));
    for (int i = 1; i <= 20; i++, at = strchr(at, '\n') + 1)
        ck_assert_uint_eq(strtoul(at + 2, NULL, 10), (unsigned long)i);
    ck_assert_str_eq(at, "f: more mistakes follow; the first 20 are told");
}

END_TEST

START_TEST(deep_and_long_files_end)
{
    static char text[200000];

    memset(text, '[', sizeof(text) - 1);
    ck_assert(!load(text));
    memset(text, '{', sizeof(text) - 1);
    ck_assert(!load(text));
    memcpy(text, "redis: ", 7);
    ck_assert(!load(text));
    memset(text, 'k', sizeof(text) - 1);
    memcpy(text + sizeof(text) - 4, ": 1", 3);
    ck_assert(!load(text));
    memset(text, '#', sizeof(text) - 1);
    ck_assert(load(text));
}

END_TEST

START_TEST(errors_are_cut_to_their_room)
{
    static const char bad[] = "lisen:\n";
    char small[16];

    for (size_t room = 1; room <= sizeof(small); room++) {
        memset(small, '#', sizeof(small));
        ck_assert(
            !config_load_text(&config, "name", bad, strlen(bad), small, room));
        ck_assert_uint_eq(strlen(small), room - 1);
        ck_assert_int_eq(strncmp(small, "name:1:1: unknown", room - 1), 0);
    }
}

END_TEST

/* Files */

START_TEST(files_that_cannot_be_read_are_refused)
{
    char path[32];
    char expected[128];
    char *large = calloc(1, 1024 * 1024 + 1);

    ck_assert(!config_load(&config, "/nonexistent/x", error, sizeof(error)));
    ck_assert_str_eq(error, "/nonexistent/x: No such file or directory");
    ck_assert(!config_load(&config, "/", error, sizeof(error)));
    ck_assert_str_eq(error, "/: Is a directory");
    ck_assert_ptr_nonnull(large);
    write_file(path, large, 1024 * 1024 + 1);
    free(large);
    ck_assert(!config_load(&config, path, error, sizeof(error)));
    snprintf(expected, sizeof(expected), "%s: larger than 1MiB", path);
    ck_assert_str_eq(error, expected);
    unlink(path);
}

END_TEST

/* Loads a file that names a password file of these bytes. */
static bool
load_password(const char *bytes, size_t len, char *secret)
{
    char file[32];
    char text[128];
    bool done;

    write_file(secret, bytes, len);
    snprintf(text, sizeof(text), "redis:\n  password_file: %s\n", secret);
    write_file(file, text, strlen(text));
    done = config_load(&config, file, error, sizeof(error));
    if (!done)
        memmove(error, error + strlen(file), strlen(error + strlen(file)) + 1);
    unlink(file);
    unlink(secret);
    return done;
}

START_TEST(passwords_of_files)
{
    char path[32];
    char expected[128];

    ck_assert_msg(load_password("se cret\r\n\n", 10, path), "%s", error);
    ck_assert_str_eq(config.redis_password, "se cret");
    ck_assert_str_eq(config.redis_password_file, path);
    ck_assert(!load_password("secret \n", 8, path));
    snprintf(expected, sizeof(expected),
        ":2:18: redis.password_file: \"%s\" ends in a blank: remove it", path);
    ck_assert_str_eq(error, expected);
}

END_TEST

START_TEST(password_file_must_be_there)
{
    static const char text[] = "redis: {password_file: /nonexistent/p}";
    char path[32];
    char expected[160];

    write_file(path, text, strlen(text));
    ck_assert(!config_load(&config, path, error, sizeof(error)));
    snprintf(expected, sizeof(expected),
        "%s:1:24: redis.password_file: the file cannot be read: No such file "
        "or directory",
        path);
    ck_assert_str_eq(error, expected);
    unlink(path);
}

END_TEST

static bool
blame(const struct config *checked, void *context, struct config_fault *fault)
{
    ck_assert_ptr_eq(checked, &config);
    *fault = (struct config_fault){.key = "redis.tls.key"};
    snprintf(fault->what, sizeof(fault->what), "%s", (const char *)context);
    return context == NULL;
}

START_TEST(check_of_others_has_a_place)
{
    static char why[] = "is none";
    static const char text[] =
        "redis:\n  tls: {ca: /c, cert: /d,\n    key: /k}\n";
    char path[32];
    char expected[160];

    write_file(path, text, strlen(text));
    ck_assert(
        !config_load_checked(&config, path, blame, why, error, sizeof(error)));
    snprintf(
        expected, sizeof(expected), "%s:3:10: redis.tls.key: is none", path);
    ck_assert_str_eq(error, expected);
    ck_assert(
        config_load_checked(&config, path, NULL, NULL, error, sizeof(error)));
    unlink(path);
}

END_TEST

START_TEST(password_is_never_printed)
{
    char path[32];
    char text[TEXT_BYTES];

    ck_assert(load_password("hunter2\n", 8, path));
    print(&config, text);
    ck_assert_ptr_null(strstr(text, "hunter2"));
    ck_assert_ptr_nonnull(strstr(text, path));
}

END_TEST

Suite *
config_suite(void)
{
    Suite *suite = suite_create("config");
    TCase *files = tcase_create("files");
    TCase *values = tcase_create("values");
    TCase *errors = tcase_create("errors");

    tcase_add_test(files, defaults_are_the_documented_ones);
    tcase_add_test(files, full_file_is_the_defaults);
    tcase_add_test(files, full_file_names_every_key);
    tcase_add_test(files, minimal_file_is_one_server);
    tcase_add_test(files, nothing_in_it_is_the_defaults);
    tcase_add_test(files, files_that_cannot_be_read_are_refused);
    tcase_add_test(files, passwords_of_files);
    tcase_add_test(files, password_file_must_be_there);
    tcase_add_test(files, check_of_others_has_a_place);
    tcase_add_test(files, password_is_never_printed);
    suite_add_tcase(suite, files);

    tcase_add_test(values, ranges_are_exact);
    tcase_add_test(values, table_is_well_formed);
    tcase_add_test(values, log_levels_are_those_of_the_log);
    tcase_add_test(values, good_values);
    tcase_add_test(values, addresses_as_text);
    tcase_add_test(values, what_is_printed_reads_the_same);
    tcase_set_timeout(values, 30);
    suite_add_tcase(suite, values);

    tcase_add_test(errors, unknown_keys_are_refused);
    tcase_add_test(errors, doubled_keys_are_refused);
    tcase_add_test(errors, wrong_kinds_are_refused);
    tcase_add_test(errors, empty_values_are_refused);
    tcase_add_test(errors, bad_numbers_are_refused);
    tcase_add_test(errors, numbers_out_of_range_are_refused);
    tcase_add_test(errors, bad_words_and_texts_are_refused);
    tcase_add_test(errors, bad_addresses_are_refused);
    tcase_add_test(errors, long_lists_and_hosts_are_refused);
    tcase_add_test(errors, namespaces_are_taken);
    tcase_add_test(errors, namespaces_inherit);
    tcase_add_test(errors, hooks);
    tcase_add_test(errors, bad_namespaces_are_refused);
    tcase_add_test(errors, keys_that_do_not_fit_are_refused);
    tcase_add_test(errors, other_yaml_is_refused);
    tcase_add_test(errors, misplaced_passwords_are_not_told);
    tcase_add_test(errors, all_mistakes_are_told);
    tcase_add_test(errors, mistakes_are_bounded);
    tcase_add_test(errors, deep_and_long_files_end);
    tcase_add_test(errors, errors_are_cut_to_their_room);
    suite_add_tcase(suite, errors);
    return suite;
}
