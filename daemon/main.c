/*
 * holdfastd: start and end.
 *
 * 1. command line
 * 2. configuration, and the files of TLS and users
 * 3. log
 * 4. settings of core, store and io, and passed sockets
 * 5. loop (memory, listeners)
 * 6. signals and service manager
 * 7. turns of the loop, until a stop
 * 8. the end of all these
 *
 * SIGHUP repeats 2 and 4. The loop takes the settings that may change.
 */
#include "conf/checks.h"
#include "conf/config.h"
#include "conf/users.h"
#include "daemon/io/hook.h"
#include "daemon/io/loop.h"
#include "daemon/io/tls.h"
#include "daemon/options.h"
#include "daemon/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#ifndef HOLDFAST_VERSION
#define HOLDFAST_VERSION "0"
#endif

#define SERVER "holdfastd/" HOLDFAST_VERSION

struct daemon {
    const struct options *options; /* ref */
    const char *path;              /* ref, the configuration's; NULL: none */
    struct config config;          /* in force */
    struct tls *tls;               /* owned; to Redis; NULL: none */
    struct tls *client_tls;        /* owned; for clients; NULL: none */
    struct users *users;           /* owned; NULL: none */
    struct loop *loop;             /* owned */
    struct dev *dev;               /* owned; NULL: without --dev */
};

static const char *const tls_keys[TLS_PARTS] = {
    [TLS_PART_CA] = "redis.tls.ca",
    [TLS_PART_CERT] = "redis.tls.cert",
    [TLS_PART_KEY] = "redis.tls.key",
};

static const char *const client_tls_keys[TLS_PARTS] = {
    [TLS_PART_CA] = "listen.tls_client_ca",
    [TLS_PART_CERT] = "listen.tls_cert",
    [TLS_PART_KEY] = "listen.tls_key",
};

/* Writes eight characters that tell this run of the broker from others. */
static void
broker_id(char out[9])
{
    static const char letters[] = "0123456789abcdefghjkmnpqrstvwxyz";
    uint8_t random[8];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        abort();
    for (size_t i = 0; i < sizeof(random); i++)
        out[i] = letters[random[i] % 32];
    out[8] = '\0';
}

static uint64_t
seed(void)
{
    uint64_t value;

    if (getrandom(&value, sizeof(value), 0) != sizeof(value))
        abort();
    return value;
}

/* Objects of a configuration, made while it is checked. Objects stay if their
 * files have not changed. */
struct made {
    struct tls *tls;
    struct tls *client_tls;
    struct users *users;
    bool running;
};

/* Sets refs to the configuration, which must stay. */
static void
core_namespaces_of(const struct config *config, struct core_settings *core)
{
    static struct text namespaces[CONFIG_NAMESPACES_MAX];

    _Static_assert(
        (int)CONFIG_NAMESPACES_MAX == (int)NAMESPACES_MAX, "as many");
    _Static_assert(
        sizeof(config->namespaces[0].prefix) == NAMESPACE_PREFIX_BYTES + 1,
        "as long");
    for (uint32_t i = 0; i < config->namespace_count; i++)
        namespaces[i] = text_from(config->namespaces[i].prefix);
    core->namespaces = namespaces;
    core->namespace_count = config->namespace_count;
}

/* Sets the limits of audits: of each namespace, and of all others. */
static void
core_audit_of(const struct config *config, struct core_settings *core)
{
    static struct audit_limits limits[CONFIG_NAMESPACES_MAX + 1];
    uint32_t count = config->namespace_count;

    for (uint32_t i = 0; i < count; i++)
        limits[i] = (struct audit_limits){
            .warn_ms = config->namespaces[i].warn_after_ms,
            .wait_ms = config->namespaces[i].wait_after_ms,
            .break_ms = config->namespaces[i].break_after_ms,
        };
    limits[count] = (struct audit_limits){
        .warn_ms = config->warn_after_ms,
        .wait_ms = config->wait_after_ms,
        .break_ms = config->break_after_ms,
    };
    core->audit_limits = limits;
    core->audit_interval_us = config->audit_interval_ms * 1000;
    core->audit_pause_us = config->audit_pause_ms * 1000;
    core->audit_keys = config->audit_keys;
}

