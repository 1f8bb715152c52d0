/*
 * Releases of late. A master that is lost may take the last ones with it. A
 * promoted replica still has the holds that ended by them. Nobody renews these
 * holds. They block the lock until their leases end, at most two leases later.
 * And those who had stopped to wait are granted it there when their turn comes.
 * So a broker that meets a new history gives back again what it has given back
 * before. Late or repeated a release is harmless: it strikes out the ticket of
 * that request and that fence, or nothing.
 *
 * The newest come first, as they are the likeliest to be missing. A release
 * that a node does not take is sent again, until its leases are over. So are
 * releases of a session that has moved here, until the node is settled: the
 * broker it has left may put its ticket there again. Few are under way at a
 * time; they have room of their own.
 *
 * See DESIGN.md D3.8.
 */
#include "daemon/core/feature/releases.h"

#include "daemon/core/model/lock.h"
#include "daemon/core/model/op_pool.h"
#include "daemon/core/model/times.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

#define PORTION         128   /* that are sent together */
#define PORTION_US      5000  /* between two of them */
#define REPEAT_RETRY_US 50000 /* after one that was not taken */

/* The data of a ticket that its release needs. */
struct release {
    struct slab_node node;
    uint8_t session[16];
    uint64_t owner_hash;
    uint64_t request;
    uint64_t arrival;
    uint64_t fence;
    uint32_t generation;
    uint32_t place;
    bool unclean;
    bool detached;
    bool earlier; /* of a BREAK: and detached holds with smaller fences */
    bool owed;    /* since the latest history */
    uint64_t delay_until_us; /* of the UNLOCK's delay= */
    uint64_t rest_us;        /* it is not repeated before */
    uint64_t asked_us;       /* when it was repeated last */
    uint8_t name_len;
    char name[PROTO_NAME_MAX];
};

/* Those of holds, and of waits: where many give up waiting the releases of
 * holds are not pushed out. */
static struct releases *
releases_of(struct core *core, uint64_t fence)
{
    return &core->releases[fence > 0 ? 0 : 1];
}

bool
releases_init(struct core *core)
{
    uint32_t kept = core->settings.releases_kept;

    for (int i = 0; i < RELEASES_KINDS; i++) {
        wheel_node_init(&core->releases[i].timer, TIMER_RELEASES);
        if (kept > 0 &&
            !slab_init(&core->releases[i].ring, sizeof(struct release), kept))
            return false;
    }
    return true;
}

void
releases_fini(struct core *core)
{
    for (int i = 0; i < RELEASES_KINDS; i++)
        slab_fini(&core->releases[i].ring);
}

static struct release *
release_at(const struct releases *releases, uint64_t serial)
{
    require(releases->ring.capacity > 0 && serial <= releases->count);
    return slab_at(
        &releases->ring, (uint32_t)(serial % releases->ring.capacity));
}

/* In the place of the oldest one, once all are taken. */
static struct release *
release_next(struct releases *releases)
{
    bool more = releases->count < releases->ring.capacity;
    struct release *release = more ? slab_alloc(&releases->ring)
                                   : release_at(releases, releases->count);

    require(release != NULL);
    if (!more)
        slab_renew_handle(&releases->ring, release);
    releases->count++;
    return release;
}

/* So often a broker asks about what it has, and puts it again. */
static uint64_t
rest_us(const struct core *core)
{
    return us_from_ms(core->settings.lease_ms) / 3;
}

/* The serial of the oldest one. */
static uint64_t
releases_end(const struct releases *releases)
{
    uint64_t kept = releases->ring.capacity;

    return releases->count > kept ? releases->count - kept : 0;
}

static void
releases_pass(struct core *core, struct releases *releases, uint64_t at_us)
{
    releases->left = releases->count;
    releases->again = releases->later = false;
    wheel_add(&core->wheel, &releases->timer, at_us);
}

/* A pass that is under way is past it, and has another one follow. */
static void
release_owe(
    struct core *core, struct releases *releases, struct release *release)
{
    require(releases->count > 0);
    release->owed = true;
    releases->again = true;
    if (releases->out == 0 && releases->left <= releases_end(releases))
        releases_pass(core, releases, core->now_us);
}

/* Keeps a release with that fence, by an answer to a call sent at `sent_us`.
 * Before the latest history, it may be of the last. NULL: none are kept. */
static struct release *
release_keep(struct core *core, struct text name, uint64_t fence,
    uint32_t delay_ms, uint64_t sent_us)
{
    struct releases *releases = releases_of(core, fence);

    require(sent_us <= core->now_us && releases->since_us <= core->now_us);
    if (core->settings.releases_kept == 0)
        return NULL;
    struct release *release = release_next(releases);
    release->fence = fence;
    release->detached = false;
    release->earlier = false;
    release->owed = false;
    release->delay_until_us = core->now_us + us_from_ms(delay_ms);
    release->rest_us = 0;
    require(name.len <= sizeof(release->name));
    release->name_len = (uint8_t)name.len;
    memcpy(release->name, name.at, name.len);
    if (sent_us < releases->since_us)
        release_owe(core, releases, release);
    return release;
}

