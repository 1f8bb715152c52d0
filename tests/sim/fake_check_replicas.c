/*
 * Checks without a real server: the fake's own replication, restarts, scripts
 * that break off, and that the same calls do the same.
 */
#include "tests/sim/fake_check.h"

#include <stdio.h>
#include <stdlib.h>

#define CLOCK_US 1800000000000000

#define EXPECT(expression)  \
    ((expression) ? (void)0 \
                  : check_fail("%s:%d: %s", __FILE__, __LINE__, #expression))

/* A server, one connection to it, and what it has said last. */
struct server {
    struct fake *fake;
    uint32_t connection;
    struct bytes said;
    unsigned closed;
    unsigned writes; /* that the sink was told of */
};

static void
on_send(void *arg, uint32_t connection, const char *bytes, size_t len)
{
    struct server *server = arg;

    if (connection == server->connection)
        bytes_add(&server->said, bytes, len);
}

static void
on_closed(void *arg, uint32_t connection)
{
    struct server *server = arg;

    (void)connection;
    server->closed++;
}

static void
on_wrote(void *arg, const char *key, size_t key_len, const char *value,
    size_t value_len)
{
    struct server *server = arg;

    (void)key;
    (void)key_len;
    (void)value;
    (void)value_len;
    server->writes++;
}

static void
server_open(struct server *server, uint64_t seed)
{
    struct fake_settings settings = {
        .seed = seed,
        .sink = {.send = on_send, .closed = on_closed, .wrote = on_wrote},
        .arg = server,
    };

    memset(server, 0, sizeof(*server));
    server->fake = fake_create(&settings);
    fake_set_clock(server->fake, CLOCK_US);
    server->connection = fake_accept(server->fake);
}

static void
server_close(struct server *server)
{
    fake_destroy(&server->fake);
    bytes_fini(&server->said);
}

/* Words with blanks between; '~' stands for a blank in one. */
static bool
says(struct server *server, const char *line, const char *reply)
{
    char text[400];
    char head[32];
    struct bytes out = {0};
    size_t count = 1;

    for (const char *at = line; *at != '\0'; at++)
        count += *at == ' ';
    snprintf(text, sizeof(text), "%s", line);
    bytes_add(
        &out, head, (size_t)snprintf(head, sizeof(head), "*%zu\r\n", count));
    char *rest = text;
    for (char *word = strsep(&rest, " "); word != NULL;
         word = strsep(&rest, " ")) {
        for (char *at = word; *at != '\0'; at++)
            *at = *at == '~' ? ' ' : *at;
        bytes_add(&out, head,
            (size_t)snprintf(head, sizeof(head), "$%zu\r\n", strlen(word)));
        bytes_add(&out, word, strlen(word));
        bytes_add(&out, "\r\n", 2);
    }
    server->said.len = 0;
    fake_input(server->fake, server->connection, out.at, out.len);
    bytes_fini(&out);
    bytes_add(&server->said, "", 1);
    if (strncmp(server->said.at, reply, strlen(reply)) == 0)
        return true;
    printf("%s: %s\n", line, server->said.at);
    return false;
}

static bool
holds(const struct server *server, const char *key, const char *value)
{
    size_t len = 0;
    const char *found = fake_get(server->fake, key, strlen(key), &len);

    if (value == NULL)
        return found == NULL;
    return found != NULL && len == strlen(value) &&
           memcmp(found, value, len) == 0;
}

static void
check_lag(struct server *master, struct server *replica)
{
    char old_id[41];

    EXPECT(says(master, "SET a 1", "+OK"));
    EXPECT(says(master, "WAIT 0 0", ":0"));
    memcpy(old_id, fake_repl_id(master->fake), 41);
    fake_replicate_from(replica->fake, master->fake);
    EXPECT(strcmp(old_id, fake_repl_id(master->fake)) != 0);
    EXPECT(
        strcmp(fake_repl_id(replica->fake), fake_repl_id(master->fake)) == 0);
    EXPECT(holds(replica, "a", "1"));
    EXPECT(fake_replica_lag(replica->fake) == 0);
    EXPECT(says(replica, "SET a 2", "-READONLY"));
    EXPECT(says(replica, "GET a", "$1\r\n1"));
    /* A script's writes are one write. */
    EXPECT(says(master,
        "EVAL redis.call('SET','a',2);redis.call('SET','b',3);"
        "redis.call('DEL','a') 0",
        "$-1"));
    EXPECT(says(master, "SET c 4 PX 1000", "+OK"));
    EXPECT(fake_replica_lag(replica->fake) == 2);
    EXPECT(says(master, "WAIT 1 0", ":0"));
    EXPECT(holds(replica, "a", "1") && holds(replica, "b", NULL));
    unsigned writes = replica->writes;
    fake_replica_apply(replica->fake, 1);
    EXPECT(replica->writes == writes + 2);
    EXPECT(holds(replica, "a", NULL) && holds(replica, "b", "3"));
    EXPECT(holds(replica, "c", NULL));
    fake_replica_apply(replica->fake, 9);
    EXPECT(holds(replica, "c", "4") && fake_replica_lag(replica->fake) == 0);
    EXPECT(says(master, "WAIT 1 0", ":1"));
    EXPECT(says(replica, "PTTL c", ":1000"));
}

/* Writes that were not applied are lost when the replica is promoted. */
static void
check_promotion(struct server *master, struct server *replica)
{
    char old_id[41];

    EXPECT(says(master, "SET lost 1", "+OK"));
    memcpy(old_id, fake_repl_id(replica->fake), 41);
    fake_promote(replica->fake);
    EXPECT(!fake_is_replica(replica->fake));
    EXPECT(strcmp(fake_repl_id(replica->fake), old_id) != 0);
    EXPECT(says(replica, "INFO replication", "$"));
    EXPECT(strstr(replica->said.at, old_id) != NULL); /* as the second */
    EXPECT(holds(replica, "lost", NULL));
    EXPECT(says(replica, "SET new 1", "+OK"));
    fake_replicate_from(master->fake, replica->fake);
    EXPECT(holds(master, "lost", NULL) && holds(master, "new", "1"));
    EXPECT(
        strcmp(fake_repl_id(replica->fake), fake_repl_id(master->fake)) == 0);
}

/* After a restart of its master a replica takes a full copy. */
static void
check_restart(struct server *master, struct server *replica)
{
    char old_run[41];

    memcpy(old_run, fake_run_id(master->fake), 41);
    EXPECT(says(master, "SET kept 1", "+OK"));
    fake_restart(master->fake, true);
    EXPECT(strcmp(old_run, fake_run_id(master->fake)) != 0);
    EXPECT(connection_find(master->fake, master->connection) == NULL);
    EXPECT(master->closed == 0);
    EXPECT(holds(master, "kept", "1") && holds(replica, "kept", NULL));
    master->connection = fake_accept(master->fake);
    EXPECT(says(master, "WAIT 0 0", ":0"));
    fake_replica_apply(replica->fake, 1);
    EXPECT(holds(replica, "kept", "1"));
    EXPECT(says(master, "WAIT 0 0", ":1"));
    fake_restart(master->fake, false);
    EXPECT(holds(master, "kept", NULL) && holds(replica, "kept", "1"));
    fake_replica_apply(replica->fake, 1);
    EXPECT(holds(replica, "kept", NULL));
    master->connection = fake_accept(master->fake);
}

static void
check_faults(struct server *server)
{
    static const char script[] =
        "EVAL redis.call('SET','x',1);redis.call('SET','y',1) 0";

    fake_break_script(server->fake, 1);
    EXPECT(says(server, script, "-ERR"));
    EXPECT(holds(server, "x", "1") && holds(server, "y", NULL));
    EXPECT(says(server, script, "$-1"));
    EXPECT(holds(server, "y", "1"));
    fake_set_mood(server->fake, FAKE_LOADING);
    EXPECT(says(server, "GET x", "-LOADING"));
    EXPECT(says(server, "INFO persistence", "$"));
    EXPECT(strstr(server->said.at, "loading:1") != NULL);
    fake_set_mood(server->fake, FAKE_WELL);
    EXPECT(says(server, "PEXPIRE x 5", ":1"));
    fake_set_clock(server->fake, CLOCK_US + 6000);
    EXPECT(holds(server, "x", NULL));
    fake_drop_clients(server->fake);
    EXPECT(server->closed == 1);
    server->connection = fake_accept(server->fake);
}

void
check_replicas(void)
{
    struct server one;
    struct server two;
    struct server same;

    server_open(&one, 7);
    server_open(&two, 8);
    server_open(&same, 7);
    EXPECT(strcmp(fake_run_id(one.fake), fake_run_id(same.fake)) == 0);
    EXPECT(strcmp(fake_run_id(one.fake), fake_run_id(two.fake)) != 0);
    check_lag(&one, &two);
    check_promotion(&one, &two);
    check_restart(&two, &one);
    check_faults(&two);
    server_close(&two); /* before its replica */
    EXPECT(fake_is_replica(one.fake) && fake_replica_lag(one.fake) == 0);
    server_close(&one);
    server_close(&same);
}
