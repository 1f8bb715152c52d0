/*
 * From the file to struct config: reads, fills in defaults, checks what keys
 * must agree on. All mistakes are told, but for what may follow from another
 * one. The steps are those of load(), in that order, since a default
 * may be made of what the file says elsewhere.
 *
 * Called at start and for a reload. One value's form is value.c's, the YAML
 * walk.c's.
 */
#include "conf/config.h"

#include "conf/changes.h"
#include "conf/file.h"
#include "conf/keys.h"
#include "conf/value.h"
#include "conf/walk.h"
#include "daemon/base/assert.h"
#include "daemon/base/log.h"
#include "daemon/base/secret.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1024 * 1024)
#define QUOTE_BYTES    96

struct loader {
    struct walk walk;
    struct config *config; /* ref: being filled */
    const struct key *key; /* ref: the one being read, or NULL */
    struct walk_place keys[CHANGES_KEYS_MAX];   /* of each key in the file */
    struct walk_place values[CHANGES_KEYS_MAX]; /* of its (last) value */
    bool bad[CHANGES_KEYS_MAX];                 /* a mistake is in it */
    struct walk_place spaces[CONFIG_SPACES_MAX];
    size_t item; /* of the list of sections that is being read */
    /* ref: of the daemon that runs, which no file may keep waiting, or NULL */
    const struct config *in_force;
};

/* Defaults */

/* Sets a key from its default in the table, which is good. */
static void
set_standard(const struct key *key, void *home)
{
    char why[256];
    const char *at = key->standard;

    value_clear(key, home);
    while (*at != '\0') {
        size_t len = strcspn(at, " ");

        require(value_parse(key, text_make(at, len), home, why, sizeof(why)));
        at += len;
        at += strspn(at, " ");
    }
}

static uint64_t
least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void
derive_settle(struct config *config)
{
    config->settle_ms = config->lease_ms;
}

/* A short lease alone is a good configuration: see check_command_timeout(). */
static void
derive_command_timeout(struct config *config)
{
    config->command_timeout_ms = least(1000, config->lease_ms / 4);
}

/* What an item does not say is as it is for all locks, in a reload too: an
 * audit's own keys need a restart. */
static void
derive_item(uint64_t *item_ms, uint64_t all_ms)
{
    if (*item_ms == VALUE_UNSET)
        *item_ms = all_ms;
}

static void
derive_spaces(struct config *config, const struct config *all)
{
    for (uint32_t i = 0; i < config->space_count; i++) {
        struct config_space *space = &config->spaces[i];
        derive_item(&space->warn_after_ms, all->warn_after_ms);
        derive_item(&space->wait_after_ms, all->wait_after_ms);
        derive_item(&space->break_after_ms, all->break_after_ms);
    }
}

static void
derive_all(struct config *config)
{
    derive_settle(config);
    derive_command_timeout(config);
}

void
config_init(struct config *config)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < key_count(); i++) {
        if (key_at(i)->standard != NULL && key_items(key_at(i)) == NULL)
            set_standard(key_at(i), config);
    }
    derive_all(config);
}

/* The walk */

static struct walk_place
place_of_key(const struct loader *loader, const char *path)
{
    const struct key *key = key_find(text_from(path));

    require(key != NULL);
    return loader->keys[key_index(key)];
}

static bool
is_given(const struct loader *loader, const char *path)
{
    return place_of_key(loader, path).line != 0;
}

/* The place of the first of the two that is in the file. */
static struct walk_place
place_of_either(
    const struct loader *loader, const char *path, const char *other)
{
    return place_of_key(loader, is_given(loader, path) ? path : other);
}

/* Of the key that was read last. */
static void
on_mistake(struct walk *walk)
{
    struct loader *loader = walk->context;

    if (loader->key != NULL)
        loader->bad[key_index(loader->key)] = true;
}

static bool
fail_unknown(struct walk *walk, struct text path, struct text name,
    struct walk_place place)
{
    struct loader *loader = walk->context;
    char quoted[QUOTE_BYTES];

    loader->key = NULL;