static void
core_settings(const struct config *config, const struct users *users,
    struct core_settings *core)
{
    memcpy(core->key_prefix, config->key_prefix, sizeof(core->key_prefix));
    broker_id(core->broker_id);
    core->server = SERVER;
    core->seed = seed();
    core->hash_seed[0] = seed();
    core->hash_seed[1] = seed();
    core->lease_ms = (uint32_t)config->lease_ms;
    core->redis_timeout_us = config->redis_timeout_ms * 1000;
    core->command_timeout_us = config->command_timeout_ms * 1000;
    core->stop_grace_us = config->stop_grace_ms * 1000;
    core->auth_us = config->auth_timeout_ms * 1000;
    core->slow_us = config->slow_threshold_ms * 1000;
    core->line_max = config->limit_line;
    core->name_max = config->limit_name;
    core->sessions_max = config->limit_connections;
    core->output_max = config->limit_output;
    core->outstanding_max = config->limit_outstanding;
    core->holds_max = config->limit_holds;
    core->address_connections_max = config->limit_address_connections;
    core->user_connections_max = config->limit_user_connections;
    core->user_holds_max = config->limit_user_holds;
    core->users = users;
    core->tickets_max = config->limit_tickets;
    core->requests_max = config->limit_requests;
    core->releases_kept =
        config->topology == TOPOLOGY_QUORUM ? 0 : CORE_RELEASES_KEPT;
    core_namespaces_of(config, core);
    core_audit_of(config, core);
    core->no_semaphores = config->topology == TOPOLOGY_QUORUM;
    core->queues_here = config->topology == TOPOLOGY_QUORUM;
}

/* The time that the record of a free lock stays: lua/record.lua needs two and a
 * half leases. A thousand new names a second take 30 MB. Redis deletes expired
 * keys late, so it may be half more. */
static uint32_t
idle_after_ms(const struct config *config)
{
    uint32_t leases_ms = 5 * (uint32_t)config->lease_ms / 2;

    return leases_ms > 75000 ? leases_ms : 75000;
}

static void
store_settings(const struct config *config, const struct core_settings *core,
    struct store_settings *store)
{
    static const enum store_topology topologies[] = {
        [TOPOLOGY_SINGLE] = STORE_SINGLE,
        [TOPOLOGY_CLUSTER] = STORE_CLUSTER,
        [TOPOLOGY_SENTINEL] = STORE_SENTINEL,
        [TOPOLOGY_QUORUM] = STORE_QUORUM,
    };

    store->topology = topologies[config->topology];
    store->node_count = (uint32_t)config->redis_nodes.count;
    for (size_t i = 0; i < config->redis_nodes.count; i++) {
        const struct config_address *node = &config->redis_nodes.item[i];
        memcpy(store->nodes[i].host, node->host, sizeof(node->host));
        store->nodes[i].port = node->port;
    }
    memcpy(store->username, config->redis_username, sizeof(store->username));
    memcpy(store->password, config->redis_password, sizeof(store->password));
    memcpy(store->sentinel_master, config->sentinel_master,
        sizeof(store->sentinel_master));
    memcpy(store->sentinel_username, config->sentinel_username,
        sizeof(store->sentinel_username));
    memcpy(store->sentinel_password, config->sentinel_password,
        sizeof(store->sentinel_password));
    memcpy(store->key_prefix, config->key_prefix, sizeof(store->key_prefix));
    memcpy(store->broker_id, core->broker_id, sizeof(store->broker_id));
    store->expiry_ms = CORE_EXPIRY_MS;
    store->waiters_max = config->limit_waiters;
    store->forget_after_ms = config->forget_after_ms;
    store->idle_after_ms = idle_after_ms(config);
    store->settle_us = config->settle_ms * 1000;
    store->lease_ms = (uint32_t)config->lease_ms;
    store->strict = config->safety == SAFETY_STRICT;
    store->replicas = config->redis_replicas;
    store->connect_timeout_us = config->connect_timeout_ms * 1000;
    store->command_timeout_us = config->command_timeout_ms * 1000;
    store->silence_us = config->lease_ms * 1000 / 3;
    store->batch = config->redis_batch;
    store->in_flight = config->redis_in_flight;
    if (store->in_flight == 0)
        store->in_flight = store->topology == STORE_CLUSTER ? 64 : 4;
    store->seed = seed();
}

