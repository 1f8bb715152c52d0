/*
 * Drawing a plan from a seed, and changing one by hand.
 */
#include "tests/sim/plan.h"

#include "daemon/base/random.h"
#include "daemon/base/slot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALM            8
#define NAME_BYTES      24  /* of a lock */
#define CLIENT_REQUESTS 32  /* unanswered ones of a client, at most */
#define PACE            200 /* deeds of a client while something lasts */
#define TERM_MS         900000
#define DETACHED_TERMS  4     /* the longest lease= with detached=1 */
#define SILENCE_MS      10000 /* as by session.tcp_user_timeout's default */
#define ROLL_STEPS      4
#define ROLL_END_US     1500000 /* a broker that drains is killed by then */

#define FAULT_NAME(name, text) #name,
const char *const fault_names[FAULT_COUNT] = {FAULTS(FAULT_NAME)};
#undef FAULT_NAME

#define FAULT_TEXT(name, text) text,
const char *const fault_texts[FAULT_COUNT] = {FAULTS(FAULT_TEXT)};
#undef FAULT_TEXT

static uint64_t
between(struct random *random, uint64_t low, uint64_t high)
{
    return low + random_below(random, high - low + 1);
}

/* Even over the orders of magnitude between low and high. */
static uint64_t
magnitude(struct random *random, uint64_t low, uint64_t high)
{
    uint64_t top = low;

    while (top < high && random_below(random, 4) != 0)
        top = top * 2 > high ? high : top * 2;
    return between(random, low, top);
}

/* Every other run is free of what a topology cannot promise anything about. */
static void
plan_faults(struct plan *plan, struct random *random)
{
    bool excuses = random_below(random, 4) == 0;
    bool clocks = random_below(random, 4) == 0;

    if (random_below(random, 12) == 0)
        return; /* a quiet run */
    plan->fault_us = magnitude(random, 200000, 20000000);
    for (int i = 0; i < FAULT_COUNT; i++) {
        bool excuse = i >= FAULT_FIRST_EXCUSE && i != FAULT_broker_clock;
        if (random_below(random, 2) == 0 || (excuse && !excuses))
            continue;
        plan->fault_weight[i] = (uint32_t)magnitude(random, 1, 16);
    }
    if (excuses && clocks)
        plan->skew_us = magnitude(random, 10000, 20000000);
    /* Without loss, with clocks that agree, a failover breaks nothing. */
    if (!excuses && random_below(random, 4) == 0)
        plan->fault_weight[FAULT_failover] = 4;
}

/* Each of them in half of the runs. */
static uint32_t
percent(struct random *random, uint32_t most)
{
    if (random_below(random, 2) == 0)
        return 0;
    return (uint32_t)between(random, 1, most);
}

static void
plan_deeds(struct plan *plan, struct random *random)
{
    plan->semaphores = percent(random, 60);
    plan->shares = percent(random, 95);
    plan->several = percent(random, 40);
    plan->nests = percent(random, 60);
    plan->keeps = percent(random, 100);
    plan->watches = percent(random, 60);
    plan->delays = percent(random, 40);
    plan->conflicts = random_below(random, 4) == 0 ? percent(random, 5) : 0;
}

/* By a chance of its own: other runs are as they were before there were any. */
static void
plan_sentinels(struct plan *plan)
{
    struct random random;

    random_init(&random, plan->seed * 2 + 2);
    if (plan->cluster || random_below(&random, 3) != 0)
        return;
    plan->sentinels = random_below(&random, 3) == 0 ? 5 : 3;
    plan->replicas = (uint32_t)between(&random, 1, 2);
}

/* Requests of later versions, in the same way. */
static void
plan_later_deeds(struct plan *plan)
{
    struct random random;

    random_init(&random, plan->seed * 2 + 20);
    plan->detaches = percent(&random, 40);
    plan->parts = percent(&random, 80);
    plan->awaits = percent(&random, 40);
    plan->wants = percent(&random, 80);
    if (plan->semaphores > 0)
        plan->resizes = percent(&random, 60);
}