    /* `{password:x}` is a key without a value: not to be shown. */
    for (size_t i = 0; i < path.len; i++)
        if (strchr(" :=@", path.at[i]) != NULL && path.at[i] != '\0')
            return walk_fail(walk, place,
                "unknown key %s..., a word and \": \" expected",
                log_quote(quoted, sizeof(quoted), text_make(path.at, i)));
    const struct key *near = key_suggest(path);
    loader->key = near; /* which is meant, and has no value now */
    log_quote(quoted, sizeof(quoted), path);
    if (memchr(name.at, '.', name.len) != NULL && key_find(path) != NULL)
        return walk_fail(walk, place,
            "unknown key %s; a key goes below its section, not behind a dot",
            quoted);
    if (near != NULL)
        return walk_fail(walk, place, "unknown key %s; did you mean \"%s\"%s?",
            quoted, near->path,
            near->type == KEY_FILE ? ", the name of a file" : "");
    return walk_fail(walk, place, "unknown key %s", quoted);
}

static void *
home_of(const struct loader *loader, const struct key *key)
{
    return (char *)loader->config + value_home(key, loader->item);
}

static enum walk_shape
shape_of(const struct key *key)
{
    if (key->type == KEY_SECTION)
        return WALK_SECTION;
    if (key->type == KEY_ITEMS)
        return WALK_ITEMS;
    if (key->type == KEY_LISTEN || key->type == KEY_NODES ||
        key->type == KEY_PATHS || key->type == KEY_WORDS)
        return WALK_LIST;
    return WALK_VALUE;
}

static bool
on_key(struct walk *walk, struct text path, struct text name,
    struct walk_place place, enum walk_shape *shape)
{
    struct loader *loader = walk->context;
    const struct key *key = key_find(path);
    struct walk_place *seen;

    if (key == NULL || (name.len > 0 && memchr(name.at, '.', name.len) != NULL))
        return fail_unknown(walk, path, name, place);
    seen = &loader->keys[key_index(key)];
    loader->key = key;
    if (seen->line != 0)
        walk_fail(walk, place, "key \"%s\" is already on line %zu", key->path,
            seen->line);
    else
        *seen = place;
    *shape = shape_of(key);
    if (key->type != KEY_SECTION && key->type != KEY_ITEMS)
        value_clear(key, home_of(loader, key));
    return true;
}

static bool
on_item(struct walk *walk, struct text path, struct walk_place place)
{
    struct loader *loader = walk->context;
    const struct key *items = key_find(path);

    require(items != NULL);
    if (value_item_count(items, loader->config) == items->max)
        return walk_fail(
            walk, place, "%s: more than %u", items->path, (unsigned)items->max);
    loader->item = value_item_add(items, loader->config);
    require(loader->item < CONFIG_SPACES_MAX); /* the one list that there is */
    loader->spaces[loader->item] = place;
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        if (key_items(key) != items)
            continue;
        loader->keys[i] = (struct walk_place){0, 0};
        if (key->standard != NULL)
            set_standard(key, home_of(loader, key));
        else
            value_unset(key, home_of(loader, key));
    }
    return true;
}

static bool
on_value(struct walk *walk, struct text value, struct walk_place place)
{
    struct loader *loader = walk->context;
    char why[256];

    loader->values[key_index(loader->key)] = place;
    if (value_parse(
            loader->key, value, home_of(loader, loader->key), why, sizeof(why)))
        return true;
    return walk_fail(walk, place, "%s: %s", loader->key->path, why);
}

/* What keys must agree on */

static bool
check_lists(struct loader *loader)
{
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);

        if (shape_of(key) == WALK_LIST && loader->keys[i].line != 0 &&
            !loader->bad[i] &&
            value_list(key, loader->config)->count < key->min)
            walk_fail(&loader->walk, loader->keys[i],
                "%s: at least one expected", key->path);
    }
    return true;
}

