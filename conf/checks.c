/*
 * What keys must agree on, once each of them is good alone.
 */
#include "conf/checks.h"

#include "conf/keys.h"
#include "conf/value.h"
#include "daemon/base/assert.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static struct walk_place
place_of_key(const struct loader *loader, const char *path)
{
    const struct key *key = key_find(text_from(path));

    require(key != NULL);
    return loader->keys[key_index(key)];
}

bool
checks_is_given(const struct loader *loader, const char *path)
{
    return place_of_key(loader, path).line != 0;
}

/* The place of the first of the two that is in the file. */
static struct walk_place
place_of_either(
    const struct loader *loader, const char *path, const char *other)
{
    return place_of_key(loader, checks_is_given(loader, path) ? path : other);
}

static bool
check_lists(struct loader *loader)
{
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);

        if (value_is_list(key) && loader->keys[i].line != 0 &&
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

    if (checks_is_given(loader, "redis.tls") &&
        !checks_is_given(loader, "redis.tls.ca"))
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

    require(config->space_count <= CONFIG_SPACES_MAX);
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

bool
checks_run(struct loader *loader)
{
    loader->key = NULL;
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        if (!any_is_bad(loader, checks[i].keys))
            (void)checks[i].check(loader);
    return loader->walk.mistakes == 0;
}
