/*
 * Cores before one fake Redis; see core_net.h. What the records do follows
 * lua/record.lua and the scripts beside it, name by name.
 */
#include "tests/unit/core_net.h"

#include "daemon/core/model/state.h"
#include "daemon/op/op_audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACK_US 1500000 /* after a hold that comes back nobody is granted it */

unsigned
net_pick(struct net *net, unsigned bound)
{
    return (unsigned)random_below(&net->random, bound);
}

/* --- the trace ------------------------------------------------------------ */

void
net_trace(const struct net *net, unsigned core, unsigned session,
    const char *way, const char *line)
{
    if (net->traced)
        printf("%10.3f core %u session %2u %s %s\n", (double)net->now_us / 1e6,
            core, session, way, line);
}

static void
trace_op(const struct net *net, const struct net_job *job, const char *what)
{
    static const char *const kinds[] = {
#define OP(id, word, ...) [OP_##id] = (word),
#include "daemon/op/op.def"
    };
    const struct op *op = &job->asked;

    if (net->traced)
        printf("%10.3f core %u %s %s %c session=%02x%02x gen=%u request=%llx "
               "fence=%llu%s%s%s%s: status %d fence=%llu ttl=%u\n",
            (double)net->now_us / 1e6, job->core, what, kinds[op->kind],
            'a' + job->lock, op->session[7], op->session[8], op->generation,
            (unsigned long long)op->request, (unsigned long long)op->fence,
            op->moves ? " moves" : "", op->shares ? " shares" : "",
            op->retry ? " again" : "", op->no_queue ? " now" : "",
            job->result.status, (unsigned long long)job->result.fence,
            job->result.ttl_ms);
}

/* --- jobs ----------------------------------------------------------------- */

static struct net_job *
job_new(struct net *net, enum net_job_kind kind, unsigned core)
{
    struct net_job *job = calloc(1, sizeof(*job));

    rig_must(job != NULL && net->job_count < NET_JOBS);
    job->kind = kind;
    job->core = core;
    job->life = net->lives[core];
    memcpy(job->broker, net->rigs[core]->settings.broker_id, 9);
    net->jobs[net->job_count++] = job;
    return job;
}

static void
job_free(struct net *net, struct net_job *job)
{
    unsigned i = 0;

    while (net->jobs[i] != job)
        i++;
    net->jobs[i] = net->jobs[--net->job_count];
    free(job->tickets);
    free(job->news);
    free(job);
}

/* The core that calls itself so; NET_CORES: none does. */
static unsigned
core_of(const struct net *net, const char *broker)
{
    unsigned core = 0;

    while (core < net->cores &&
           memcmp(net->rigs[core]->settings.broker_id, broker, 8) != 0)
        core++;
    return core < net->cores ? core : NET_CORES;
}

/* A message on its way to a core, which may lose it; NULL: nobody hears it. */
static struct net_job *
message(struct net *net, enum net_job_kind kind, unsigned core)
{
    if (core == NET_CORES || (net->deaf > 0 && net_pick(net, net->deaf) == 0))
        return NULL;
    struct net_job *job = job_new(net, kind, core);
    job->executed = true;
    job->answer_us = net->now_us + 1 + net_pick(net, net->way_us);
    return job;
}

static void
tell_core(struct net *net, const struct net_entry *entry, bool broken)
{
    struct net_job *job = message(
        net, broken ? NET_BROKEN : NET_HINT, core_of(net, entry->broker));

    if (job == NULL)
        return;
    job->request = entry->request;
    job->fence = entry->fence;
}

static void
publish(struct net *net, unsigned core, const char *bytes, size_t len)
{
    struct net_job *job = message(net, NET_NEWS, core);

    if (job == NULL)
        return;
    job->news = malloc(len);
    rig_must(job->news != NULL);
    memcpy(job->news, bytes, len);
    job->news_len = len;
}

/* --- records -------------------------------------------------------------- */

static void
strike(struct net_record *record, unsigned place)
{
    record->news = record->news || record->queue[place].granted;
    record->count--;
    memmove(&record->queue[place], &record->queue[place + 1],
        (record->count - place) * sizeof(record->queue[0]));
}

static unsigned
granted(const struct net_record *record, uint32_t *used, bool *shared)
{
    unsigned count = 0;

    *used = 0;
    *shared = true;
    for (unsigned i = 0; i < record->count; i++) {
        if (!record->queue[i].granted)
            continue;
        count++;
        *used += record->queue[i].permits;
        *shared = *shared && record->queue[i].shared;
    }
    return count;
}

static void
suspend(struct net_record *record, const char *broker)
{
    for (unsigned i = 0; i < record->count; i++)
        if (!record->queue[i].granted &&
            memcmp(record->queue[i].broker, broker, 8) == 0)
            record->queue[i].suspended = true;
}

static void
expire(const struct net *net, struct net_record *record)
{
    for (unsigned i = 0; i < record->count;) {
        struct net_entry entry = record->queue[i];
        uint64_t delay_us = entry.ends_us + 1000 * (uint64_t)entry.delay_ms;
        if (entry.ends_us > net->now_us) {
            i++;
            continue;
        }
        strike(record, i);
        if (!entry.granted)
            continue;
        if (!entry.claimed)
            suspend(record, entry.broker);
        else if (entry.delay_ms > 0 && delay_us > record->delay_until_us)
            record->delay_until_us = delay_us;
    }
}