/* By default there is one: where there is none, the file says so. */
static bool
check_listeners(struct loader *loader)
{
    const struct config *config = loader->config;

    if (config->listen_tcp.count > 0 || config->listen_unix.count > 0 ||
        config->listen_tls.count > 0)
        return true;
    return walk_fail(&loader->walk, place_of_key(loader, "listen.tcp"),
        "listen.tcp: nothing to listen on, neither here nor in listen.unix or "
        "listen.tls");
}

/* Whether only this machine gets there, as far as that can be seen: of a name
 * it is seen when it is listened on. */
static bool
is_loopback(const char *host)
{
    struct in6_addr v6;
    struct in_addr v4;

    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    return inet_pton(AF_INET6, host, &v6) != 1 || IN6_IS_ADDR_LOOPBACK(&v6) ||
           (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET);
}

static void
check_list_is_local(
    struct loader *loader, const char *path, const struct config_list *list)
{
    char address[300];

    for (size_t i = 0; i < list->count; i++)
        if (!is_loopback(list->item[i].host))
            walk_fail(&loader->walk, place_of_key(loader, path),
                "%s: %s is reached from beyond this machine, and there are no "
                "users: give auth.users_file, or "
                "beyond_loopback_without_users: allowed",
                path,
                config_address_text(&list->item[i], address, sizeof(address)));
}

static bool
check_beyond_loopback(struct loader *loader)
{
    const struct config *config = loader->config;

    if (config->users_file[0] != '\0' ||
        config->without_users == WITHOUT_USERS_ALLOWED)
        return true;
    check_list_is_local(loader, "listen.tcp", &config->listen_tcp);
    check_list_is_local(loader, "listen.tls", &config->listen_tls);
    return true;
}

/* `path` is the later one of the two, where both are in the file. */
static void
check_apart(struct loader *loader, const char *path,
    const struct config_list *list, const char *other,
    const struct config_list *others)
{
    for (size_t i = 0; i < list->count; i++)
        for (size_t j = 0; j < others->count; j++)
            if (list->item[i].port != 0 &&
                list->item[i].port == others->item[j].port &&
                strcmp(list->item[i].host, others->item[j].host) == 0)
                walk_fail(&loader->walk, place_of_either(loader, path, other),
                    "%s: the address is also in %s", path, other);
}

/* An address is for one thing. */
static bool
check_addresses(struct loader *loader)
{
    const struct config *config = loader->config;

    check_apart(loader, "admin.http", &config->admin_http, "listen.tcp",
        &config->listen_tcp);
    check_apart(loader, "admin.http", &config->admin_http, "listen.tls",
        &config->listen_tls);
    check_apart(loader, "listen.tls", &config->listen_tls, "listen.tcp",
        &config->listen_tcp);
    return true;
}

static bool
check_single(struct loader *loader)
{
    const struct config *config = loader->config;

    if (config->topology != TOPOLOGY_SINGLE || config->redis_nodes.count == 1)
        return true;
    return walk_fail(&loader->walk,
        place_of_either(loader, "redis.nodes", "redis.topology"),
        "redis.nodes: one node expected with \"topology: single\", not %zu",
        config->redis_nodes.count);
}

static bool
check_sentinel(struct loader *loader)
{
    const struct config *config = loader->config;

    if (config->topology != TOPOLOGY_SENTINEL ||
        config->sentinel_master[0] != '\0')
        return true;
    return walk_fail(&loader->walk,
        place_of_key(loader, "redis.sentinel_master"),
        "redis.sentinel_master: a name expected with \"topology: sentinel\"");
}

/* An even number tolerates no more failures than the odd one below it. */
static bool
check_quorum(struct loader *loader)
{
    const struct config *config = loader->config;
    size_t count = config->redis_nodes.count;

    if (config->topology != TOPOLOGY_QUORUM)
        return true;
    if (count < 3 || count > CONFIG_QUORUM_MAX || count % 2 == 0)
        return walk_fail(&loader->walk,
            place_of_either(loader, "redis.nodes", "redis.topology"),
            "redis.nodes: an odd number of 3 to %d expected with \"topology: "
            "quorum\", not %zu",
            CONFIG_QUORUM_MAX, count);
    if (config->safety == SAFETY_STRICT)
        return walk_fail(&loader->walk, place_of_key(loader, "redis.safety"),
            "redis.safety: strict waits for replicas, and \"topology: "
            "quorum\" has masters only");
    return true;
}