static struct loop_address
loop_address(const struct config_address *address)
{
    struct loop_address out = {.port = address->port};

    memcpy(out.host, address->host, sizeof(out.host));
    return out;
}

static uint32_t
listen_addresses(const struct config *config, struct loop_address *out)
{
    const struct config_list *lists[] = {
        &config->listen_tcp, &config->listen_unix, &config->listen_tls};
    uint32_t n = 0;

    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < lists[i]->count; j++) {
            out[n] = loop_address(&lists[i]->item[j]);
            out[n].is_path = lists[i] == &config->listen_unix;
            out[n++].tls = lists[i] == &config->listen_tls;
        }
    return n;
}

/* Makes TLS. `keys` names its parts in errors. */
static bool
make_tls_of(const struct tls_settings *settings, const char *const *keys,
    struct tls **tls, struct config_fault *fault)
{
    enum tls_part part;

    if (*tls != NULL && tls_is_current(*tls, settings))
        return true;
    *tls = tls_create(settings, &part, fault->what, sizeof(fault->what));
    if (*tls != NULL)
        return true;
    fault->key = keys[part];
    return false;
}

static bool
make_tls(
    const struct config *config, struct tls **tls, struct config_fault *fault)
{
    const struct tls_settings settings = {
        .role = TLS_CLIENT,
        .ca = config->tls_ca,
        .cert = config->tls_cert,
        .key = config->tls_key,
        .server_name = config->tls_server_name,
        .any_name = config->tls_verify == VERIFY_CA,
    };

    return config->tls_ca[0] == '\0' ||
           make_tls_of(&settings, tls_keys, tls, fault);
}

static bool
make_client_tls(
    const struct config *config, struct tls **tls, struct config_fault *fault)
{
    const struct tls_settings settings = {
        .role = TLS_SERVER,
        .ca = config->listen_tls_client_ca,
        .cert = config->listen_tls_cert,
        .key = config->listen_tls_key,
        .server_name = "",
        .required = config->listen_tls_client_cert == CLIENT_CERT_REQUIRED,
    };

    return config->listen_tls_cert[0] == '\0' ||
           make_tls_of(&settings, client_tls_keys, tls, fault);
}

static bool
make_users(
    const struct config *config, struct made *made, struct config_fault *fault)
{
    if (config->users_file[0] == '\0')
        return true;
    made->users = users_load(config->users_file, made->running, made->users,
        fault->what, sizeof(fault->what));
    fault->key = "auth.users_file";
    return made->users != NULL;
}

/* Checks a configuration by making its objects. The context is the `struct
 * made`. */
static bool
make(const struct config *config, void *context, struct config_fault *fault)
{
    struct made *made = context;

    return make_tls(config, &made->tls, fault) &&
           make_client_tls(config, &made->client_tls, fault) &&
           make_users(config, made, fault);
}

/* Refs to the configuration. NULL: no hook. */
static const struct hook_settings *
hook_settings(const struct config *config)
{
    static struct hook_settings hook;

    _Static_assert((int)CONFIG_WORDS_MAX == (int)HOOK_WORDS_MAX, "as many");
    for (size_t i = 0; i < config->audit_hook.count; i++)
        hook.argv[i] = config->audit_hook.item[i].host;
    hook.timeout_us = config->hook_timeout_ms * 1000;
    return config->audit_hook.count > 0 ? &hook : NULL;
}