/* The hold or the wait is over, for its client or in Redis. */
void
releases_note(struct core *core, const struct ticket *ticket, uint64_t sent_us)
{
    struct release *release = release_keep(core, lock_name(ticket->lock),
        ticket->fence, ticket->delay_ms, sent_us);

    if (release == NULL)
        return;
    memcpy(release->session, ticket->session_id, sizeof(release->session));
    release->owner_hash = ticket_record_owner(ticket);
    release->request = handle_pack(slab_handle(&core->tickets, ticket));
    release->arrival = ticket->stray ? 0 : ticket->arrival;
    release->generation = ticket->generation;
    release->place = ticket->place;
    release->unclean = ticket->ending >= ENDING_UNCLEAN;
}

void
releases_note_detached(struct core *core, const struct op *op)
{
    uint64_t fence = op->by_fence ? op->fence : op->result.fence;
    struct release *release =
        release_keep(core, op->name, fence, op->delay_ms, op->result.sent_us);

    require(op->by_fence != (op->kind == OP_BREAK) && fence > 0);
    if (release == NULL)
        return;
    release->earlier = op->fence == 0;
    release->generation = 0;
    release->unclean = false;
    release->detached = true;
}

void
releases_repeat(struct core *core)
{
    for (int i = 0; i < RELEASES_KINDS; i++) {
        struct releases *releases = &core->releases[i];
        require(releases->since_us <= core->now_us);
        releases->since_us = core->now_us;
        if (releases->count == 0)
            continue;
        for (uint64_t at = releases_end(releases); at < releases->count; at++) {
            release_at(releases, at)->owed = true;
            release_at(releases, at)->rest_us = 0;
        }
        releases_pass(core, releases, core->now_us);
    }
}

/* False: there is no room now. */
static bool
release_repeat(
    struct core *core, struct releases *releases, struct release *release)
{
    struct lock *lock =
        lock_obtain(core, text_make(release->name, release->name_len));
    struct op *op;

    require(releases_of(core, release->fence) == releases);
    require(release->name_len > 0 && release->asked_us <= core->now_us);
    if (lock == NULL)
        return false;
    op = op_create(
        core, OP_RELEASE, lock, slab_handle(&releases->ring, release));
    lock_unref(core, lock);
    if (op == NULL)
        return false;
    op->repeats = true;
    op->retry = true;
    op->by_fence = release->detached;
    op->earlier = release->earlier;
    /* The data may be of before its session moved here. */
    op->moves = release->generation > 1;
    op->unclean = release->unclean;
    if (release->delay_until_us > core->now_us) /* the rest of it */
        op->delay_ms =
            (uint32_t)((release->delay_until_us - core->now_us) / 1000 + 1);
    op->generation = release->generation;
    memcpy(op->session, release->session, sizeof(op->session));
    memcpy(op->owner_hash, &release->owner_hash, sizeof(op->owner_hash));
    op->request = release->request;
    op->place = release->place;
    op->arrival = release->arrival;
    op->fence = release->fence;
    op->deadline_us = core->now_us + core->settings.command_timeout_us;
    op_submit(core, op);
    release->asked_us = core->now_us;
    releases->out++;
    return true;
}

/* A pass is over when all have been looked at, and those that were sent are
 * answered: another one follows where some were not taken, or rest. */
static void
releases_over(struct core *core, struct releases *releases)
{
    uint64_t until_us =
        releases->since_us + 2 * us_from_ms(core->settings.lease_ms);
    uint64_t pause_us = releases->again ? REPEAT_RETRY_US : rest_us(core);

    require(releases->left <= releases->count);
    if ((releases->again || releases->later) && releases->out == 0 &&
        releases->left <= releases_end(releases) && core->now_us < until_us)
        releases_pass(
            core, releases, core->now_us + core_jitter(core, pause_us));
}

void
releases_timer(struct core *core, struct releases *releases)
{
    uint64_t end = releases_end(releases);
    uint32_t sent = 0;

    require(releases->left <= releases->count);
    require(releases->out <= RELEASES_OUT);
    while (releases->left > end) {
        struct release *release = release_at(releases, releases->left - 1);
        bool due = release->owed && core->now_us >= release->rest_us;
        releases->later = releases->later || (release->owed && !due);
        if (due && releases->out == RELEASES_OUT)
            return; /* until one is answered */
        if (due &&
            (sent++ == PORTION || !release_repeat(core, releases, release))) {
            wheel_add(
                &core->wheel, &releases->timer, core->now_us + PORTION_US);
            return;
        }
        releases->left--;
    }
    releases_over(core, releases);
}

void
releases_answered(struct core *core, const struct op *op)
{
    struct releases *releases = releases_of(core, op->fence);
    struct release *release = slab_get(&releases->ring, op->owner);
    enum op_status status = op->result.status;
    bool again = status == OP_UNKNOWN || status == OP_UNSENT;
    bool later = op->moves && (status == OP_OK || status == OP_MISSING);
    bool stalled = releases->out == RELEASES_OUT;

    require(op->kind == OP_RELEASE && op_owner(op) == OP_OF_TICKET);
    require(op->repeats && releases->out > 0);
    require(release == NULL || release->request == op->request);
    releases->out--;
    if (status == OP_OK)
        count(core->counters, COUNTER_releases_repeated);
    releases->again = releases->again || again;
    releases->later = releases->later || later;
    if (release != NULL && release->asked_us >= releases->since_us) {
        release->owed = again || later;
        release->rest_us = later ? release->asked_us + rest_us(core) : 0;
    }
    if (stalled && releases->left > releases_end(releases))
        wheel_add(&core->wheel, &releases->timer, core->now_us + PORTION_US);
    releases_over(core, releases);
}