static bool
compatible(const struct net_record *record, const struct net_entry *entry)
{
    uint32_t used;
    bool shared;
    unsigned count = granted(record, &used, &shared);

    if (record->limit > 0)
        return used + entry->permits <= record->limit;
    return count == 0 || (entry->shared && shared);
}

static bool
request(const struct net *net, const struct net_record *record)
{
    return net->now_us < record->request_until_us;
}

static bool
barred(const struct net *net, const struct net_record *record)
{
    return request(net, record) || net->now_us < record->delay_until_us;
}

/* Whether a ticket that is not there may have been lost. */
static bool
bereft(const struct net *net, const struct net_record *record, uint64_t fence)
{
    return request(net, record) ||
           (fence == 0 && net->now_us < record->bereft_until_us);
}

static bool
sole(const struct net_record *record, const struct net_entry *entry)
{
    return record->limit == 0 && !entry->shared;
}

/* A failover: about half of what stands there is lost. What was handed to a
 * broker that has not said so yet is no grant any more. */
static void
lose(struct net *net, struct net_record *record)
{
    uint64_t lease_us = 1000 * (uint64_t)net->rigs[0]->settings.lease_ms;

    for (unsigned i = record->count; i > 0; i--) {
        struct net_entry *entry = &record->queue[i - 1];
        if (net_pick(net, 2) == 0) {
            strike(record, i - 1);
            net->lost++;
        } else if (entry->granted && !entry->claimed) {
            entry->granted = false;
            entry->fence = 0;
            entry->ends_us = net->now_us + 1000 * (uint64_t)entry->lease_ms;
            record->news = true;
        }
    }
    record->request_until_us = record->bereft_until_us = net->now_us + lease_us;
    record->over = 0;
    for (unsigned core = 0; core < net->cores; core++)
        (void)message(net, NET_CHANGED, core);
}

/* From now on its broker's hold. */
static void
hold(const struct net *net, struct net_entry *entry)
{
    uint64_t term_us = 1000 * (uint64_t)entry->lease_ms;

    entry->claimed = true;
    if (entry->hold_ms > 0) {
        entry->hold_end_us = net->now_us + 1000 * entry->hold_ms;
        if (1000 * entry->hold_ms < term_us)
            term_us = 1000 * entry->hold_ms;
        entry->hold_ms = 0;
    }
    entry->ends_us = net->now_us + term_us;
}

static void
grant(struct net *net, struct net_record *record, struct net_job *job,
    struct net_entry *entry, const struct net_entry *own)
{
    bool ours = memcmp(entry->broker, job->broker, 8) == 0;

    entry->granted = true;
    entry->fence = ++record->fence;
    entry->since_us = net->now_us;
    record->news = true;
    if (ours) {
        hold(net, entry);
        if (entry == own)
            return;
        job->grants[job->result.grant_count++] =
            (struct op_grant){.request = entry->request,
                .fence = entry->fence,
                .arrival = entry->arrival,
                .ttl_ms = (uint32_t)((entry->ends_us - net->now_us) / 1000)};
        return;
    }
    entry->ends_us = net->now_us + 1000 * (uint64_t)net->lapse_ms;
    job->result.handed = true;
    tell_core(net, entry, false);
}

/* Extends the grants; whether somebody is left waiting who bars the others. */
static bool
serve(struct net *net, struct net_record *record, struct net_job *job,
    const struct net_entry *own)
{
    bool some = false;

    job->result.grants = job->grants;
    for (unsigned i = 0; i < record->count; i++) {
        struct net_entry *entry = &record->queue[i];
        if (entry->granted)
            continue;
        some = true;
        if (barred(net, record))
            return true;
        if (entry->suspended)
            continue;
        if (!compatible(record, entry))
            return true;
        grant(net, record, job, entry, own);
    }
    return some && barred(net, record);
}

static void
record_store(struct net *net, unsigned lock)
{
    struct net_record *record = &net->records[lock];
    char news[40];

    if (record->count == 0)
        record->limit = 0;
    if (net->now_us < record->watched_until_us && record->news) {
        int len = snprintf(news, sizeof(news), "Wholdfast:{%c}", 'a' + lock);
        for (unsigned core = 0; core < net->cores; core++)
            publish(net, core, news, (size_t)len);
    }
    record->news = false;
}

static bool
same_identity(const struct net_entry *entry, const struct op *op)
{
    return entry->request == op->request &&
           entry->generation == op->generation &&
           memcmp(entry->session, op->session, 16) == 0 &&
           memcmp(entry->owner_hash, op->owner_hash, 8) == 0;
}

static struct net_entry *
ticket_of(struct net_record *record, const struct op *op)
{
    for (unsigned i = 0; i < record->count; i++)
        if (same_identity(&record->queue[i], op))
            return &record->queue[i];
    return NULL;
}

/* Of whatever generation; `fence` 0: any. */
static struct net_entry *
ticket_of_session(
    struct net_record *record, const struct op *op, uint64_t fence)
{
    for (unsigned i = 0; i < record->count; i++) {
        struct net_entry *entry = &record->queue[i];
        if (memcmp(entry->session, op->session, 16) == 0 &&
            memcmp(entry->owner_hash, op->owner_hash, 8) == 0 &&
            (fence == 0 || entry->fence == fence))
            return entry;
    }
    return NULL;
}

