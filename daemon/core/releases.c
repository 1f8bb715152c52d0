/*
 * Releases of late. A master that is lost may take the last ones with it. Its
 * heir has the holds that ended by them: nobody renews these, and they are in
 * the way until their leases are over, which takes two where the data are old.
 * So a broker that meets a new history gives back again what it has given back
 * before. Late or repeated a release is harmless: it strikes out the hold of
 * that owner and that fence, or nothing.
 *
 * The newest come first, as they are the likeliest to be missing.
 */
#include "daemon/core/state.h"

#include "daemon/base/assert.h"

#define PORTION    128   /* that are sent together */
#define PORTION_US 5000  /* between two of them */
#define RETRY_US   50000 /* after a lost answer */

/* What a release needs of its ticket. */
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
    uint8_t name_len;
    char name[PROTO_NAME_MAX];
};

bool
releases_init(struct core *core)
{
    struct releases *releases = &core->releases;

    wheel_node_init(&releases->timer, TIMER_RELEASES);
    return core->settings.releases_kept == 0 ||
           slab_init(&releases->ring, sizeof(struct release),
               core->settings.releases_kept);
}

static struct release *
release_at(const struct core *core, uint64_t serial)
{
    return slab_at(&core->releases.ring,
        (uint32_t)(serial % core->settings.releases_kept));
}

/* In the place of the oldest one, once all are taken. */
static struct release *
release_next(struct core *core)
{
    struct releases *releases = &core->releases;
    bool more = releases->count < core->settings.releases_kept;
    struct release *release =
        more ? slab_alloc(&releases->ring) : release_at(core, releases->count);

    require(release != NULL);
    releases->count++;
    return release;
}

/* The hold is over, for its client or in Redis. */
void
releases_note(struct core *core, const struct ticket *ticket)
{
    const struct lock *lock = ticket->lock;

    if (core->settings.releases_kept == 0 || ticket->fence == 0)
        return;
    struct release *release = release_next(core);
    memcpy(release->session, ticket->session_id, sizeof(release->session));
    release->owner_hash = ticket->owner_hash;
    release->request = handle_pack(slab_handle(&core->tickets, ticket));
    release->arrival = ticket->arrival;
    release->fence = ticket->fence;
    release->generation = ticket->generation;
    release->place = ticket->place;
    release->unclean = ticket->unclean;
    release->name_len = (uint8_t)lock->name_len;
    memcpy(release->name, lock->name, lock->name_len);
}

/* From the newest one on; what is still to be sent of an earlier time is among
 * them. */
void
releases_repeat(struct core *core, uint64_t at_us)
{
    core->releases.left = core->releases.count;
    if (core->releases.left > 0)
        wheel_add(&core->wheel, &core->releases.timer, at_us);
}

/* False: there is no room now. */
static bool
release_repeat(struct core *core, const struct release *release)
{
    struct lock *lock =
        lock_obtain(core, text_make(release->name, release->name_len));
    struct op *op;

    if (lock == NULL)
        return false;
    op = op_create(core, OP_RELEASE, lock, HANDLE_NONE);
    lock_unref(core, lock);
    if (op == NULL)
        return false;
    op->repeats = true;
    op->retry = true;
    op->unclean = release->unclean;
    op->generation = release->generation;
    memcpy(op->session, release->session, sizeof(op->session));
    memcpy(op->owner_hash, &release->owner_hash, sizeof(op->owner_hash));
    op->request = release->request;
    op->place = release->place;
    op->arrival = release->arrival;
    op->fence = release->fence;
    op->give_up_us = core->now_us + core->settings.command_timeout_us;
    op_submit(core, op);
    return true;
}

void
releases_timer(struct core *core)
{
    struct releases *releases = &core->releases;
    uint64_t kept = core->settings.releases_kept;
    uint64_t end = releases->count > kept ? releases->count - kept : 0;

    for (uint32_t i = 0; i < PORTION && releases->left > end; i++) {
        if (!release_repeat(core, release_at(core, releases->left - 1)))
            break;
        releases->left--;
    }
    if (releases->left > end)
        wheel_add(&core->wheel, &releases->timer, core->now_us + PORTION_US);
}

/* What became of one. Where nobody can say, it and all others are sent once
 * more; where it could not be sent there will be another history. */
void
releases_answered(struct core *core, const struct op *op)
{
    require(op->repeats);
    if (op->result.status == OP_OK)
        count(core->counters, COUNTER_releases_repeated);
    else if (op->result.status == OP_UNKNOWN)
        releases_repeat(core, core->now_us + core_jitter(core, RETRY_US));
}
