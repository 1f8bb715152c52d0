/*
 * WATCH members=1: sessions that hear of each holder that comes, changes or
 * goes.
 *
 * The script that changes the holders of such a lock publishes the change. All
 * messages about a lock come on one connection, in the order of its changes.
 * The list of its holders comes in pages, as messages on that connection, too:
 * what a page shows is before each later change. A page has the holders in
 * order of arrival. A watch that knows them up to an arrival hears the changes
 * of those, and no others, until it has the next page.
 *
 * The broker keeps no list. It counts the holders that it was told of, and sums
 * their fences. Each change says how many there are, and each page has the sum.
 * Both have the fence of the last grant before. If one of them differs, or if
 * the node has another history, messages were lost, or the record was not
 * watched: the watches begin again with the first page. So does a watch whose
 * client does not read, or for whose event the step has no room. Pages of all
 * watches of a session wait until its client has read.
 *
 * Pages are asked for by watch_look(). No page comes before the broker is
 * settled with the node: after a failover holders may be missing until then.
 */
#include "daemon/core/feature/members.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/feature/watch.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/time.h"
#include "daemon/core/model/times.h"
#include "daemon/op/op.h"

#include "daemon/base/assert.h"

/* Parts of limits.output. With so many unread bytes of a client, a change makes
 * its watch begin again. Replies have the other half. */
#define MEMBERS_UNREAD 2

/* With so many, the lists of all its watches wait. */
#define MEMBERS_PAGED 4

/* Lost messages of a lock are noticed once in this time. */
#define MEMBERS_AGAIN_US 100000

/* The session comes back when its client has read its output. */
static void
session_rests(struct core *core, struct session *session)
{
    if (session->watch_waits)
        return;
    session->watch_waits = true;
    effects_add(
        core->effects, EFFECT_MORE, slab_handle(&core->sessions, session));
}

/* The watch asks for its next page as soon as its client has read. */
static void
members_rest(struct core *core, struct watch *watch)
{
    watch->asks = false;
    if (list_empty(&watch->news_link))
        list_push_back(&watch->session->news, &watch->news_link);
    session_rests(core, watch->session);
}

/* Whether the client has that part of limits.output to read. */
static bool
members_fill(const struct core *core, const struct watch *watch, unsigned part)
{
    return watch->session->member_bytes >= core->settings.output_max / part;
}

static void
members_end(struct core *core, struct watch *watch, struct reply *reply)
{
    answer_end(core, watch->session, reply);
    watch->session->member_bytes += (uint32_t)(reply->at - reply->start);
}

static void
members_tell(struct core *core, struct watch *watch, enum event_code event,
    const struct op_ticket *ticket)
{
    struct reply reply = answer_event(core, event);
    char short_id[SHORT_ID_BYTES + 1];

    core_short_id(ticket->session, short_id);
    reply_word(&reply, lock_name(watch->lock));
    reply_pair_number(&reply, "fence", ticket->fence);
    reply_pair(&reply, "session", text_from(short_id));
    if (ticket->permits > 1)
        reply_pair_number(&reply, "permits", ticket->permits);
    if (ticket->detached)
        reply_pair_number(&reply, "detached", 1);
    reply_pair_if(&reply, "name", ticket->client);
    reply_pair_if(&reply, "owner", ticket->owner);
    reply_pair_if(&reply, "note", ticket->note);
    members_end(core, watch, &reply);
}

/* The list begins, or it is complete. */
static void
members_mark(
    struct core *core, struct watch *watch, const char *key, uint64_t value)
{
    struct reply reply = answer_event(core, EVENT_MEMBERS);

    reply_word(&reply, lock_name(watch->lock));
    reply_pair_number(&reply, key, value);
    members_end(core, watch, &reply);
}

static void
members_show(
    struct core *core, struct watch *watch, const struct op_members *told)
{
    uint32_t told_count = 0;

    watch_answer(core, watch);
    if (members_fill(core, watch, MEMBERS_PAGED)) {
        members_rest(core, watch);
        return;
    }
    if (watch->shown == 0)
        members_mark(core, watch, "begin", 1);
    for (; told_count < told->ticket_count; told_count++) {
        if (members_fill(core, watch, MEMBERS_PAGED))
            break;
        members_tell(core, watch, EVENT_JOINED, &told->tickets[told_count]);
        watch->shown = told->tickets[told_count].arrival;
    }
    watch->asks = false;
    if (told->kind == MEMBERS_LAST && told_count == told->ticket_count) {
        members_mark(core, watch, "members", told->count);
        watch->shown = WATCH_SHOWN_ALL;
        session_rests(core, watch->session);
        return;
    }
    members_rest(core, watch);
}