static bool
ticket_move(struct net_entry *entry, const struct net_job *job)
{
    const struct op *op = &job->asked;

    if (entry->generation > op->generation ||
        (entry->generation == op->generation &&
            memcmp(entry->broker, job->broker, 8) != 0))
        return false;
    entry->generation = op->generation;
    entry->request = op->request;
    memcpy(entry->broker, job->broker, 8);
    return true;
}

/* --- operations ----------------------------------------------------------- */

/* Who is in the way; what is made up is the same for all. */
static void
tell(const struct net_record *record, struct net_job *job)
{
    job->result.ahead = 1;
    for (unsigned i = 0; i < record->count; i++)
        job->result.told = job->result.told || record->queue[i].granted;
    job->result.typical_ms = 100;
    job->result.holder_client = TEXT("somebody");
}

static void
result_of(struct net *net, const struct net_record *record, struct net_job *job,
    const struct net_entry *entry)
{
    struct op_result *result = &job->result;
    uint64_t left_us = entry->ends_us - net->now_us;

    result->status = entry->granted ? OP_OK : OP_WAITING;
    result->fence = entry->granted ? entry->fence : 0;
    result->arrival = entry->arrival;
    result->ttl_ms = (uint32_t)(left_us / 1000);
    result->again_ms = 50 + net_pick(net, entry->lease_ms);
    if (!entry->granted && request(net, record)) {
        result->unsettled = true;
        result->again_ms =
            (uint32_t)((record->request_until_us - net->now_us) / 1000 + 1);
    }
    if (!entry->granted && job->asked.tell)
        tell(record, job);
}

/* When whoever has no ticket there must ask, where a lock-delay keeps those out
 * that wait. */
static uint32_t
ask_later(const struct net *net, const struct net_record *record)
{
    uint32_t used;
    bool shared;
    uint64_t until_us = record->delay_until_us > record->request_until_us
                            ? record->delay_until_us
                            : record->request_until_us;
    uint64_t left_us = until_us - net->now_us;

    if (!barred(net, record) ||
        record->count == granted(record, &used, &shared))
        return 0;
    return left_us > 50000 ? (uint32_t)((left_us + 999) / 1000) : 50;
}

static void
ticket_again(const struct net *net, struct net_entry *entry, uint32_t lease_ms)
{
    uint64_t ends_us = net->now_us + 1000 * (uint64_t)lease_ms;

    entry->suspended = false;
    if (entry->granted && !entry->claimed) {
        hold(net, entry);
        return;
    }
    if (entry->hold_end_us > 0 && entry->hold_end_us < ends_us)
        ends_us = entry->hold_end_us;
    entry->ends_us = ends_us;
}

static void
ticket_drop(const struct net *net, struct net_record *record,
    struct net_entry *entry, bool unclean)
{
    uint64_t delay_us = net->now_us + 1000 * (uint64_t)entry->delay_ms;

    if (entry->granted && entry->claimed && unclean && entry->delay_ms > 0 &&
        delay_us > record->delay_until_us)
        record->delay_until_us = delay_us;
    strike(record, (unsigned)(entry - record->queue));
}

/* The ticket that stands already; or none, and *status where that is final. */
static struct net_entry *
ticket_standing(struct net *net, struct net_record *record,
    const struct net_job *job, enum op_status *status)
{
    const struct op *op = &job->asked;
    struct net_entry *entry = op->retry ? ticket_of(record, op) : NULL;

    if (entry != NULL && entry->broken) {
        ticket_drop(net, record, entry, true);
        return NULL;
    }
    if (entry != NULL || !op->moves)
        return entry;
    entry = ticket_of_session(record, op, 0);
    if (entry == NULL)
        return NULL;
    if (entry->granted && request(net, record)) {
        *status = OP_UNSETTLED;
        return NULL;
    }
    bool fits = !entry->broken && entry->shared == op->ask.shared &&
                entry->permits == op->ask.permits &&
                record->limit == op->ask.permits_max;
    if (!ticket_move(entry, job))
        *status = OP_MOVED;
    else if (!fits)
        ticket_drop(net, record, entry, true);
    else {
        if (!entry->claimed)
            entry->hold_ms = op->ask.hold_ms;
        else if (op->ask.hold_ms > 0)
            entry->hold_end_us = net->now_us + 1000 * op->ask.hold_ms;
        if (entry->granted) { /* it is a grant to that LOCK */
            entry->fence = ++record->fence;
            entry->since_us = net->now_us;
        }
        return entry;
    }
    return NULL;
}

static struct net_entry *
ticket_append(struct net *net, struct net_record *record, struct net_job *job)
{
    const struct op *op = &job->asked;
    struct net_entry *entry = &record->queue[record->count++];

    *entry = (struct net_entry){.generation = op->generation,
        .request = op->request,
        .shared = op->ask.shared,
        .permits = op->ask.permits,
        .delay_ms = op->ask.delay_ms,
        .lease_ms = op->lease_ms,
        .hold_ms = op->ask.hold_ms,
        .arrival = ++record->arrival,
        .since_us = net->now_us,
        .ends_us = net->now_us + 1000 * (uint64_t)op->lease_ms};
    memcpy(entry->session, op->session, 16);
    memcpy(entry->owner_hash, op->owner_hash, 8);
    memcpy(entry->broker, job->broker, 8);
    return entry;
}