static bool
fail_needs(struct loader *loader, const char *path, const char *other)
{
    return walk_fail(
        &loader->walk, place_of_key(loader, path), "%s: needs %s", path, other);
}

static bool
check_user(struct loader *loader)
{
    const struct config *config = loader->config;

    if (config->redis_username[0] != '\0' &&
        config->redis_password_file[0] == '\0')
        fail_needs(loader, "redis.username", "redis.password_file");
    if (config->sentinel_username[0] != '\0' &&
        config->sentinel_password_file[0] == '\0')
        fail_needs(
            loader, "redis.sentinel_username", "redis.sentinel_password_file");
    return true;
}

/* Who writes the section wants encryption, and must not go without it. */
static bool
check_tls(struct loader *loader)
{
    const struct config *config = loader->config;
    bool ca = config->tls_ca[0] != '\0';
    bool cert = config->tls_cert[0] != '\0';
    bool key = config->tls_key[0] != '\0';

    if (is_given(loader, "redis.tls") && !is_given(loader, "redis.tls.ca"))
        return fail_needs(loader, "redis.tls", "redis.tls.ca");
    if (cert && !key)
        return fail_needs(loader, "redis.tls.cert", "redis.tls.key");
    if (key && !cert)
        return fail_needs(loader, "redis.tls.key", "redis.tls.cert");
    if (ca)
        return true;
    if (cert)
        return fail_needs(loader, "redis.tls.cert", "redis.tls.ca");
    if (config->tls_server_name[0] != '\0')
        return fail_needs(loader, "redis.tls.server_name", "redis.tls.ca");
    if (config->tls_verify != VERIFY_FULL)
        return fail_needs(loader, "redis.tls.verify", "redis.tls.ca");
    return true;
}

/* The files may be there without an address: a socket may be passed. */
static bool
check_listen_tls(struct loader *loader)
{
    const struct config *config = loader->config;
    bool cert = config->listen_tls_cert[0] != '\0';
    bool key = config->listen_tls_key[0] != '\0';
    bool ca = config->listen_tls_client_ca[0] != '\0';

    if (config->listen_tls.count > 0 && !cert)
        return fail_needs(loader, "listen.tls", "listen.tls_cert");
    if (cert && !key)
        return fail_needs(loader, "listen.tls_cert", "listen.tls_key");
    if (key && !cert)
        return fail_needs(loader, "listen.tls_key", "listen.tls_cert");
    if (ca && !cert)
        return fail_needs(loader, "listen.tls_client_ca", "listen.tls_cert");
    if (config->listen_tls_client_cert == CLIENT_CERT_REQUIRED && !ca)
        return fail_needs(
            loader, "listen.tls_client_cert", "listen.tls_client_ca");
    return true;
}

/* A renewal is sent at a third of the lease; it and a retry must have time. */
static bool
check_command_timeout(struct loader *loader)
{
    const struct config *config = loader->config;
    char timeout[VALUE_TEXT_BYTES];
    char lease[VALUE_TEXT_BYTES];

    if (config->command_timeout_ms * 3 < config->lease_ms)
        return true;
    return walk_fail(&loader->walk,
        place_of_key(loader, "redis.command_timeout"),
        "redis.command_timeout: %s is not less than a third of lease.default, "
        "%s",
        value_number_text(KEY_DURATION, config->command_timeout_ms, timeout),
        value_number_text(KEY_DURATION, config->lease_ms, lease));
}

/* The record holds the last fence; it must outlive every hold by far. */
static bool
check_forget_after(struct loader *loader)
{
    const struct config *config = loader->config;
    char forget[VALUE_TEXT_BYTES];
    char lease[VALUE_TEXT_BYTES];

    if (config->forget_after_ms / 10 >= config->lease_ms)
        return true;
    return walk_fail(&loader->walk,
        place_of_either(loader, "redis.forget_after", "lease.default"),
        "redis.forget_after: %s is less than ten times lease.default, %s",
        value_number_text(KEY_DURATION, config->forget_after_ms, forget),
        value_number_text(KEY_DURATION, config->lease_ms, lease));
}