/* Watches of members, in the same way. Nodes of a quorum have no order. */
static void
plan_members(struct plan *plan)
{
    struct random random;

    random_init(&random, plan->seed * 2 + 36);
    plan->members = !plan->quorum && random_below(&random, 2) == 0;
}

/* Upgrades, in the same way. A quorum has none. */
static void
plan_upgrades(struct plan *plan)
{
    struct random random;

    random_init(&random, plan->seed * 2 + 38);
    plan->upgrades = plan->quorum ? 0 : percent(&random, 60);
}

/* Independent masters, in the same way, but fewer: each costs several times as
 * much. Things that a majority cannot count, or does not know, are left out. */
static void
plan_quorum(struct plan *plan)
{
    struct random random;

    random_init(&random, plan->seed * 2 + 6);
    if (plan->cluster || plan->sentinels > 0 || random_below(&random, 5) != 0)
        return;
    plan->quorum = 1;
    plan->masters = random_below(&random, 2) == 0 ? 3 : 5;
    plan->semaphores = 0;
    plan->conflicts = 0;
}

/* A name that follows the master, in the same way. */
static void
plan_name(struct plan *plan)
{
    struct random random;

    random_init(&random, plan->seed * 2 + 12);
    if (plan->cluster || plan->sentinels > 0 || plan->quorum ||
        random_below(&random, 3) != 0)
        return;
    plan->replicas = (uint32_t)between(&random, 1, 2);
    if (random_below(&random, 2) == 0)
        plan->fault_weight[FAULT_failover] = 4;
}

bool
plan_named(const struct plan *plan)
{
    return plan->replicas > 0 && !plan->cluster && plan->sentinels == 0 &&
           !plan->quorum;
}

/* Brokers that settle bear what others must be excused for: so now and then
 * there is much of it. */
static void
plan_settle(struct plan *plan)
{
    struct random random;

    random_init(&random, plan->seed * 2 + 4);
    if (random_below(&random, 3) == 0)
        return;
    plan->settle_ms = plan->lease_ms;
    plan->strict = plan->replicas > 0 && random_below(&random, 2) == 0;
    /* One may stay with a master that is replaced, and one with the next. */
    if (plan->strict && plan->cluster && plan->replicas == 2)
        plan->replicas = 3;
    if (plan->fault_us == 0 || random_below(&random, 3) != 0)
        return;
    plan->loses = 1;
    plan->fault_weight[FAULT_failover] = 6;
    plan->fault_weight[FAULT_redis_restart] = 6;
}

const char *const setting_names[SETTING_COUNT] = {
#define X(name) #name,
    SETTINGS(X)
#undef X
};

enum setting
plan_setting(const struct plan *plan)
{
    if (plan->quorum)
        return SETTING_quorum;
    if (plan->cluster)
        return plan->strict ? SETTING_cluster_strict : SETTING_cluster;
    if (plan->sentinels > 0)
        return plan->strict ? SETTING_sentinel_strict : SETTING_sentinel;
    return SETTING_single;
}

/* Some run audits, and some of these break what is held for long. */
static void
plan_audits(struct plan *plan)
{
    struct random random;

    random_init(&random, plan->seed * 2 + 8);
    if (random_below(&random, 4) != 0)
        return;
    plan->audit_ms = (uint32_t)magnitude(&random, 300, 10000);
    if (random_below(&random, 3) == 0)
        plan->break_ms =
            (uint32_t)between(&random, plan->lease_ms / 4, 3 * plan->lease_ms);
}

uint64_t
plan_forget_ms(const struct plan *plan)
{
    uint32_t least_ms = plan->lease_ms > 10000 ? 2 * plan->lease_ms : 20000;

    return plan->seed % 8 == 5 ? least_ms : plan->forget_h * UINT64_C(3600000);
}

/* In half of the runs Redis forgets what is unused after the least time. */
uint32_t
plan_idle_ms(const struct plan *plan)
{
    uint32_t least_ms = 5 * plan->lease_ms / 2;

    return plan->seed % 4 < 2 || least_ms > 75000 ? least_ms : 75000;
}