static void
loop_settings(const struct daemon *daemon, struct loop_settings *settings)
{
    const struct config *config = &daemon->config;

    core_settings(config, daemon->users, &settings->core);
    store_settings(config, &settings->core, &settings->store);
    settings->tls = daemon->tls;
    settings->client_tls = daemon->client_tls;
    settings->loopback_only =
        daemon->users == NULL && config->without_users == WITHOUT_USERS_REFUSED;
    settings->backlog = (int)config->listen_backlog;
    settings->keepalive_idle_s = (uint32_t)(config->keepalive_idle_ms / 1000);
    settings->keepalive_interval_s =
        (uint32_t)(config->keepalive_interval_ms / 1000);
    settings->keepalive_count = config->keepalive_count;
    settings->tcp_user_timeout_ms = (uint32_t)config->tcp_user_timeout_ms;
    settings->busy_poll_us = config->busy_poll_us;
    settings->memory_max = config->limit_memory;
}

static enum log_level
configured_level(const struct config *config)
{
    enum log_level level = LOG_INFO;

    (void)log_level_parse(text_from(config->log_level), &level);
    return level;
}

/* Takes new TLS, unless there was none; the caller frees `*tls`. */
static void
reload_tls(struct tls **now, struct tls **tls, const char *const *keys,
    struct config_changes *changes)
{
    struct tls *old = *now;

    if (old == NULL)
        return;
    /* The file may have other bytes under the same name. */
    for (enum tls_part part = TLS_PART_CA; part < TLS_PARTS; part++)
        if (!tls_same(old, *tls, part))
            changes_note(changes, keys[part]);
    *now = *tls;
    *tls = old;
}

/* Takes new users, unless there were none. The caller frees `*users` when
 * nothing refers to it any more. */
static void
reload_users(
    struct daemon *daemon, struct users **users, struct config_changes *changes)
{
    struct users *old = daemon->users;

    if (old == NULL)
        return;
    changes_note(changes, "auth.users_file");
    daemon->users = *users;
    *users = old;
}

/* Warns of an expired certificate. Each peer only sees its own refusal. */
static void
warn_expired(const struct tls *tls, const char *key)
{
    uint64_t end_s = tls != NULL ? tls_expiry_s(tls) : 0;
    time_t end = (time_t)end_s;
    struct tm date;
    char text[32];

    if (end_s == 0 || end > time(NULL) || gmtime_r(&end, &date) == NULL ||
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &date) == 0)
        return;
    log_write(LOG_WARN, "certificate_expired", log_word("key", key),
        log_word("end", text));
}

static void
warn_all_expired(const struct daemon *daemon)
{
    warn_expired(daemon->tls, tls_keys[TLS_PART_CERT]);
    warn_expired(daemon->client_tls, client_tls_keys[TLS_PART_CERT]);
}

/* Logs the changes, and warns. */
static void
reload_apply(const struct daemon *daemon, const struct config_changes *changes)
{
    static struct loop_settings settings;
    char keys[CHANGES_TEXT_BYTES];

    loop_settings(daemon, &settings);
    loop_configure(daemon->loop, &settings);
    explicit_bzero(&settings.store, sizeof(settings.store)); /* passwords */
    sink_configure(configured_level(&daemon->config), daemon->config.log_format,
        daemon->config.log_rate);
    log_write(LOG_INFO, "reloaded",
        log_word("changed",
            changes_any(changes, CHANGE_TAKEN)
                ? changes_text(changes, CHANGE_TAKEN, keys, sizeof(keys))
                : "none"));
    if (changes_any(changes, CHANGE_LEFT))
        log_write(LOG_WARN, "reload_needs_restart",
            log_word("keys",
                changes_text(changes, CHANGE_LEFT, keys, sizeof(keys))));
    warn_all_expired(daemon);
}

/* Logs the mistakes of a refused configuration, a line each. */
static void
log_mistakes(const char *error)
{
    size_t len;

    for (; *error != '\0'; error += len + (error[len] == '\n')) {
        len = strcspn(error, "\n");
        log_write(LOG_ERROR, "reload_failed",
            log_quoted("why", text_make(error, len)));
    }
}

