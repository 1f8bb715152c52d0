/*
 * INFO, ROLE and WAIT of a fake Redis.
 *
 * INFO has Redis' sections in its order, and of their fields those that
 * somebody looks at; the section on replication has all.
 */
#include "tests/sim/fake_state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static void print(struct bytes *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void
print(struct bytes *out, const char *format, ...)
{
    va_list list;
    char *room = bytes_room(out, 512);

    va_start(list, format);
    int len = vsnprintf(room, 512, format, list);
    va_end(list);
    require(len >= 0 && len < 512);
    out->len += (size_t)len;
}

/* Bytes are not counted, but writes; before the first replica, nothing is. */
static uint64_t
offset_of(const struct fake *fake)
{
    if (fake->replica)
        return fake->applied;
    return fake->had_replica ? fake->log.end : 0;
}

static void
info_server(struct fake *fake, struct bytes *out)
{
    print(out,
        "# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:00000000\r\n"
        "redis_git_dirty:0\r\nredis_mode:%s\r\nos:simulated\r\n"
        "arch_bits:64\r\nprocess_id:1\r\nrun_id:%s\r\ntcp_port:%u\r\n"
        "server_time_usec:%" PRIu64 "\r\nuptime_in_seconds:%" PRIu64 "\r\n",
        fake->cluster != NULL ? "cluster" : "standalone", fake->run_id,
        (unsigned)fake->settings.port, fake->realtime_us,
        (fake->realtime_us - fake->started_us) / 1000000);
}

static void
info_clients(struct fake *fake, struct bytes *out)
{
    print(out,
        "# Clients\r\nconnected_clients:%zu\r\nmaxclients:10000\r\n"
        "blocked_clients:0\r\n",
        fake->connection_count);
}

static void
info_memory(struct fake *fake, struct bytes *out)
{
    const char *policy = fake->settings.maxmemory_policy;

    print(out,
        "# Memory\r\nused_memory:1000000\r\nmaxmemory:%u\r\n"
        "maxmemory_policy:%s\r\n",
        fake->mood == FAKE_OOM ? 1U : 0U,
        policy[0] != '\0' ? policy : "noeviction");
}

static void
info_persistence(struct fake *fake, struct bytes *out)
{
    print(out,
        "# Persistence\r\nloading:%d\r\nasync_loading:0\r\n"
        "rdb_last_bgsave_status:%s\r\naof_enabled:0\r\n",
        fake->mood == FAKE_LOADING, fake->mood == FAKE_MISCONF ? "err" : "ok");
}

static void
info_stats(struct fake *fake, struct bytes *out)
{
    print(out,
        "# Stats\r\ntotal_connections_received:%" PRIu32
        "\r\ntotal_commands_processed:%" PRIu64
        "\r\ntotal_error_replies:%" PRIu64 "\r\n",
        fake->next_id - FAKE_FIRST_ID, fake->counts.commands,
        fake->counts.errors);
}

static void
info_replication(struct fake *fake, struct bytes *out)
{
    struct bytes *cache = &fake->info_cache;

    if (cache->len > 0) {
        bytes_add(out, cache->at, cache->len);
        return;
    }
    print(cache, "# Replication\r\nrole:%s\r\n",
        fake->replica ? "slave" : "master");
    if (fake->replica)
        print(cache,
            "master_host:%s\r\nmaster_port:%u\r\nmaster_link_status:%s\r\n"
            "master_last_io_seconds_ago:%d\r\nmaster_sync_in_progress:0\r\n"
            "slave_read_repl_offset:%" PRIu64 "\r\nslave_repl_offset:%" PRIu64
            "\r\nslave_priority:100\r\nslave_read_only:1\r\n"
            "replica_announced:1\r\n",
            fake->master != NULL ? fake->master->settings.host : "",
            fake->master != NULL ? (unsigned)fake->master->settings.port : 0,
            fake->master == NULL || fake->link_down ? "down" : "up",
            fake->master == NULL || fake->link_down ? -1 : 0, fake->applied,
            fake->applied);
    print(cache, "connected_slaves:%zu\r\n", fake->replica_count);
    if (fake->mood == FAKE_NOREPLICAS)
        print(cache, "min_slaves_good_slaves:0\r\n");
    for (size_t i = 0; i < fake->replica_count; i++)
        print(cache,
            "slave%zu:ip=%s,port=%u,state=%s,offset=%" PRIu64 ",lag=0\r\n", i,
            fake->replicas[i]->settings.host,
            (unsigned)fake->replicas[i]->settings.port,
            fake->replicas[i]->link_down ? "wait_bgsave" : "online",
            fake->replicas[i]->applied);
    uint64_t offset = offset_of(fake);
    bool backlog = fake->had_replica || fake->replica;
    print(cache,
        "master_failover_state:no-failover\r\nmaster_replid:%s\r\n"
        "master_replid2:%s\r\nmaster_repl_offset:%" PRIu64
        "\r\nsecond_repl_offset:%" PRId64
        "\r\nrepl_backlog_active:%d\r\nrepl_backlog_size:1048576\r\n"
        "repl_backlog_first_byte_offset:%d\r\n"
        "repl_backlog_histlen:%" PRIu64 "\r\n",
        fake->repl_id, fake->repl_id2, offset, fake->second_offset, backlog,
        backlog, backlog ? offset : 0);
    bytes_add(out, cache->at, cache->len);
    if (fake->replica || fake->had_replica)
        cache->len = 0; /* offsets change with each write */
}