static bool
check_memory(struct loader *loader)
{
    const struct config *config = loader->config;

    if (config->limit_memory >= config->limit_output)
        return true;
    return walk_fail(&loader->walk,
        place_of_either(loader, "limits.memory", "limits.output"),
        "limits.memory: less than limits.output, which is of one session");
}

static bool
check_namespaces(struct loader *loader)
{
    const struct config *config = loader->config;

    for (uint32_t i = 0; i < config->space_count; i++) {
        const char *prefix = config->spaces[i].prefix;
        if (prefix[0] == '\0')
            walk_fail(&loader->walk, loader->spaces[i],
                "namespaces: needs a prefix, which is not empty");
        if (strcmp(prefix, "other") == 0) /* its series would be there twice */
            walk_fail(&loader->walk, loader->spaces[i],
                "namespaces: \"other\" is what all other locks are called");
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(prefix, config->spaces[j].prefix) == 0)
                walk_fail(&loader->walk, loader->spaces[i],
                    "namespaces: \"%s\" is already on line %zu", prefix,
                    loader->spaces[j].line);
    }
    return true;
}

/* No folder is searched for it. */
static bool
check_hook(struct loader *loader)
{
    const struct config_list *hook = &loader->config->audit_hook;

    if (hook->count == 0 || hook->item[0].host[0] == '/')
        return true;
    return walk_fail(&loader->walk, place_of_key(loader, "audit.hook"),
        "audit.hook: the program's whole path expected, from / on");
}

/* What each looks at, as keys and sections with blanks between. */
static const struct {
    bool (*check)(struct loader *loader);
    const char *keys;
} checks[] = {
    {check_lists, ""},
    {check_listeners, "listen"},
    {check_beyond_loopback, "listen auth.users_file"},
    {check_addresses, "listen admin.http"},
    {check_single, "redis.topology redis.nodes"},
    {check_sentinel, "redis.topology redis.sentinel_master"},
    {check_quorum, "redis.topology redis.nodes redis.safety"},
    {check_user, "redis.username redis.password_file redis.sentinel_username "
                 "redis.sentinel_password_file"},
    {check_tls, "redis.tls"},
    {check_listen_tls, "listen"},
    {check_command_timeout, "redis.command_timeout lease.default"},
    {check_forget_after, "redis.forget_after lease.default"},
    {check_memory, "limits.memory limits.output"},
    {check_namespaces, "namespaces"},
    {check_hook, "audit.hook"},
};

static bool
is_within(struct text path, struct text section)
{
    return text_starts_with(path, section) &&
           (path.len == section.len || path.at[section.len] == '.');
}

/* Whether a mistake is in one of them: what they say is not known then. */
static bool
any_is_bad(const struct loader *loader, const char *keys)
{
    for (size_t len; *keys != '\0'; keys += len + strspn(keys + len, " ")) {
        len = strcspn(keys, " ");
        for (size_t i = 0; i < key_count(); i++) {
            struct text bad = text_from(key_at(i)->path);
            if (loader->bad[i] && (is_within(bad, text_make(keys, len)) ||
                                      is_within(text_make(keys, len), bad)))
                return true;
        }
    }
    return false;
}

static bool
check_all(struct loader *loader)
{
    loader->key = NULL;
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        if (!any_is_bad(loader, checks[i].keys))
            (void)checks[i].check(loader);
    return loader->walk.mistakes == 0;
}

/* Files */

/*
 * Out of the file at `path` that the key names, if any. Where it cannot be read
 * the path is not told: it may be the password itself.
 */