/* Reloads, on SIGHUP, between two turns of the loop. */
static void
reload(void *arg)
{
    struct daemon *daemon = arg;
    /* The defaults must not replace a file that is missing by mistake. */
    const char *path = daemon->path != NULL
                           ? daemon->path
                           : options_config_file(daemon->options);
    struct config_changes changes;
    struct made made = {daemon->tls, daemon->client_tls, daemon->users, true};
    char error[CONFIG_ERROR_BYTES];

    if (daemon->dev != NULL) /* no file */
        return;
    loop_begin_turn(daemon->loop);
    bool taken = config_reload(
        &daemon->config, path, make, &made, &changes, error, sizeof(error));

    bool other_tls = made.tls != daemon->tls;
    bool other_client_tls = made.client_tls != daemon->client_tls;
    bool other_users = made.users != daemon->users;
    if (taken && other_tls)
        reload_tls(&daemon->tls, &made.tls, tls_keys, &changes);
    if (taken && other_client_tls)
        reload_tls(
            &daemon->client_tls, &made.client_tls, client_tls_keys, &changes);
    if (taken && other_users)
        reload_users(daemon, &made.users, &changes);
    if (taken) {
        daemon->path = path;
        reload_apply(daemon, &changes);
    } else {
        log_mistakes(error);
    }
    if (other_tls)
        tls_destroy(&made.tls);
    if (other_client_tls)
        tls_destroy(&made.client_tls);
    if (other_users)
        users_destroy(&made.users);
    loop_note_reload(daemon->loop, taken);
}

/* Whether Redis or a Sentinel refuses the password and the file has another
 * one: not every tool that changes secrets can send a signal. */
static bool
has_new_password(void *arg)
{
    struct daemon *daemon = arg;
    const struct health *health = loop_health(daemon->loop);
    bool refused = false;

    for (uint32_t i = 0; i < health->node_count; i++) {
        const struct health_node *node = &health->nodes[i];
        refused = refused || (node->needed &&
                                 (node->reason == HEALTH_PASSWORD ||
                                     node->reason == HEALTH_PASSWORD_MISSING));
    }
    return refused && config_has_other_password(&daemon->config);
}

static int
run(struct daemon *daemon)
{
    static struct loop_settings settings;
    static struct activation activation;
    const struct config *config = &daemon->config;
    struct loop_address addresses[3 * CONFIG_LISTEN_MAX];
    struct loop_address http;
    char error[400];

    loop_settings(daemon, &settings);
    settings.listen = addresses;
    settings.listen_count = listen_addresses(config, addresses);
    if (config->admin_http.count > 0) {
        http = loop_address(&config->admin_http.item[0]);
        settings.http = &http;
    }
    settings.hook = hook_settings(config);
    settings.core.audit_hook = settings.hook != NULL;
    if (settings.hook == NULL) /* then all children belong to others */
        (void)signal(SIGCHLD, SIG_IGN);
    log_write(LOG_INFO, "starting", log_word("server", SERVER),
        log_word("broker", settings.core.broker_id));
    warn_all_expired(daemon);
    if (daemon->dev != NULL)
        dev_take(daemon->dev, &activation);
    if (daemon->dev != NULL ||
        activation_take(&activation, error, sizeof(error))) {
        settings.passed = activation.sockets;
        settings.passed_count = activation.count;
        daemon->loop = loop_create(&settings, error, sizeof(error));
    }
    explicit_bzero(&settings.store, sizeof(settings.store)); /* passwords */
    if (daemon->loop == NULL) {
        log_write(
            LOG_ERROR, "cannot_start", log_quoted("why", text_from(error)));
        return OPTIONS_EXIT_SYSTEM;
    }
    struct process *process =
        process_create(daemon->loop, reload, has_new_password, daemon);
    int status = OPTIONS_EXIT_SYSTEM;
    if (process != NULL && sink_attach(daemon->loop) &&
        dev_attach(daemon->dev, daemon->loop))
        status = loop_run(daemon->loop);
    else
        log_write(
            LOG_ERROR, "cannot_start", log_quoted("why", TEXT("no memory")));
    sink_detach();
    if (!dev_detach(daemon->dev))
        status = OPTIONS_EXIT_SYSTEM;
    process_destroy(&process);
    loop_destroy(&daemon->loop);
    log_write(LOG_INFO, "stopped", log_signed("status", status));
    return status;
}