uint64_t
plan_silence_us(const struct plan *plan)
{
    return (uint64_t)plan->silence_ms * 1000 + 2000000;
}

uint64_t
plan_late_us(const struct plan *plan)
{
    uint64_t late_ms = 0;

    if (plan->silence_ms > SILENCE_MS)
        late_ms += plan->silence_ms - SILENCE_MS;
    if (plan->settle_ms > plan->lease_ms)
        late_ms += plan->settle_ms - plan->lease_ms;
    if (plan->detaches > 0)
        late_ms += plan_detached_ms(plan);
    return late_ms * 1000;
}

uint32_t
plan_term_ms(const struct plan *plan)
{
    return plan->lease_ms < TERM_MS ? plan->lease_ms : TERM_MS;
}

uint32_t
plan_detached_ms(const struct plan *plan)
{
    return DETACHED_TERMS * plan_term_ms(plan);
}

bool
plan_settles(const struct plan *plan)
{
    return plan->settle_ms >= plan->lease_ms;
}

/* --- the configuration ---------------------------------------------------- */

#define X(name, key, low, high) key,
const char *const config_names[CONFIG_COUNT] = {CONFIG(X)};
#undef X

#define X(name, key, low, high) low,
const uint32_t config_low[CONFIG_COUNT] = {CONFIG(X)};
#undef X

#define X(name, key, low, high) high,
const uint32_t config_high[CONFIG_COUNT] = {CONFIG(X)};
#undef X

#define X(name, key, low, high) offsetof(struct plan, name),
static const size_t config_offset[CONFIG_COUNT] = {CONFIG(X)};
#undef X

static uint32_t *
config_field(struct plan *plan, int key)
{
    return (uint32_t *)(void *)((char *)plan + config_offset[key]);
}

uint32_t
plan_config(const struct plan *plan, enum config_key key)
{
    return *(const uint32_t *)(const void *)((const char *)plan +
                                             config_offset[key]);
}

/* Values of most runs, beside their own draws. */
static void
config_usual(struct plan *plan)
{
    plan->redis_timeout_ms = 5000;
    plan->connect_timeout_ms = 1000;
    plan->forget_h = 24;
    plan->batch = 64;
    plan->silence_ms = SILENCE_MS;
    plan->stop_grace_ms = 2000;
    plan->line = 4096;
    plan->name = 255;
    plan->outstanding = 64;
    plan->holds = 64;
    plan->output = 1048576;
    plan->tickets = 4096;
    plan->requests = 4096;
    plan->waiters =
        plan->seed % 8 == 3 ? 2 + (uint32_t)(plan->seed / 8 % 6) : 1000;
    plan->audit_keys = 1 + (uint32_t)(plan->seed % 5);
    plan->audit_pause_ms = 10;
    plan->warn_ms = plan->lease_ms;
    plan->wait_ms = 2 * plan->lease_ms;
    plan->slow_ms = 1;
}

static void
plan_base(struct plan *plan, uint64_t seed, uint64_t run_us)
{
    struct random random;

    memset(plan, 0, sizeof(*plan));
    random_init(&random, seed * 2 + 1);
    plan->seed = seed;
    plan->run_us = run_us;
    plan->brokers = (uint32_t)between(&random, 1, 4);
    plan->clients = (uint32_t)magnitude(&random, 2, 24);
    plan->cluster = random_below(&random, 2) == 0;
    plan->masters = plan->cluster ? (uint32_t)between(&random, 1, 3) : 1;
    plan->replicas = plan->cluster ? (uint32_t)random_below(&random, 3) : 0;
    plan_sentinels(plan);
    plan->locks = (uint32_t)magnitude(&random, 1, 16);
    plan->lease_ms = (uint32_t)between(&random, 1000, 10000);
    plan->command_timeout_ms =
        (uint32_t)between(&random, 50, plan->lease_ms / 4);
    plan->think_us = magnitude(&random, 50000, 3000000);
    plan->hold_us = magnitude(&random, 1000, 8000000);
    plan->latency_us = between(&random, 20, 300);
    plan->jitter_us = magnitude(&random, 10, 20000);
    /* There and back it is at most four times as much: half a time-out. */
    if (plan->jitter_us > (uint64_t)plan->command_timeout_ms * 1000 / 8)
        plan->jitter_us = (uint64_t)plan->command_timeout_ms * 1000 / 8;
    plan_faults(plan, &random);
    plan_deeds(plan, &random);
    plan_quorum(plan);
    plan_settle(plan);
    plan_audits(plan);
    config_usual(plan);
    /* Else few holds are there to be moved, or to wait within. */
    if (plan->keeps + plan->nests > 0 && random_below(&random, 2) == 0)
        plan->hold_us = between(&random, 20000, 1000000);
    /* Every other run is calm: what goes wrong then is seldom beside anything
     * else, and more of virtual time is to be had. */
    if (seed % 2 == 1) {
        plan->think_us *= CALM;
        plan->hold_us *= 2;
    }
}