static bool
read_password(struct loader *loader, const char *key, const char *path,
    char *out, size_t out_bytes)
{
    char bytes[SECRET_FILE_BYTES];
    char quoted[QUOTE_BYTES];
    char why[128];
    struct text secret;
    size_t len;

    if (path[0] == '\0')
        return true;
    struct walk_place place =
        loader->values[key_index(key_find(text_from(key)))];
    const char *what =
        file_read(path, loader->in_force != NULL, bytes, sizeof(bytes), &len);
    if (what != NULL)
        return walk_fail(&loader->walk, place,
            "%s: a file is expected, which cannot be read: %s", key, what);
    bool good = secret_read(
        text_make(bytes, len), 1, out_bytes - 1, &secret, why, sizeof(why));
    if (good)
        memcpy(out, secret.at, secret.len);
    explicit_bzero(bytes, sizeof(bytes));
    return good || walk_fail(&loader->walk, place, "%s: %s %s", key,
                       log_quote(quoted, sizeof(quoted), text_from(path)), why);
}

static bool
is_other_password(const char *path, const char *password)
{
    char bytes[SECRET_FILE_BYTES];
    char why[128];
    struct text secret;
    size_t len;

    if (path[0] == '\0' ||
        file_read(path, true, bytes, sizeof(bytes), &len) != NULL)
        return false;
    bool other = secret_read(text_make(bytes, len), 1, SECRET_FILE_BYTES - 1,
                     &secret, why, sizeof(why)) &&
                 !text_equal(secret, text_from(password));
    explicit_bzero(bytes, sizeof(bytes));
    return other;
}

bool
config_has_other_password(const struct config *config)
{
    return is_other_password(
               config->redis_password_file, config->redis_password) ||
           is_other_password(
               config->sentinel_password_file, config->sentinel_password);
}

static bool
read_passwords(struct loader *loader)
{
    struct config *config = loader->config;

    read_password(loader, "redis.password_file", config->redis_password_file,
        config->redis_password, sizeof(config->redis_password));
    read_password(loader, "redis.sentinel_password_file",
        config->sentinel_password_file, config->sentinel_password,
        sizeof(config->sentinel_password));
    return loader->walk.mistakes == 0;
}

/* Loading */

/* Mistakes may be told already, where this is true. */
static bool
load(struct loader *loader, struct text text)
{
    require(key_count() <= CHANGES_KEYS_MAX);
    config_init(loader->config);
    if (!walk_text(&loader->walk, text))
        return false;
    if (!is_given(loader, "redis.settle"))
        derive_settle(loader->config);
    if (!is_given(loader, "redis.command_timeout"))
        derive_command_timeout(loader->config);
    derive_spaces(loader->config,
        loader->in_force != NULL ? loader->in_force : loader->config);
    (void)check_all(loader);
    return true;
}

static void
loader_init(struct loader *loader, struct config *config, const char *file,
    char *error, size_t error_bytes)
{
    memset(loader, 0, sizeof(*loader));
    loader->config = config;
    loader->walk.file = file;
    loader->walk.error = error;
    error[0] = '\0';
    loader->walk.error_bytes = error_bytes;
    loader->walk.context = loader;
    loader->walk.on_mistake = on_mistake;
    loader->walk.on_key = on_key;
    loader->walk.on_item = on_item;
    loader->walk.on_value = on_value;
}

bool
config_load_text(struct config *config, const char *name, const char *text,
    size_t len, char *error, size_t error_bytes)
{
    struct loader loader;

    loader_init(&loader, config, name, error, error_bytes);
    return load(&loader, text_make(text, len)) && loader.walk.mistakes == 0;
}

/* NULL where the file is read into `text`, room for FILE_BYTES_MAX + 1. */
static const char *
read_text(
    const struct loader *loader, const char *path, char *text, size_t *len)
{
    if (text == NULL)
        return "out of memory";
    const char *what = file_read(
        path, loader->in_force != NULL, text, FILE_BYTES_MAX + 1, len);
    if (what == NULL && *len > FILE_BYTES_MAX)
        what = "larger than 1MiB";
    return what;
}