static void
info_cpu(struct fake *fake, struct bytes *out)
{
    (void)fake;
    print(out, "# CPU\r\nused_cpu_sys:0.000000\r\n"
               "used_cpu_user:0.000000\r\n");
}

static void
info_modules(struct fake *fake, struct bytes *out)
{
    (void)fake;
    print(out, "# Modules\r\n");
}

static void
info_errors(struct fake *fake, struct bytes *out)
{
    (void)fake;
    print(out, "# Errorstats\r\n");
}

static void
info_cluster(struct fake *fake, struct bytes *out)
{
    print(out, "# Cluster\r\ncluster_enabled:%d\r\n", fake->cluster != NULL);
}

static void
info_keyspace(struct fake *fake, struct bytes *out)
{
    size_t expire = 0;

    print(out, "# Keyspace\r\n");
    for (size_t i = 0; i < fake->keys.count; i++)
        expire += fake->keys.all[i]->expires_ms != FAKE_NEVER_MS;
    if (fake->keys.count > 0)
        print(out, "db0:keys=%zu,expires=%zu,avg_ttl=0\r\n", fake->keys.count,
            expire);
}

void
command_info(struct call *call)
{
    static const struct {
        const char *name;
        void (*print)(struct fake *fake, struct bytes *out);
    } sections[] = {
        {"server", info_server},
        {"clients", info_clients},
        {"memory", info_memory},
        {"persistence", info_persistence},
        {"stats", info_stats},
        {"replication", info_replication},
        {"cpu", info_cpu},
        {"modules", info_modules},
        {"errorstats", info_errors},
        {"cluster", info_cluster},
        {"keyspace", info_keyspace},
    };
    struct bytes text = {0};

    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        bool wanted = call->count == 1;
        for (size_t j = 1; j < call->count; j++)
            wanted = wanted || text_is(call->arg[j], sections[i].name) ||
                     text_is(call->arg[j], "default") ||
                     text_is(call->arg[j], "all") ||
                     text_is(call->arg[j], "everything");
        if (!wanted)
            continue;
        if (text.len > 0)
            bytes_add(&text, "\r\n", 2);
        sections[i].print(call->fake, &text);
    }
    reply_bulk(call, text.at, text.len);
    bytes_fini(&text);
}

void
command_role(struct call *call)
{
    const struct fake *fake = call->fake;
    char digits[20];

    if (fake->replica) {
        reply_array(call, 5);
        reply_string(call, "slave");
        reply_string(
            call, fake->master != NULL ? fake->master->settings.host : "");
        reply_integer(
            call, fake->master != NULL ? fake->master->settings.port : 0);
        reply_string(call,
            fake->master == NULL || fake->link_down ? "connect" : "connected");
        reply_integer(call, (int64_t)fake->applied);
        return;
    }
    reply_array(call, 3);
    reply_string(call, "master");
    reply_integer(call, (int64_t)offset_of(fake));
    reply_array(call, fake->replica_count);
    for (size_t i = 0; i < fake->replica_count; i++) {
        const struct fake *replica = fake->replicas[i];
        reply_array(call, 3);
        reply_string(call, replica->settings.host);
        reply_bulk(call, digits, text_from_u64(digits, replica->settings.port));
        reply_bulk(call, digits, text_from_u64(digits, replica->applied));
    }
}

static int64_t
wait_count(const struct fake *fake, const struct connection *connection)
{
    int64_t count = 0;

    for (size_t i = 0; i < fake->replica_count; i++)
        count += !fake->replicas[i]->link_down &&
                 fake->replicas[i]->applied >= connection->wrote_to;
    return count;
}

bool
wait_over(struct fake *fake, struct connection *connection)
{
    struct call call = {
        .fake = fake, .connection = connection, .out = &connection->out};
    int64_t count = wait_count(fake, connection);

    if (fake->replica)
        reply_error(&call, "-UNBLOCKED force unblock from blocking operation, "
                           "instance state changed (master -> replica?)");
    else if (count >= connection->wait_wanted ||
             fake->realtime_us >= connection->wait_until_us)
        reply_integer(&call, count);
    else
        return false;
    connection->wait_until_us = 0;
    connection->wrote_to = fake->log.end;
    return true;
}

void
command_wait(struct call *call)
{
    struct fake *fake = call->fake;
    struct connection *connection = call->connection;
    const struct fake_sink *sink = &fake->settings.sink;
    int64_t wanted;
    int64_t timeout_ms;

    if (fake->replica) {
        reply_error(call,
            "WAIT cannot be used with replica instances. Please also note "
            "that since Redis 4.0 if a replica is configured to be writable "
            "(which is not the default) writes to replicas are just local and "
            "are not propagated.");
        return;
    }
    if (!arg_number(call, 1, &wanted))
        return;
    if (!number_read(call->arg[2], &timeout_ms)) {
        reply_error(call, "timeout is not an integer or out of range");
        return;
    }
    if (timeout_ms < 0) {
        reply_error(call, "timeout is negative");
        return;
    }
    int64_t count = wait_count(fake, connection);
    if (count >= wanted || sink->waits == NULL) {
        reply_integer(call, count);
        return;
    }
    connection->wait_wanted = wanted;
    connection->wait_until_us =
        timeout_ms == 0 ? UINT64_MAX
                        : fake->realtime_us + (uint64_t)timeout_ms * 1000;
    sink->waits(fake->settings.arg, connection->wait_until_us);
}
