/*
 * The cluster part of fake_check.c: commands to any node for any key, while
 * slots migrate key by key: MOVED, ASK, TRYAGAIN, CROSSSLOT, and what ASKING
 * lets through.
 *
 * The real cluster's masters were given their slots evenly, in the order of the
 * addresses, have no replicas, and serve what they have also where a slot is
 * nobody's. A command changes the map of each node. The nodes must not hear
 * each other on the bus: a packet that was on its way could take back a change
 * that a command has just made.
 */
#include "tests/sim/fake_check.h"

#include "daemon/base/slot.h"

#include <inttypes.h>

#define NODES_MAX 8
#define TAGS      6
#define BATCH     60

/* The slot of a tag, and where it is going. */
struct tag {
    uint16_t slot;
    size_t owner;
    size_t target; /* the owner: nowhere */
};

struct cluster_check {
    struct check *check;
    struct node nodes[NODES_MAX];
    size_t count;
    struct tag tags[TAGS];
};

static const char *const tag_names[TAGS] = {
    "a", "b", "c", "holdfast", "1", "22"};

static struct lane *
lane_of_node(struct cluster_check *cluster, size_t index)
{
    return cluster->nodes[index].lanes[0];
}

static void
expect_ok(const char *reply)
{
    if (strncmp(reply, "+OK", 3) != 0 && strncmp(reply, "+NOKEY", 6) != 0)
        check_fail("the real cluster says %s", reply);
}

/* Opens the nodes, and makes the fakes know each other as the real ones do. */
static void
cluster_open(struct cluster_check *cluster, char **addresses)
{
    char id[41];

    for (size_t i = 0; i < cluster->count; i++) {
        node_open(cluster->check, &cluster->nodes[i], addresses[i], true);
        const char *reply =
            real_command(lane_of_node(cluster, i), "CLUSTER MYID");
        if (strlen(reply) < 45 || reply[0] != '$')
            check_fail("no node of a cluster: %s", addresses[i]);
        memcpy(id, reply + 5, 40);
        id[40] = '\0';
        fake_set_node_id(cluster->nodes[i].fake, id);
    }
    for (size_t i = 0; i < cluster->count; i++)
        for (size_t j = 0; j < FAKE_SLOTS; j++) {
            size_t owner = ((j + 1) * cluster->count - 1) / FAKE_SLOTS;
            fake_map_slot(cluster->nodes[i].fake, (uint16_t)j,
                cluster->nodes[owner].fake);
        }
    for (size_t i = 0; i < TAGS; i++) {
        struct tag *tag = &cluster->tags[i];
        tag->slot = slot_of_key(text_from(tag_names[i]));
        tag->owner =
            ((size_t)(tag->slot + 1) * cluster->count - 1) / FAKE_SLOTS;
        tag->target = tag->owner;
    }
}

/* --- commands ------------------------------------------------------------- */

static void
add_key(struct check *check, uint64_t tag)
{
    static const char *const ends[] = {"", "x", "y", "z"};

    words_format(
        &check->words, "{%s}%s", tag_names[tag], ends[check_below(check, 4)]);
}

/* Some keys, mostly of one slot. */
static void
add_keys(struct check *check, uint64_t most)
{
    uint64_t tag = check_below(check, TAGS);

    for (uint64_t i = 1 + check_below(check, most); i > 0; i--) {
        if (check_chance(check, 5))
            tag = check_below(check, TAGS);
        add_key(check, tag);
    }
}

static void
make_eval(struct check *check)
{
    static const char *const bodies[] = {"return redis.call('GET', KEYS[1])",
        "return redis.call('SET', KEYS[1], 'v')",
        "#!lua\nreturn redis.call('GET', '{a}x')",
        "return redis.pcall('SET', '{b}y', 1)",
        "#!lua\nreturn {redis.pcall('GET', '{a}'), redis.pcall('GET', '{b}')}",
        "#!lua flags=allow-cross-slot-keys\n"
        "return {redis.pcall('GET', '{a}'), redis.pcall('GET', '{1}')}",
        "#!lua flags=no-cluster\nreturn 1",
        "#!lua flags=no-writes\nreturn redis.pcall('EXISTS', KEYS[1], '{c}')",
        "local r = {} for i = 1, #KEYS do r[i] = redis.pcall('APPEND', "
        "KEYS[i], 'x') end return r"};
    struct words *words = &check->words;
    uint64_t keys = check_below(check, 4);
    uint64_t tag = check_below(check, TAGS);

    words_string(words, "EVAL");
    words_string(
        words, bodies[check_below(check, sizeof(bodies) / sizeof(*bodies))]);
    words_format(words, "%" PRIu64, keys);
    for (uint64_t i = 0; i < keys; i++)
        add_key(
            check, check_chance(check, 95) ? tag : check_below(check, TAGS));
}

static void
make_cluster_command(struct check *check)
{
    struct words *words = &check->words;

    words_begin(words);
    switch (check_below(check, 12)) {
    case 0:
    case 1:
        words_string(words, "SET");
        add_keys(check, 1);
        words_string(words, "value");
        break;
    case 2:
        words_string(words, "GET");
        add_keys(check, 1);
        break;
    case 3:
        words_string(words, "DEL");
        add_keys(check, 3);
        break;
    case 4:
        words_string(words, "EXISTS");
        add_keys(check, 4);
        break;
    case 5:
        words_string(words, "MGET");
        add_keys(check, 4);
        break;
    case 6:
    case 7:
    case 8:
        make_eval(check);
        break;
    case 9:
        words_string(words, "CLUSTER");
        words_string(words, check_chance(check, 20) ? "SLOTS" : "KEYSLOT");
        if (words->word[1].len == 7)
            add_keys(check, 1);
        break;
    case 10:
        words_string(words, check_chance(check, 50) ? "READONLY" : "READWRITE");
        break;
    default:
        words_string(words, "APPEND");
        add_keys(check, 1);
        words_string(words, "more");
        break;
    }
}