/* The ends of the range are met often, the rest evenly by magnitude. */
static uint32_t
config_value(struct random *random, uint32_t low, uint32_t high)
{
    uint32_t ends = (uint32_t)random_below(random, 6);
    uint32_t from = low > 0 ? low : 1;

    if (ends < 2)
        return ends == 0 ? low : high;
    unsigned doublings = 0;
    while (from << doublings < high >> 1 && doublings < 31)
        doublings++;
    uint64_t most = (uint64_t)from << random_below(random, doublings + 2);
    return (uint32_t)between(random, from, most < high ? most : high);
}

static void
at_least(uint32_t *value, uint32_t least)
{
    if (*value < least)
        *value = least;
}

/* Clients that never ask for more than a limit allows are not to meet it. */
static void
config_fit_limits(struct plan *plan)
{
    at_least(&plan->name, NAME_BYTES);
    at_least(&plan->outstanding, CLIENT_REQUESTS);
    at_least(&plan->holds, CLIENT_REQUESTS);
    at_least(&plan->tickets, CLIENT_REQUESTS * plan->clients);
    at_least(&plan->requests, CLIENT_REQUESTS * plan->clients);
}

/* Waits of an hour are for clients that do little. */
static void
config_fit_pace(struct plan *plan)
{
    uint64_t longest_ms = plan->lease_ms;

    if (longest_ms < plan->silence_ms)
        longest_ms = plan->silence_ms;
    if (longest_ms < plan->settle_ms)
        longest_ms = plan->settle_ms;
    if (plan->think_us < longest_ms * 1000 / PACE)
        plan->think_us = longest_ms * 1000 / PACE;
    if (plan->audit_ms > 0 && plan->audit_ms < longest_ms / PACE)
        plan->audit_ms = (uint32_t)(longest_ms / PACE);
}

/* Packets have time to arrive. */
static void
config_fit_jitter(struct plan *plan)
{
    uint64_t least_ms = plan->command_timeout_ms < plan->connect_timeout_ms
                            ? plan->command_timeout_ms
                            : plan->connect_timeout_ms;

    if (plan->jitter_us > least_ms * 1000 / 8)
        plan->jitter_us = least_ms * 1000 / 8;
}

/* The loader refuses other values. */
static void
config_fit(struct plan *plan)
{
    config_fit_limits(plan);
    config_fit_pace(plan);
    if (plan->command_timeout_ms * 3 >= plan->lease_ms)
        plan->command_timeout_ms = (plan->lease_ms - 1) / 3;
    uint64_t ten_leases_h = ((uint64_t)plan->lease_ms * 10 - 1) / 3600000 + 1;
    if (plan->forget_h < ten_leases_h)
        plan->forget_h = (uint32_t)ten_leases_h;
    /* No grant waits for more replicas than there are. */
    if (plan->strict == 0)
        plan->least_replicas = 0;
    else if (plan->least_replicas > plan->replicas)
        plan->least_replicas = plan->replicas;
    config_fit_jitter(plan);
}

/* Every other run has the usual configuration; the others have some keys that
 * are drawn from their whole ranges. By a chance of its own. */