static void
execute_acquire(struct net *net, struct net_record *record, struct net_job *job)
{
    const struct op *op = &job->asked;
    enum op_status refused = OP_OK;
    struct net_entry *entry = ticket_standing(net, record, job, &refused);

    if (entry != NULL) {
        ticket_again(net, entry, op->lease_ms);
        (void)serve(net, record, job, entry);
        result_of(net, record, job, entry);
        return;
    }
    bool blocked = serve(net, record, job, NULL);
    if (record->count == 0)
        record->limit = op->ask.permits_max;
    struct net_entry asked = {
        .shared = op->ask.shared, .permits = op->ask.permits};
    if (refused == OP_OK && record->limit != op->ask.permits_max)
        refused = OP_CONFLICT;
    else if (refused == OP_OK && op->no_queue && request(net, record))
        refused = OP_UNSETTLED;
    else if (refused == OP_OK && op->no_queue &&
             (barred(net, record) || blocked || !compatible(record, &asked)))
        refused = OP_BUSY;
    else if (refused == OP_OK && record->count == NET_QUEUE)
        refused = OP_FULL;
    if (refused != OP_OK) {
        job->result.status = refused;
        job->result.again_ms =
            refused == OP_UNSETTLED
                ? (uint32_t)(record->request_until_us - net->now_us) / 1000
                : ask_later(net, record);
        if (refused == OP_BUSY && op->tell)
            tell(record, job);
        if (refused == OP_UNSETTLED && !op->no_queue &&
            job->answer_us < op->give_up_us)
            job->answer_us =
                op->give_up_us; /* the store asks again till then */
        return;
    }
    entry = ticket_append(net, record, job);
    if (!blocked)
        (void)serve(net, record, job, entry);
    result_of(net, record, job, entry);
}

/* The ticket that is to go: for the second time whatever it is there, and be it
 * an earlier generation's. */
static struct net_entry *
ticket_leaving(struct net_record *record, const struct net_job *job)
{
    const struct op *op = &job->asked;
    struct net_entry *entry = ticket_of(record, op);

    if (entry == NULL && op->moves && (op->fence > 0 || !op->repeats))
        entry = ticket_of_session(record, op, op->fence);
    if (entry == NULL && op->moves && op->repeats) {
        entry = ticket_of_session(record, op, 0);
        if (entry != NULL && entry->generation >= op->generation)
            return NULL;
    }
    if (entry != NULL && op->moves && !ticket_move(entry, job))
        return NULL;
    if (entry != NULL && op->fence > 0 && entry->fence != op->fence &&
        !op->repeats)
        return NULL;
    return entry;
}

static void
execute_release(struct net *net, struct net_record *record, struct net_job *job)
{
    const struct op *op = &job->asked;
    struct net_entry *entry = ticket_leaving(record, job);
    bool may_come = op->repeats ? bereft(net, record, 0) : request(net, record);

    job->result.status = may_come ? OP_MISSING : OP_GONE;
    if (entry == NULL)
        return;
    if (net->now_us < record->bereft_until_us && entry->granted) {
        if (entry->fence > record->over)
            record->over = entry->fence;
        if (op->unclean || op->repeats)
            record->request_until_us = record->bereft_until_us;
    }
    ticket_drop(net, record, entry, op->unclean);
    (void)serve(net, record, job, NULL);
    job->result.status = OP_OK;
    job->result.again_ms = ask_later(net, record);
}

static uint64_t
least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void
hold_extend(
    const struct net *net, const struct net_job *job, struct net_entry *entry)
{
    const struct op *op = &job->asked;
    uint64_t lease_us = 1000 * (uint64_t)op->lease_ms;
    uint64_t left_us = WHEEL_NEVER;
    uint64_t term_us;

    if (op->hard_end_us != WHEEL_NEVER)
        left_us = op->hard_end_us > job->sent_us + 1000
                      ? (op->hard_end_us - job->sent_us) / 1000 * 1000
                      : 1000;
    term_us = least(lease_us, left_us);
    if (op->sets_end) {
        entry->hold_end_us = left_us == WHEEL_NEVER ? 0 : net->now_us + left_us;
    } else {
        uint64_t had_us = least(entry->ends_us - net->now_us, lease_us);
        term_us = term_us > had_us ? term_us : had_us;
        if (entry->hold_end_us > 0)
            term_us = least(term_us, entry->hold_end_us > net->now_us + 1000
                                         ? entry->hold_end_us - net->now_us
                                         : 1000);
    }
    entry->ends_us = net->now_us + term_us;
}

/* What a ticket is that was taken over. */
static void
say_kind(const struct net_record *record, struct net_job *job,
    const struct net_entry *entry)
{
    if (!job->asked.moves)
        return;
    job->result.ask = (struct ask){.shared = entry->shared,
        .permits = entry->permits,
        .permits_max = record->limit,
        .delay_ms = entry->delay_ms,
        .hold_ms = job->result.hold_ms};
}

/* A hold that shows that nobody else has it: only waiters may come back. */
static void
settle_if_sole(struct net_record *record, const struct net_entry *entry)
{
    if (sole(record, entry))
        record->request_until_us = 0;
}

static void
hold_speaks(struct net *net, struct net_record *record, struct net_job *job,
    struct net_entry *entry)
{
    const struct op *op = &job->asked;
    struct op_result *result = &job->result;