static void
run_batch(struct cluster_check *cluster, size_t index)
{
    struct check *check = cluster->check;
    struct lane *lane = lane_of_node(cluster, index);

    fake_set_clock(lane->fake, clock_us());
    for (int i = 0; i < BATCH; i++) {
        if (check_chance(check, 25)) {
            words_begin(&check->words);
            words_string(&check->words, "ASKING");
            lane_ask(check, lane);
        }
        if (check_chance(check, 80))
            make_cluster_command(check);
        else
            make_command(check, lane->fake);
        lane_ask(check, lane);
    }
    lane_send(lane);
    lane_compare(check, lane);
}

/* --- slots on their way --------------------------------------------------- */

static void
slot_open(struct cluster_check *cluster, struct tag *tag)
{
    size_t shift = 1 + check_below(cluster->check, cluster->count - 1);

    tag->target = (tag->owner + shift) % cluster->count;
    struct fake *from = cluster->nodes[tag->owner].fake;
    struct fake *to = cluster->nodes[tag->target].fake;
    expect_ok(real_command(lane_of_node(cluster, tag->target),
        "CLUSTER SETSLOT %u IMPORTING %s", (unsigned)tag->slot,
        fake_node_id(from)));
    expect_ok(real_command(lane_of_node(cluster, tag->owner),
        "CLUSTER SETSLOT %u MIGRATING %s", (unsigned)tag->slot,
        fake_node_id(to)));
    fake_importing(to, tag->slot, from);
    fake_migrating(from, tag->slot, to);
}

/* The first key of the slot, at both; false: there is none. */
static bool
slot_move_key(struct cluster_check *cluster, const struct tag *tag)
{
    struct fake *from = cluster->nodes[tag->owner].fake;
    struct node *to = &cluster->nodes[tag->target];
    const char *name;
    const char *value;
    size_t len;
    size_t value_len;

    for (size_t i = 0; fake_key(from, i, &name, &len, &value, &value_len);
         i++) {
        if (slot_of_key(text_make(name, len)) != tag->slot)
            continue;
        expect_ok(real_command(lane_of_node(cluster, tag->owner),
            "MIGRATE %s %u %.*s 0 5000 REPLACE", to->host, (unsigned)to->port,
            (int)len, name));
        unsigned moved = fake_move_keys(from, to->fake, tag->slot, 1);
        require(moved == 1);
        return true;
    }
    return false;
}

static void
slot_close(struct cluster_check *cluster, struct tag *tag)
{
    struct fake *to = cluster->nodes[tag->target].fake;

    while (slot_move_key(cluster, tag))
        continue;
    for (size_t i = 0; i < cluster->count; i++) {
        size_t index = (tag->target + i) % cluster->count;
        expect_ok(real_command(lane_of_node(cluster, index),
            "CLUSTER SETSLOT %u NODE %s", (unsigned)tag->slot,
            fake_node_id(to)));
        fake_map_slot(cluster->nodes[index].fake, tag->slot, to);
    }
    fake_importing(to, tag->slot, NULL);
    fake_migrating(cluster->nodes[tag->owner].fake, tag->slot, NULL);
    tag->owner = tag->target;
}

/* The owner forgets a slot for one batch. */
static void
slot_drop(struct cluster_check *cluster, const struct tag *tag)
{
    struct lane *lane = lane_of_node(cluster, tag->owner);

    expect_ok(real_command(lane, "CLUSTER DELSLOTS %u", (unsigned)tag->slot));
    fake_map_slot(lane->fake, tag->slot, NULL);
    run_batch(cluster, tag->owner);
    expect_ok(real_command(lane, "CLUSTER ADDSLOTS %u", (unsigned)tag->slot));
    fake_map_slot(lane->fake, tag->slot, lane->fake);
}

static void
slot_step(struct cluster_check *cluster)
{
    struct check *check = cluster->check;
    struct tag *tag = &cluster->tags[check_below(check, TAGS)];

    if (tag->target == tag->owner) {
        if (check_chance(check, 20))
            slot_drop(cluster, tag);
        else
            slot_open(cluster, tag);
    } else if (check_chance(check, 60)) {
        slot_move_key(cluster, tag);
    } else {
        slot_close(cluster, tag);
    }
}

void
check_cluster(struct check *check, char **addresses, size_t count)
{
    struct cluster_check cluster = {.check = check, .count = count};

    if (count < 2 || count > NODES_MAX)
        check_fail("a cluster of %zu nodes", count);
    check->in_cluster = true;
    cluster_open(&cluster, addresses);
    while (check->made < check->count) {
        for (size_t i = 0; i < count; i++)
            run_batch(&cluster, i);
        slot_step(&cluster);
        if (check_chance(check, 2))
            for (size_t i = 0; i < count; i++) {
                expect_ok(
                    real_command(lane_of_node(&cluster, i), "SCRIPT FLUSH"));
                fake_script_flush(cluster.nodes[i].fake);
            }
    }
    for (size_t i = 0; i < count; i++)
        node_close(&cluster.nodes[i]);
}