static void
plan_configure(struct plan *plan)
{
    struct random random;
    bool settles = plan->settle_ms > 0;

    random_init(&random, plan->seed * 2 + 10);
    if (random_below(&random, 2) == 0)
        return;
    for (int i = 0; i < CONFIG_COUNT; i++) {
        uint32_t value = config_value(&random, config_low[i], config_high[i]);
        if (random_below(&random, 4) != 0)
            continue;
        *config_field(plan, i) = value;
        if (i == CONFIG_lease_ms && settles)
            plan->settle_ms = value;
    }
    config_fit(plan);
}

uint64_t
plan_roll_us(const struct plan *plan)
{
    return plan->run_us / (ROLL_STEPS + 1);
}

/* A step takes a third of its time, and the longer lease is waited for. */
bool
plan_rolls(const struct plan *plan)
{
    return plan->rolls > 0 && plan->short_ms > 0 &&
           plan->settle_ms == plan->lease_ms &&
           (uint64_t)plan->lease_ms * 1000 + ROLL_END_US <=
               plan_roll_us(plan) * 2 / 3;
}

uint32_t
plan_least_lease_ms(const struct plan *plan)
{
    return plan_rolls(plan) ? plan->short_ms : plan->lease_ms;
}

/* Brokers that tell one another of their leases, in the same way. Now and then
 * lease.default changes among cut-off brokers and a Redis that forgets. */
static void
plan_peers(struct plan *plan)
{
    struct random random;
    uint32_t most_ms = plan->lease_ms / 2;

    random_init(&random, plan->seed * 2 + 18);
    if (!plan_settles(plan) || random_below(&random, 4) != 0)
        return;
    plan->peers = 1;
    if (most_ms < config_low[CONFIG_lease_ms])
        return;
    /* The shorter one leaves room for three calls, too. */
    if (plan->command_timeout_ms > most_ms / 4)
        plan->command_timeout_ms = most_ms / 4;
    config_fit_jitter(plan);
    uint32_t least_ms = 3 * plan->command_timeout_ms + 1;
    at_least(&least_ms, config_low[CONFIG_lease_ms]);
    plan->short_ms = (uint32_t)between(&random, least_ms, most_ms);
    plan->rolls = (uint32_t)random_below(&random, 2);
    if (!plan_rolls(plan))
        return;
    plan->loses = 1;
    plan->fault_weight[FAULT_redis_restart] = 6;
    plan->fault_weight[FAULT_partition] = 6;
}

void
plan_draw(struct plan *plan, uint64_t seed, uint64_t run_us)
{
    plan_base(plan, seed, run_us);
    plan_configure(plan);
    plan_name(plan);
    plan_peers(plan);
    plan_later_deeds(plan);
    plan_members(plan);
    plan_upgrades(plan);
}

/* --- locks ---------------------------------------------------------------- */

struct lock_name {
    char text[NAME_BYTES];
    size_t len;
};

static uint16_t
lock_name_set(struct lock_name *name, uint32_t lock, uint32_t suffix)
{
    int len = suffix == 0 ? snprintf(name->text, sizeof(name->text),
                                "lock-%" PRIu32, lock)
                          : snprintf(name->text, sizeof(name->text),
                                "lock-%" PRIu32 ".%" PRIu32, lock, suffix);

    name->len = (size_t)len;
    return slot_of_key(text_make(name->text, name->len));
}

static const char *const tree_names[] = {
    "t", "t/a", "t/b", "t/a/1", "t/a/2", "t/b/1", "t/a/1/x", "t/a/1/y"};

_Static_assert(
    sizeof(tree_names) / sizeof(tree_names[0]) == PLAN_TREE_END - PLAN_TREE,
    "each lock of the tree has a name");

uint32_t
plan_lock_count(const struct plan *plan)
{
    return plan->trees > 0 && plan->locks < PLAN_TREE_END ? PLAN_TREE_END
                                                          : plan->locks;
}

bool
plan_lock_has_part(uint32_t lock, uint32_t part)
{
    if (!plan_lock_is_tree(lock) || !plan_lock_is_tree(part))
        return false;
    const char *whole = tree_names[lock - PLAN_TREE];
    const char *name = tree_names[part - PLAN_TREE];
    size_t len = strlen(whole);
    return strncmp(name, whole, len) == 0 && name[len] == '/';
}