    if (entry->broken) {
        result->status = OP_BROKEN;
        return;
    }
    bool claims = !entry->claimed;
    if (claims)
        hold(net, entry);
    if (!op->shares)
        settle_if_sole(record, entry);
    if (op->shares) {
        entry->shared = true;
        (void)serve(net, record, job, entry);
    } else if (op->moves || !claims) {
        hold_extend(net, job, entry);
    }
    result_of(net, record, job, entry);
    result->again_ms = 0;
    if (entry->hold_end_us > 0)
        result->hold_ms =
            entry->hold_end_us > net->now_us + 1000
                ? (uint32_t)((entry->hold_end_us - net->now_us) / 1000)
                : 1;
    say_kind(record, job, entry);
}

static void
execute_renew(struct net *net, struct net_record *record, struct net_job *job)
{
    const struct op *op = &job->asked;
    struct net_entry *entry = op->moves
                                  ? ticket_of_session(record, op, op->fence)
                                  : ticket_of(record, op);

    bool lost = bereft(net, record, op->fence) ||
                (bereft(net, record, 0) &&
                    ticket_of_session(record, op, op->fence) != NULL);
    job->result.status = lost ? OP_MISSING : OP_GONE;
    if (entry == NULL || (op->fence > 0 && entry->fence != op->fence))
        return;
    if (op->moves && !ticket_move(entry, job)) {
        job->result.status = OP_MOVED;
        return;
    }
    if (entry->granted) {
        hold_speaks(net, record, job, entry);
        return;
    }
    entry->suspended = false;
    entry->ends_us = net->now_us + 1000 * (uint64_t)op->lease_ms;
    (void)serve(net, record, job, entry);
    result_of(net, record, job, entry);
    say_kind(record, job, entry);
}

/* Makes room for a hold that was lost. False: something followed it. */
static bool
hold_fits(struct net_record *record, const struct op *op)
{
    bool kind = record->limit == op->ask.permits_max;

    if ((op->ask.permits_max == 0 && !op->ask.shared &&
            op->fence < record->fence) ||
        op->fence <= record->over)
        return false;
    for (unsigned i = 0; i < record->count;) {
        const struct net_entry *other = &record->queue[i];
        bool goes = kind && !(other->granted && record->limit == 0 &&
                                (!op->ask.shared || !other->shared));
        if (goes)
            i++;
        else if (other->fence > op->fence)
            return false;
        else
            strike(record, i);
    }
    return true;
}

/* The same, of a semaphore: of what is too much the earliest grants go. */
static bool
permits_fit(struct net_record *record, const struct op *op)
{
    uint32_t used;
    bool shared;

    for (;;) {
        unsigned first = record->count;
        (void)granted(record, &used, &shared);
        if (used + op->ask.permits <= op->ask.permits_max)
            return true;
        for (unsigned i = 0; i < record->count; i++)
            if (record->queue[i].granted &&
                (first == record->count ||
                    record->queue[i].fence < record->queue[first].fence))
                first = i;
        if (first == record->count || record->queue[first].fence > op->fence)
            return false;
        strike(record, first);
    }
}

/* Puts a ticket where it stood; NULL: that cannot be any more. */
static struct net_entry *
ticket_back(struct net *net, struct net_record *record, struct net_job *job)
{
    const struct op *op = &job->asked;
    unsigned place = 0;

    if (op->fence > 0 && !hold_fits(record, op))
        return NULL;
    if (op->fence > 0 && op->ask.permits_max > 0 && !permits_fit(record, op))
        return NULL;
    if (record->count == 0)
        record->limit = op->ask.permits_max;
    if (record->limit != op->ask.permits_max || record->count == NET_QUEUE)
        return NULL;
    struct net_entry entry = *ticket_append(net, record, job);
    entry.arrival = op->arrival;
    while (
        record->queue[place].arrival < op->arrival && place + 1 < record->count)
        place++;
    memmove(&record->queue[place + 1], &record->queue[place],
        (record->count - 1 - place) * sizeof(entry));
    if (op->fence > 0) {
        entry.granted = true;
        entry.fence = op->fence;
        entry.hold_ms = 0;
        if (op->hard_end_us != WHEEL_NEVER)
            entry.hold_ms = op->hard_end_us > job->sent_us + 1000
                                ? (op->hard_end_us - job->sent_us) / 1000
                                : 1;
        hold(net, &entry);
        record->news = true;
    }
    record->queue[place] = entry;
    net->back++;
    return &record->queue[place];
}

static void
execute_reclaim(struct net *net, struct net_record *record, struct net_job *job)
{
    const struct op *op = &job->asked;
    struct net_entry *entry = ticket_of(record, op);
    bool holds = op->fence > 0;

    if (entry == NULL)
        entry = ticket_of_session(record, op, 0);
    job->result.status = OP_GONE;
    if (entry != NULL && !ticket_move(entry, job)) {
        job->result.status = OP_MOVED;
        return;
    }
    if (entry != NULL && entry->broken) {
        job->result.status = OP_BROKEN;
        return;
    }
    bool same = entry != NULL && entry->shared == op->ask.shared &&
                entry->permits == op->ask.permits &&
                record->limit == op->ask.permits_max;
    if (same && entry->granted == holds && entry->fence == op->fence) {
        ticket_again(net, entry, op->lease_ms);
    } else if (!bereft(net, record, op->fence) ||
               (entry != NULL && entry->granted && (!holds || !same))) {
        return;
    } else {
        if (entry != NULL)
            strike(record, (unsigned)(entry - record->queue));
        entry = ticket_back(net, record, job);
        if (entry == NULL)
            return;
        if (holds && sole(record, entry) &&
            record->delay_until_us < net->now_us + BACK_US)
            record->delay_until_us = net->now_us + BACK_US;
    }
    if (holds)
        settle_if_sole(record, entry);
    result_of(net, record, job, entry);
}