/* Reads the configuration. False: stderr has the reason. */
static bool
load(struct daemon *daemon)
{
    const char *path = daemon->path;
    struct made made = {NULL, NULL, NULL, false};
    char error[CONFIG_ERROR_BYTES];

    config_init(&daemon->config);
    bool good = path == NULL || config_load_checked(&daemon->config, path, make,
                                    &made, error, sizeof(error));
    daemon->tls = made.tls;
    daemon->client_tls = made.client_tls;
    daemon->users = made.users;
    if (!good)
        fprintf(stderr, "%s\n", error);
    return good;
}

/* The same for --dev. */
static bool
load_dev(struct daemon *daemon)
{
    char error[CONFIG_ERROR_BYTES];

    daemon->dev = dev_create(
        daemon->options->dev_port, &daemon->config, error, sizeof(error));
    if (daemon->dev == NULL)
        fprintf(stderr, "holdfastd: %s\n", error);
    return daemon->dev != NULL;
}

/* The exit status: whether stdout got all. */
static int
printed(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fputs("holdfastd: cannot write to stdout\n", stderr);
    return OPTIONS_EXIT_SYSTEM;
}

static int
act(enum options_action action, struct daemon *daemon)
{
    const char *path = daemon->path;

    if (action == OPTIONS_CHECK_CONFIG) {
        printf("%s: ok\n", path == NULL ? "defaults" : path);
        return 0; /* which says it itself */
    }
    if (action == OPTIONS_PRINT_CONFIG) {
        config_print(&daemon->config, stdout);
        return printed();
    }
    sink_init(configured_level(&daemon->config), daemon->config.log_format,
        daemon->config.log_rate);
    log_write(LOG_INFO, "configuration",
        log_word("file", path == NULL ? "none" : path));
    return run(daemon);
}

static int
load_and_act(enum options_action action, const struct options *options)
{
    static struct daemon daemon;

    if (action == OPTIONS_RUN)
        process_begin();
    daemon.options = options;
    daemon.path = options->dev ? NULL : options_config_file(options);
    int status = options->dev ? OPTIONS_EXIT_SYSTEM : OPTIONS_EXIT_CONFIG;
    if ((options->dev ? load_dev : load)(&daemon))
        status = act(action, &daemon);
    dev_destroy(&daemon.dev);
    tls_destroy(&daemon.tls);
    tls_destroy(&daemon.client_tls);
    users_destroy(&daemon.users);
    return status;
}

/*
 * Occupies the numbers of closed stdin, stdout and stderr: the log would go to
 * a file that is opened later. The descriptor can neither be read nor written.
 */
static void
standard_reserve(void)
{
    int fd;

    do {
        fd = open("/", O_PATH | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}

int
main(int argc, char **argv)
{
    struct options options;
    enum options_action action = options_parse(&options, argc, argv);

    standard_reserve();
    /* Ignores SIGPIPE and SIGXFSZ: the reader of stderr may go, and a log file
     * may reach its limit. Hook processes have the default. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);

    if (action == OPTIONS_WRONG) {
        fprintf(stderr, "holdfastd: %s\n", options.error);
        return OPTIONS_EXIT_USAGE;
    }
    if (action == OPTIONS_HELP) {
        options_usage(stdout);
        return printed();
    }
    if (action == OPTIONS_VERSION) {
        puts(SERVER);
        return printed();
    }
    return load_and_act(action, &options);
}