/* The check's words, at the value that they are about. */
static bool
run_check(struct loader *loader, config_check *check, void *context)
{
    struct config_fault fault = {.key = NULL};

    if (check == NULL || check(loader->config, context, &fault))
        return true;
    const struct key *key = key_find(text_from(fault.key));
    require(key != NULL);
    size_t len;
    for (const char *at = fault.what; *at != '\0';
         at += len + (at[len] == '\n')) {
        len = strcspn(at, "\n");
        walk_fail(&loader->walk, loader->values[key_index(key)], "%s: %.*s",
            fault.key, (int)len, at);
    }
    return false;
}

/* All of config_load_checked() with a loader that is ready. */
static bool
load_file(struct loader *loader, config_check *check, void *context)
{
    struct walk *walk = &loader->walk;
    char *text = malloc(FILE_BYTES_MAX + 1);
    size_t len = 0;
    const char *what = read_text(loader, walk->file, text, &len);
    bool done = false;

    if (what != NULL)
        snprintf(walk->error, walk->error_bytes, "%s: %s", walk->file, what);
    else
        done = load(loader, text_make(text, len)) && read_passwords(loader) &&
               run_check(loader, check, context);
    free(text);
    return done;
}

bool
config_load_checked(struct config *config, const char *path,
    config_check *check, void *context, char *error, size_t error_bytes)
{
    struct loader loader;

    loader_init(&loader, config, path, error, error_bytes);
    return load_file(&loader, check, context);
}

bool
config_load(
    struct config *config, const char *path, char *error, size_t error_bytes)
{
    return config_load_checked(config, path, NULL, NULL, error, error_bytes);
}

/* Reloading */

struct reload {
    struct loader loader;
    struct config next;  /* all that the file says */
    struct config mixed; /* what would be in force */
};

static bool
reload(struct reload *reload, const struct config *now, const char *path,
    config_check *check, void *context, struct config_changes *changes)
{
    struct loader *loader = &reload->loader;

    loader->in_force = now;
    config_init(&reload->next);
    if (path != NULL && !load_file(loader, check, context))
        return false;
    reload->mixed = *now;
    /* A default follows what is in force, not what waits for a restart. */
    if (!is_given(loader, "redis.command_timeout")) {
        derive_command_timeout(&reload->mixed);
        reload->next.command_timeout_ms = reload->mixed.command_timeout_ms;
    }
    changes_find(changes, now, &reload->next);
    changes_take(changes, &reload->mixed, &reload->next);
    loader->config = &reload->mixed;
    return check_all(loader);
}

bool
config_reload(struct config *config, const char *path, config_check *check,
    void *context, struct config_changes *changes, char *error,
    size_t error_bytes)
{
    struct reload *own = malloc(sizeof(*own));

    if (own == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return false;
    }
    loader_init(&own->loader, &own->next, path, error, error_bytes);
    bool done = reload(own, config, path, check, context, changes);
    if (done)
        *config = own->mixed;
    explicit_bzero(own, sizeof(*own));
    free(own);
    return done;
}

/* Printing */

/* Each begins with a dash, before its first key. */
static void
print_items(const struct key *items, const struct config *config, FILE *out)
{
    uint32_t count = value_item_count(items, config);

    fputs(count == 0 ? " []\n" : "\n", out);
    for (uint32_t item = 0; item < count; item++) {
        const char *before = "    - ";
        for (size_t i = 0; i < key_count(); i++) {
            const struct key *key = key_at(i);
            if (key_items(key) != items)
                continue;
            fprintf(out, "%s%s: ", before, key_name(key));
            value_print(key, (const char *)config + value_home(key, item), out);
            fputc('\n', out);
            before = "      ";
        }
    }
}

void
config_print(const struct config *config, FILE *out)
{
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        int indent = (int)(4 * key_depth(key));

        if (key_items(key) != NULL)
            continue;
        fprintf(out, "%*s%s:", indent, "", key_name(key));
        if (key->type == KEY_ITEMS) {
            print_items(key, config, out);
            continue;
        }
        if (key->type != KEY_SECTION) {
            fputc(' ', out);
            value_print(key, config, out);
        }
        fputc('\n', out);
    }
}