static void
execute_break(struct net *net, struct net_record *record, struct net_job *job)
{
    job->result.status = OP_GONE;
    for (unsigned i = 0; i < record->count; i++) {
        struct net_entry *entry = &record->queue[i];
        if (!entry->granted ||
            (job->asked.fence > 0 && entry->fence != job->asked.fence))
            continue;
        entry->broken = true;
        tell_core(net, entry, true);
        job->result.status = OP_OK;
        job->result.ahead++;
    }
}

static void
inspect_entry(
    struct net *net, const struct net_entry *entry, struct op_ticket *ticket)
{
    ticket->granted = entry->granted;
    ticket->shared = entry->shared;
    ticket->broken = entry->broken;
    memcpy(ticket->session, entry->session, 16);
    memcpy(ticket->owner_hash, entry->owner_hash, 8);
    memcpy(ticket->broker, entry->broker, 8);
    ticket->request = entry->request;
    ticket->generation = entry->generation;
    ticket->permits = entry->permits;
    ticket->fence = entry->fence;
    ticket->ttl_ms = (entry->ends_us - net->now_us) / 1000;
    ticket->age_ms = (net->now_us - entry->since_us) / 1000;
    ticket->since_us = entry->since_us;
    ticket->late = entry->granted && net_pick(net, 3) == 0;
    ticket->owner = ticket->client = ticket->note = TEXT("");
}

static void
execute_inspect(
    struct net *net, const struct net_record *record, struct net_job *job)
{
    struct op_result *result = &job->result;

    job->tickets = calloc(NET_QUEUE, sizeof(*job->tickets));
    rig_must(job->tickets != NULL);
    result->status = record->arrival == 0 ? OP_GONE : OP_OK;
    result->holders = granted(record, &result->used, &result->shared);
    result->waiters = record->count - result->holders;
    result->limit = record->limit;
    result->tickets = job->tickets;
    for (unsigned i = 0; i < record->count; i++)
        if (record->queue[i].granted)
            inspect_entry(
                net, &record->queue[i], &job->tickets[result->ticket_count++]);
    for (unsigned i = 0; i < record->count; i++)
        if (!record->queue[i].granted)
            inspect_entry(
                net, &record->queue[i], &job->tickets[result->ticket_count++]);
}

static void
execute_look(struct net *net, struct net_record *record, struct net_job *job)
{
    if (job->asked.watch)
        record->watched_until_us =
            net->now_us + 1000 * (uint64_t)job->asked.lease_ms;
    else if (record->arrival == 0)
        job->result.status = OP_GONE;
    (void)serve(net, record, job, NULL);
    job->result.again_ms = ask_later(net, record);
}

/* One node that has all locks, of which all are worth a look. */
static void
execute_audit(struct net_job *job)
{
    static const char names[] = "abcdefghijklmnopqrstuvwxyz";
    static struct op_sight sights[NET_LOCKS];
    struct op_audit *audit = job->op->audit;

    audit->records = audit->sight_count = NET_LOCKS;
    audit->sights = sights;
    audit->cursor = 0;
    for (unsigned i = 0; i < NET_LOCKS; i++)
        sights[i] = (struct op_sight){
            .flags = SIGHT_LATE_HOLD, .name = text_make(names + i, 1)};
    job->result.status = audit->node == 0 ? OP_OK : OP_GONE;
}

static void
execute(struct net *net, struct net_job *job)
{
    struct net_record *record = &net->records[job->lock];

    job->executed = true;
    if (job->asked.kind == OP_AUDIT) {
        if (job->op != NULL)
            execute_audit(job);
        return;
    }
    if (job->asked.kind == OP_PUBLISH) {
        publish(net, core_of(net, job->to), job->news, job->news_len);
        return;
    }
    expire(net, record);
    if (net->losses > 0 && net_pick(net, net->losses) == 0)
        lose(net, record);
    if (job->asked.kind == OP_RECLAIM)
        execute_reclaim(net, record, job);
    else if (job->asked.kind == OP_ACQUIRE)
        execute_acquire(net, record, job);
    else if (job->asked.kind == OP_RELEASE)
        execute_release(net, record, job);
    else if (job->asked.kind == OP_RENEW)
        execute_renew(net, record, job);
    else if (job->asked.kind == OP_LOOK)
        execute_look(net, record, job);
    else if (job->asked.kind == OP_BREAK)
        execute_break(net, record, job);
    else
        execute_inspect(net, record, job);
    record_store(net, job->lock);
    trace_op(net, job, "executes");
}

/* --- cores ---------------------------------------------------------------- */