/* They are the same in every run, and looked for once. */
static const struct lock_name *
lock_names(void)
{
    static struct lock_name names[PLAN_LOCKS_MAX];
    uint16_t slot = 0;

    for (uint32_t i = 0;
         names[PLAN_LOCKS_MAX - 1].len == 0 && i < PLAN_LOCKS_MAX; i++) {
        uint32_t suffix = 0;
        if (i % 3 == 1)
            while (lock_name_set(&names[i], i, ++suffix) != slot)
                continue;
        else
            slot = lock_name_set(&names[i], i, 0);
    }
    for (uint32_t i = PLAN_TREE; i < PLAN_TREE_END; i++) {
        const char *text = tree_names[i - PLAN_TREE];
        names[i].len = strlen(text);
        memcpy(names[i].text, text, names[i].len + 1);
    }
    return names;
}

const char *
plan_lock_name(uint32_t lock)
{
    return lock_names()[lock].text;
}

bool
plan_lock_of(const char *name, size_t len, uint32_t locks, uint32_t *lock)
{
    uint32_t number = 0;

    for (uint32_t i = PLAN_TREE; i < PLAN_TREE_END && i < locks; i++)
        if (text_equal(
                text_make(name, len), text_from(tree_names[i - PLAN_TREE]))) {
            *lock = i;
            return true;
        }
    for (size_t i = 5; i < len && name[i] >= '0' && name[i] <= '9'; i++)
        number = number < PLAN_LOCKS_MAX
                     ? 10 * number + (uint32_t)(name[i] - '0')
                     : number;
    if (number >= locks || number >= PLAN_LOCKS_MAX)
        return false;
    *lock = number;
    const struct lock_name *found = &lock_names()[number];
    return found->len == len && memcmp(found->text, name, len) == 0;
}

uint32_t
plan_lock_limit(const struct plan *plan, uint32_t lock)
{
    struct random random;

    random_init(&random, plan->seed * PLAN_LOCKS_MAX + lock);
    if (plan->trees > 0 && plan_lock_is_tree(lock))
        return 0;
    if (random_below(&random, 100) >= plan->semaphores)
        return 0;
    return (uint32_t)magnitude(&random, 1, 12);
}

/* --- people --------------------------------------------------------------- */

void
plan_print(const struct plan *plan)
{
    printf(
        "seed=%" PRIu64 " run=%.1fs brokers=%u clients=%u masters=%u "
        "replicas=%u cluster=%d sentinels=%u locks=%u think=%.1fms hold=%.1fms "
        "latency=%" PRIu64 "us jitter=%" PRIu64
        "us skew=%.1fms fault=%.1fms\n%%: semaphores=%u shares=%u "
        "several=%u nests=%u keeps=%u watches=%u delays=%u conflicts=%u "
        "detaches=%u parts=%u awaits=%u wants=%u members=%u resizes=%u "
        "upgrades=%u trees=%u rests=%u\n"
        "leases: peers=%u short_ms=%u rolls=%u\n"
        "faults:",
        plan->seed, (double)plan->run_us / 1e6, plan->brokers, plan->clients,
        plan->masters, plan->replicas, plan->cluster, plan->sentinels,
        plan->locks, (double)plan->think_us / 1e3, (double)plan->hold_us / 1e3,
        plan->latency_us, plan->jitter_us, (double)plan->skew_us / 1e3,
        (double)plan->fault_us / 1e3, plan->semaphores, plan->shares,
        plan->several, plan->nests, plan->keeps, plan->watches, plan->delays,
        plan->conflicts, plan->detaches, plan->parts, plan->awaits, plan->wants,
        plan->members, plan->resizes, plan->upgrades, plan->trees, plan->rests,
        plan->peers, plan->short_ms, plan->rolls);
    for (int i = 0; i < FAULT_COUNT; i++)
        if (plan->fault_weight[i] > 0)
            printf(" %s=%u", fault_names[i], plan->fault_weight[i]);
    printf("\nconfiguration:");
#define X(name, key, low, high) printf(" " #name "=%u", plan->name);
    CONFIG(X)
#undef X
    printf("\n");
}