/* The watch begins again with the first page. A step may call it for any number
 * of watches: it adds no effect. */
static void
members_again(struct core *core, struct watch *watch)
{
    count(core->counters, COUNTER_member_lists);
    watch->shown = 0;
    watch->asks = !watch->session->watch_waits;
    if (!watch->asks)
        members_rest(core, watch);
}

static void
members_restart(struct core *core, struct lock *lock)
{
    LIST_EACH (link, &lock->watches) {
        struct watch *watch = container_of(link, struct watch, lock_link);
        if (watch->kind == WATCH_MEMBERS && watch->shown > 0)
            members_again(core, watch);
    }
}

void
members_lost(struct core *core, struct lock *lock)
{
    if (!lock->members.known)
        return;
    lock->members.known = false;
    members_restart(core, lock);
    wheel_add(&core->wheel, &lock->watch_timer,
        core->now_us + random_below(&core->random, MEMBERS_AGAIN_US));
}

static void
members_change(
    struct core *core, struct lock *lock, const struct op_members *told)
{
    enum event_code event = EVENT_CHANGED;
    struct members *members = &lock->members;
    const struct op_ticket *ticket = told->tickets;
    bool asks = false;

    if (told->kind == MEMBERS_JOINED) {
        event = EVENT_JOINED;
        members->count++;
        members->sum += (uint32_t)ticket->fence;
    } else if (told->kind == MEMBERS_LEFT) {
        event = EVENT_LEFT;
        members->count--;
        members->sum -= (uint32_t)ticket->fence;
    }
    if (members->count != told->count || members->history != told->history ||
        members->fence < told->fence) {
        members_lost(core, lock);
        return;
    }
    members->fence = us_max(members->fence, ticket->fence);
    LIST_EACH (link, &lock->watches) {
        struct watch *watch = container_of(link, struct watch, lock_link);
        if (watch->kind != WATCH_MEMBERS || ticket->arrival > watch->shown)
            continue;
        if (members_fill(core, watch, MEMBERS_UNREAD) ||
            !effects_spare(core->effects)) {
            members_again(core, watch);
            asks |= watch->asks;
            continue;
        }
        members_tell(core, watch, event, ticket);
        session_rests(core, watch->session);
    }
    if (asks)
        members_ask(core, lock);
}

static void
members_page(
    struct core *core, struct lock *lock, const struct op_members *told)
{
    const struct members was = lock->members;
    bool more = false;

    lock->members.known = true;
    lock->members.count = told->count;
    lock->members.sum = told->sum;
    lock->members.history = told->history;
    lock->members.fence = us_max(was.fence, told->fence);
    if (was.count != told->count || was.sum != told->sum ||
        was.history != told->history || was.fence < told->fence)
        members_restart(core, lock);
    LIST_EACH (link, &lock->watches) {
        struct watch *watch = container_of(link, struct watch, lock_link);
        if (watch->kind == WATCH_MEMBERS && watch->asks &&
            watch->shown == told->after && effects_spare(core->effects))
            members_show(core, watch, told);
        more |= watch->asks;
    }
    if (more)
        members_ask(core, lock);
    else
        watch_look_later(core, lock);
}

void
members_told(struct core *core, const struct op_members *told)
{
    struct lock *lock = watch_lock_of(core, told->key);

    if (lock == NULL || lock->members.watched == 0)
        return;
    if (told->kind == MEMBERS_PAGE || told->kind == MEMBERS_LAST)
        members_page(core, lock, told);
    else
        members_change(core, lock, told);
}

void
members_looked(struct core *core, struct lock *lock)
{
    require(lock->members.looks > 0);
    lock->members.looks--;
    if (lock->members.watched == 0 || lock->members.looks > 0)
        return;
    if (lock->members.again)
        members_ask(core, lock);
    else if (members_after(lock) != WATCH_SHOWN_ALL)
        wheel_add(&core->wheel, &lock->watch_timer,
            core->now_us + core_jitter(core, WATCH_RETRY_US));
}
