/*
 * Rules between keys, each of which is good alone.
 */
#include "conf/checks.h"

#include "conf/keys.h"
#include "conf/value.h"
#include "daemon/base/assert.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

/* The key of that path, which is in the table. */
static const struct key *
key_of(const char *path)
{
    const struct key *key = key_find(text_from(path));

    require(key != NULL);
    return key;
}

static struct walk_place
place_of_key(const struct loader *loader, const char *path)
{
    return loader->keys[key_index(key_of(path))];
}

bool
checks_is_given(const struct loader *loader, const char *path)
{
    return place_of_key(loader, path).line != 0;
}

/* The place of `path`, or of `other` if the file does not have `path`. */
static struct walk_place
place_of_either(
    const struct loader *loader, const char *path, const char *other)
{
    return place_of_key(loader, checks_is_given(loader, path) ? path : other);
}

/* Each rule reports its mistakes. False: it has reported one. */

static bool
check_lists(struct loader *loader)
{
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);

        if (value_is_list(key) && loader->keys[i].line != 0 &&
            !loader->bad[i] &&
            value_list(key, loader->config)->count < key->min)
            walk_fail(&loader->walk, loader->keys[i],
                "%s: at least one value expected", key->path);
    }
    return true;
}

/* listen.tcp has a default, so without listeners the file has set it. */
static bool
check_listeners(struct loader *loader)
{
    const struct config *config = loader->config;

    if (config->listen_tcp.count > 0 || config->listen_unix.count > 0 ||
        config->listen_tls.count > 0)
        return true;
    return walk_fail(&loader->walk, place_of_key(loader, "listen.tcp"),
        "listen.tcp: no address to listen on; give one here, or in "
        "listen.unix or listen.tls");
}

/* Whether only this machine reaches the address. A name counts as loopback
 * here; it is checked again when the daemon listens on it. */
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

/*
 * The two lists must not share an address. `path` is the later key in the file.
 */
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
        "redis.nodes: %zu nodes; \"topology: single\" needs one",
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
        "redis.sentinel_master: empty; \"topology: sentinel\" needs the name");
}

/* An even number of masters survives no more failures than one master less. */
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
            "redis.nodes: %zu nodes; \"topology: quorum\" needs an odd number "
            "from 3 to %d",
            count, CONFIG_QUORUM_MAX);
    if (config->safety == SAFETY_STRICT)
        return walk_fail(&loader->walk, place_of_key(loader, "redis.safety"),
            "redis.safety: strict needs replicas; \"topology: quorum\" has "
            "masters only");
    return true;
}

/* A key that is not empty needs another key. */
struct need {
    const char *path;
    const char *other;
};

/* Reports the first need that is not met, if any. */
static bool
check_needs(struct loader *loader, const struct need *needs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *path = needs[i].path;
        const char *other = needs[i].other;

        if (!value_is_empty(key_of(path), loader->config) &&
            value_is_empty(key_of(other), loader->config))
            return walk_fail(&loader->walk, place_of_key(loader, path),
                "%s: needs %s", path, other);
    }
    return true;
}

static bool
check_user(struct loader *loader)
{
    static const struct need needs[] = {
        {"redis.username", "redis.password_file"},
        {"redis.sentinel_username", "redis.sentinel_password_file"},
    };
    bool redis = check_needs(loader, &needs[0], 1);

    return check_needs(loader, &needs[1], 1) && redis;
}

/* An operator who writes the section wants encryption. */
static bool
check_tls(struct loader *loader)
{
    static const struct need needs[] = {
        {"redis.tls.cert", "redis.tls.key"},
        {"redis.tls.key", "redis.tls.cert"},
        {"redis.tls.cert", "redis.tls.ca"},
        {"redis.tls.server_name", "redis.tls.ca"},
        {"redis.tls.verify", "redis.tls.ca"},
    };

    if (checks_is_given(loader, "redis.tls") &&
        !checks_is_given(loader, "redis.tls.ca"))
        return walk_fail(&loader->walk, place_of_key(loader, "redis.tls"),
            "redis.tls: needs redis.tls.ca");
    return check_needs(loader, needs, sizeof(needs) / sizeof(needs[0]));
}

/* The files need no address, since systemd may pass a socket. */
static bool
check_listen_tls(struct loader *loader)
{
    static const struct need needs[] = {
        {"listen.tls", "listen.tls_cert"},
        {"listen.tls_cert", "listen.tls_key"},
        {"listen.tls_key", "listen.tls_cert"},
        {"listen.tls_client_ca", "listen.tls_cert"},
        {"listen.tls_client_cert", "listen.tls_client_ca"},
    };

    return check_needs(loader, needs, sizeof(needs) / sizeof(needs[0]));
}

/* A renewal is sent at a third of the lease. It needs time for a retry. */
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
        "redis.command_timeout: %s must be less than a third of "
        "lease.default, %s",
        value_number_text(KEY_DURATION, config->command_timeout_ms, timeout),
        value_number_text(KEY_DURATION, config->lease_ms, lease));
}

/* The record has the last fence, so it must long outlive every hold. */
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
        "redis.forget_after: %s must be at least ten times lease.default, %s",
        value_number_text(KEY_DURATION, config->forget_after_ms, forget),
        value_number_text(KEY_DURATION, config->lease_ms, lease));
}

static bool
check_memory(struct loader *loader)
{
    const struct config *config = loader->config;
    char memory[VALUE_TEXT_BYTES];
    char output[VALUE_TEXT_BYTES];

    if (config->limit_memory >= config->limit_output)
        return true;
    return walk_fail(&loader->walk,
        place_of_either(loader, "limits.memory", "limits.output"),
        "limits.memory: %s must be at least limits.output, %s",
        value_number_text(KEY_SIZE, config->limit_memory, memory),
        value_number_text(KEY_SIZE, config->limit_output, output));
}

static bool
check_namespaces(struct loader *loader)
{
    const struct config *config = loader->config;

    require(config->namespace_count <= CONFIG_NAMESPACES_MAX);
    for (uint32_t i = 0; i < config->namespace_count; i++) {
        const char *prefix = config->namespaces[i].prefix;
        if (prefix[0] == '\0')
            walk_fail(&loader->walk, loader->namespaces[i],
                "namespaces: a prefix expected");
        if (strcmp(prefix, "other") == 0) /* metrics have that label already */
            walk_fail(&loader->walk, loader->namespaces[i],
                "namespaces: \"other\" is the label of all other locks; choose "
                "another prefix");
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(prefix, config->namespaces[j].prefix) == 0)
                walk_fail(&loader->walk, loader->namespaces[i],
                    "namespaces: \"%s\" is already on line %zu", prefix,
                    loader->namespaces[j].line);
    }
    return true;
}

/* PATH is not searched. */
static bool
check_hook(struct loader *loader)
{
    const struct config_list *hook = &loader->config->audit_hook;

    if (hook->count == 0 || hook->item[0].host[0] == '/')
        return true;
    return walk_fail(&loader->walk, place_of_key(loader, "audit.hook"),
        "audit.hook: an absolute path of a program expected");
}

/* The rules, with the keys and sections that each reads. */
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

/* Whether one of the keys has a mistake, so that its value is not known. */
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

bool
checks_run(struct loader *loader)
{
    loader->key = NULL;
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        if (!any_is_bad(loader, checks[i].keys))
            (void)checks[i].check(loader);
    return loader->walk.mistakes == 0;
}