static void
job_schedule(struct net *net, struct net_job *job)
{
    const struct core_settings *settings = &net->rigs[job->core]->settings;
    unsigned way_us = net->way_us;
    uint64_t give_up_us = job->asked.give_up_us;

    if (net->slow > 0 && net_pick(net, net->slow) == 0)
        way_us *= 12;
    job->sent_us = net->now_us + net_pick(net, way_us / 4 + 1);
    job->execute_us = job->sent_us + net_pick(net, way_us / 2 + 1);
    job->answer_us = job->execute_us + 1 + net_pick(net, way_us / 4 + 1);
    if (net->faults > 0 && net_pick(net, net->faults) == 0)
        job->fate = (enum net_fate)net_pick(net, 5);
    if (job->fate == FATE_LOST || job->fate == FATE_NEVER)
        job->answer_us = net->now_us + settings->command_timeout_us;
    if (job->asked.end_us > net->now_us && job->asked.end_us < job->answer_us)
        job->answer_us = job->asked.end_us;
    if (job->fate == FATE_UNSENT)
        job->answer_us = give_up_us > net->now_us ? give_up_us : net->now_us;
}

/* The words that it shows are its ticket's: that is to be there until then. */
static void
check_shown(const struct core *core, const struct op *op)
{
    const struct ticket *ticket = slab_get(&core->tickets, op->owner);

    if (op->kind != OP_ACQUIRE && op->kind != OP_RECLAIM)
        return;
    rig_must(ticket != NULL && op->words[0].at == ticket->owner);
}

/* Puts on its way what a core has asked. */
static void
take_ops(struct net *net, unsigned core)
{
    struct rig *rig = net->rigs[core];

    for (uint32_t i = 0; i < rig->op_count; i++) {
        struct op *op = rig->ops[i];
        if (op->attempts > 0)
            continue; /* is on its way */
        op->attempts = 1;
        struct net_job *job = job_new(net, NET_OP, core);
        job->op = op;
        job->asked = *op;
        job->lock = op->kind == OP_AUDIT ? 0 : (unsigned)(op->name.at[0] - 'a');
        rig_must(op->name.len == (op->kind != OP_AUDIT));
        rig_must(job->lock < NET_LOCKS);
        if (op->kind == OP_PUBLISH) {
            memcpy(job->to, op->words[0].at, 8);
            job->news = malloc(op->words[1].len);
            rig_must(job->news != NULL);
            memcpy(job->news, op->words[1].at, op->words[1].len);
            job->news_len = op->words[1].len;
        }
        job_schedule(net, job);
    }
}

/* What cannot be asked now, and was to be asked again, is given back. */
static void
take_hurried(struct net *net)
{
    for (unsigned i = 0; i < net->job_count; i++) {
        struct net_job *job = net->jobs[i];
        if (job->op == NULL || job->op->give_up_us >= job->asked.give_up_us)
            continue;
        if (job->answer_us == job->asked.give_up_us)
            job->answer_us = net->now_us;
        job->asked.give_up_us = job->op->give_up_us;
    }
}

static void
after_step(struct net *net, unsigned core)
{
    net->steps++;
    take_ops(net, core);
    take_hurried(net);
    if (net->heard != NULL)
        net->heard(net, core);
}

void
net_start(struct net *net, unsigned core)
{
    struct rig *rig = rig_create();

    if (net->rigs[core] != NULL)
        rig_free(net->rigs[core]);
    net->lives[core]++;
    for (unsigned i = 0; i < net->job_count; i++)
        if (net->jobs[i]->core == core)
            net->jobs[i]->op = NULL;
    rig->now_us = net->now_us;
    rig->settings.seed = random_next(&net->random);
    snprintf(rig->settings.broker_id, sizeof(rig->settings.broker_id),
        "b%u-%05u", core % 10, net->lives[core] % 100000);
    if (net->prepare != NULL)
        net->prepare(&rig->settings);
    rig_start(rig);
    net->rigs[core] = rig;
}

void
net_init(struct net *net, unsigned cores)
{
    rig_must(cores <= NET_CORES);
    net->traced = getenv("HOLDFAST_TRACE") != NULL;
    if (net->traced)
        setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    net->now_us = 1000 * (uint64_t)SECOND_US;
    net->lapse_ms = net->lapse_ms == 0 ? CORE_LAPSE_MS : net->lapse_ms;
    net->way_us = net->way_us == 0 ? 1000 : net->way_us;
    net->cores = 0;
    for (unsigned core = 0; core < cores; core++) {
        net_start(net, core);
        net->cores++;
    }
}

void
net_fini(struct net *net)
{
    while (net->job_count > 0)
        job_free(net, net->jobs[0]);
    for (unsigned core = 0; core < net->cores; core++)
        rig_free(net->rigs[core]);
}

void
net_say(struct net *net, unsigned core, unsigned session, const char *line)
{
    net_trace(net, core, session, "->", line);
    rig_say(net->rigs[core], session, line);
    after_step(net, core);
}

void
net_event(
    struct net *net, unsigned core, unsigned session, enum core_event_kind kind)
{
    if (kind != CORE_MORE)
        net_trace(net, core, session, "->",
            kind == CORE_DROP  ? "(RST)"
            : kind == CORE_EOF ? "(FIN)"
                               : "(event)");
    rig_event(net->rigs[core], session, kind);
    after_step(net, core);
}

void
net_reopen(struct net *net, unsigned core, unsigned session)
{
    rig_reopen(net->rigs[core], session);
    after_step(net, core);
}