/* --- by hand -------------------------------------------------------------- */

#define KEYS(X)   \
    X(brokers)    \
    X(clients)    \
    X(masters)    \
    X(replicas)   \
    X(sentinels)  \
    X(quorum)     \
    X(locks)      \
    X(strict)     \
    X(loses)      \
    X(peers)      \
    X(short_ms)   \
    X(rolls)      \
    X(think_us)   \
    X(hold_us)    \
    X(latency_us) \
    X(jitter_us)  \
    X(skew_us)    \
    X(fault_us)   \
    X(semaphores) \
    X(shares)     \
    X(several)    \
    X(nests)      \
    X(keeps)      \
    X(watches)    \
    X(members)    \
    X(delays)     \
    X(conflicts)  \
    X(detaches)   \
    X(parts)      \
    X(awaits)     \
    X(wants)      \
    X(resizes)    \
    X(upgrades)   \
    X(trees)      \
    X(rests)      \
    X(run_us)

static bool
plan_set_one(struct plan *plan, const char *key, size_t len, uint64_t value)
{
#define KEY(name, ...)                                           \
    if (strlen(#name) == len && strncmp(#name, key, len) == 0) { \
        plan->name = (__typeof__(plan->name))value;              \
        return true;                                             \
    }
    KEYS(KEY)
    CONFIG(KEY)
#undef KEY
    if (len == 7 && strncmp(key, "cluster", len) == 0) {
        plan->cluster = value != 0;
        return true;
    }
    for (int i = 0; i < FAULT_COUNT; i++)
        if (strlen(fault_names[i]) == len &&
            strncmp(fault_names[i], key, len) == 0) {
            plan->fault_weight[i] = (uint32_t)value;
            return true;
        }
    if (len == 5 && strncmp(key, "usual", len) == 0) {
        plan_base(plan, plan->seed, plan->run_us);
        return true;
    }
    if (len == 6 && strncmp(key, "faults", len) == 0) {
        memset(plan->fault_weight, 0, sizeof(plan->fault_weight));
        return true;
    }
    return false;
}

bool
plan_set(struct plan *plan, const char *text)
{
    while (*text != '\0') {
        const char *equals = strchr(text, '=');
        char *end;
        if (equals == NULL)
            return false;
        uint64_t value = strtoull(equals + 1, &end, 10);
        if (end == equals + 1 || (*end != '\0' && *end != ',') ||
            !plan_set_one(plan, text, (size_t)(equals - text), value))
            return false;
        text = *end == ',' ? end + 1 : end;
    }
    if (!plan->cluster && !plan->quorum)
        plan->masters = 1;
    return plan->brokers > 0 && plan->brokers <= 8 && plan->clients > 0 &&
           plan->clients <= 40 && plan->masters > 0 && plan->masters <= 5 &&
           plan->replicas <= 3 && plan->locks > 0 &&
           (plan->sentinels == 0 || (!plan->cluster && plan->masters == 1)) &&
           plan->sentinels <= 7 && plan->locks <= PLAN_LOCKS_MAX;
}

/* Adds "key=value" to `out` where the two differ. */
static void
difference(
    char *out, size_t out_bytes, const char *key, uint64_t now, uint64_t was)
{
    size_t len = strlen(out);

    if (now != was)
        snprintf(out + len, out_bytes - len, "%s%s=%" PRIu64,
            len > 0 ? "," : "", key, now);
}

void
plan_difference(
    const struct plan *plan, const struct plan *from, char *out, size_t bytes)
{
    out[0] = '\0';
#define KEY(name, ...) difference(out, bytes, #name, plan->name, from->name);
    KEYS(KEY)
    CONFIG(KEY)
#undef KEY
    difference(out, bytes, "cluster", plan->cluster, from->cluster);
    for (int i = 0; i < FAULT_COUNT; i++)
        difference(out, bytes, fault_names[i], plan->fault_weight[i],
            from->fault_weight[i]);
}