void
net_stop(struct net *net, unsigned core)
{
    rig_stop(net->rigs[core]);
    after_step(net, core);
}

void
net_unheard(struct net *net, unsigned core)
{
    struct core_event event = {.kind = CORE_UNHEARD};

    rig_step(net->rigs[core], &event);
    after_step(net, core);
}

/* --- time ----------------------------------------------------------------- */

static bool
job_runs(const struct net_job *job)
{
    return job->fate != FATE_NEVER && job->fate != FATE_UNSENT &&
           !job->executed && job->execute_us < job->answer_us;
}

static uint64_t
job_due_us(const struct net_job *job)
{
    return job_runs(job) ? job->execute_us : job->answer_us;
}

static void
deliver(struct net *net, const struct net_job *job)
{
    struct core_event changed = {.kind = CORE_CHANGED};
    struct rig *rig = net->rigs[job->core];

    if (job->kind == NET_HINT)
        rig_hint(rig, job->request);
    else if (job->kind == NET_BROKEN)
        rig_broken(rig, job->request, job->fence);
    else if (job->kind == NET_CHANGED)
        rig_step(rig, &changed);
    else
        rig_news(rig, job->news, job->news_len);
    after_step(net, job->core);
}

/* What never forbids its late execution is executed late, for nobody. */
static void
job_haunt(struct net *net, struct net_job *job)
{
    job->fate = FATE_LOST;
    job->op = NULL;
    job->execute_us = net->now_us + net_pick(net, 3000000);
    job->answer_us = job->execute_us + 1;
}

static void
job_answer(struct net *net, struct net_job *job)
{
    static const enum op_status statuses[] = {[FATE_LOST] = OP_UNKNOWN,
        [FATE_NEVER] = OP_UNKNOWN,
        [FATE_UNSENT] = OP_UNSENT,
        [FATE_REFUSED] = OP_REFUSED};
    struct op *op = job->op;
    unsigned core = job->core;
    bool release = job->asked.kind == OP_RELEASE;

    if (job->fate == FATE_DONE && !job->executed)
        execute(net, job);
    if (job->fate != FATE_DONE)
        job->result = (struct op_result){.status = statuses[job->fate]};
    job->result.sent_us = job->sent_us;
    if (op != NULL && job->fate != FATE_DONE)
        trace_op(net, job, "fails");
    if (op != NULL) {
        check_shown(net->rigs[core]->core, op);
        rig_finish(net->rigs[core], op, job->result);
    }
    if (job->fate == FATE_NEVER && release)
        job_haunt(net, job);
    else
        job_free(net, job);
    if (op != NULL)
        after_step(net, core);
}

static void
job_move(struct net *net, struct net_job *job)
{
    if (job_runs(job)) {
        execute(net, job);
    } else if (job->kind == NET_OP) {
        job_answer(net, job);
    } else {
        if (job->life == net->lives[job->core])
            deliver(net, job);
        job_free(net, job);
    }
}

static void
set_now(struct net *net, uint64_t now_us)
{
    net->now_us = now_us > net->now_us ? now_us : net->now_us;
    for (unsigned core = 0; core < net->cores; core++)
        net->rigs[core]->now_us = net->now_us;
}

/* The earliest thing until `end_us`; false: there is none. */
static bool
move_next(struct net *net, uint64_t end_us)
{
    struct net_job *next = NULL;
    uint64_t next_us = end_us;
    unsigned due = NET_CORES;

    for (unsigned i = 0; i < net->job_count; i++)
        if (job_due_us(net->jobs[i]) < next_us) {
            next = net->jobs[i];
            next_us = job_due_us(next);
        }
    for (unsigned core = 0; core < net->cores; core++) {
        uint64_t core_us = core_next_us(net->rigs[core]->core);
        if (core_us < next_us) {
            due = core;
            next_us = core_us;
        }
    }
    if (due < NET_CORES) {
        struct core_event event = {.kind = CORE_TIME};
        set_now(net, next_us);
        rig_step(net->rigs[due], &event);
        after_step(net, due);
        return true;
    }
    if (next == NULL)
        return false;
    set_now(net, next_us);
    job_move(net, next);
    return true;
}

void
net_pass(struct net *net, uint64_t us)
{
    uint64_t end_us = net->now_us + us;

    while (move_next(net, end_us))
        ;
    set_now(net, end_us);
}

/* --- looking -------------------------------------------------------------- */

unsigned
net_holders(struct net *net, unsigned lock, uint64_t *newest)
{
    const struct net_record *record = &net->records[lock];
    unsigned count = 0;

    *newest = 0;
    for (unsigned i = 0; i < record->count; i++) {
        const struct net_entry *entry = &record->queue[i];
        if (!entry->granted || entry->ends_us <= net->now_us)
            continue;
        count++;
        if (entry->fence > *newest)
            *newest = entry->fence;
    }
    return count;
}

const struct net_entry *
net_hold(
    struct net *net, unsigned lock, const uint8_t session[16], uint64_t fence)
{
    const struct net_record *record = &net->records[lock];

    for (unsigned i = 0; i < record->count; i++) {
        const struct net_entry *entry = &record->queue[i];
        if (entry->granted && entry->fence == fence &&
            entry->ends_us > net->now_us &&
            memcmp(entry->session, session, 16) == 0)
            return entry;
    }
    return NULL;
}
