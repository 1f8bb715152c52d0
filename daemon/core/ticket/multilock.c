/*
 * LOCK of several names: all or none. UNLOCK of several names: each by itself.
 *
 * The names are taken one after the other in the order of their bytes, which is
 * the same for everybody, so that two such requests never wait for one another.
 * Each member is a LOCK of its own, whose answer comes here instead of to the
 * client. All of them take their turn at their tickets when the request comes,
 * and keep it until it is answered. So later requests of the client on any of
 * the names come after it.
 *
 * Until the last member is granted, the client knows of no hold: LIST does not
 * show the members, and UNLOCK does not release them. If one is lost or fails,
 * all are released and the request is refused.
 *
 * With tree=1 the names above the names are members, too: intentions. The turn
 * of an intention ends once it is had, so that two LOCKs of one owner for two
 * parts do not wait for one another. See part.c.
 *
 * request.c has the parts as requests, final.c the refusal of all of them.
 *
 * With lease= the parts are renewed until the last one is had; then the lease
 * begins, for all at once.
 *
 * See DESIGN.md D10.5.
 */
#include "daemon/core/ticket/tickets.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/hooks.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/part.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/model/upgrade.h"
#include "daemon/core/ticket/states.h"

#include "daemon/base/assert.h"

static const char name_twice[] = "a name was given twice";

/* Puts a member in its place. NULL, or what is wrong with it. */
static const char *
multilock_insert(struct multilock *multilock, struct multilock_member member)
{
    struct text name = text_make(multilock->text + member.offset, member.len);
    uint32_t place = multilock->count;

    while (place > 0 &&
           text_compare(multilock_name(multilock, place - 1), name) > 0)
        place--;
    if (place > 0 && text_equal(multilock_name(multilock, place - 1), name)) {
        bool intent = multilock->members[place - 1].intent;
        if (intent && member.intent)
            return NULL;
        return intent == member.intent
                   ? name_twice
                   : "a name is above another one: the whole has all parts";
    }
    if (multilock->count == LOCK_NAMES_MAX)
        return "tree=1 takes at most 16 names, with all names above them";
    memmove(&multilock->members[place + 1], &multilock->members[place],
        (multilock->count - place) * sizeof(member));
    multilock->members[place] = member;
    multilock->count++;
    return NULL;
}

/* Takes the names above the member. NULL, or what is wrong with them. */
static const char *
multilock_insert_above(
    struct multilock *multilock, struct multilock_member member)
{
    struct text name = text_make(multilock->text + member.offset, member.len);
    const char *wrong = NULL;

    member.intent = true;
    while (wrong == NULL && name_above(&name)) {
        member.len = (uint16_t)name.len;
        wrong = multilock_insert(multilock, member);
    }
    return wrong;
}

/* Takes the names out of the request, in their order. NULL, or what is wrong
 * with them. */
static const char *
multilock_fill(
    struct multilock *multilock, const struct request_line *line, bool tree)
{
    uint32_t used = 0;
    const char *wrong = NULL;

    require(line->name_count <= LOCK_NAMES_MAX);
    for (uint32_t i = 0; wrong == NULL && i < line->name_count; i++) {
        struct text name = line->names[i];
        struct multilock_member member = {
            .offset = (uint16_t)used, .len = (uint16_t)name.len, .position = i};
        require(used + name.len <= sizeof(multilock->text));
        memcpy(multilock->text + used, name.at, name.len);
        used += (uint32_t)name.len;
        wrong = multilock_insert(multilock, member);
        if (wrong == NULL && tree)
            wrong = multilock_insert_above(multilock, member);
    }
    multilock->names = line->name_count;
    return wrong;
}

void
multilock_lost(struct core *core, const struct request *had)
{
    struct multilock *multilock = multilock_of(core, had);
    uint32_t place = 0;

    require(had->member == MEMBER_HAD);
    while (multilock_member(core, multilock, place) != had)
        place++;
    require(place < multilock->got);
    multilock->members[place].ticket = HANDLE_NONE;
    (void)multilock_cancel(core, had, ERROR_UNAVAILABLE,
        "one of the names was had and lost again");
}

/* OK fence=F1,F2: in the order of the request. */
static void
multilock_answer(struct core *core, const struct multilock *multilock,
    const struct request *parent)
{
    struct reply reply = answer_begin(core, parent->tag, "OK");
    char fences[LOCK_NAMES_MAX * 21];
    uint64_t by_position[LOCK_NAMES_MAX] = {0};
    uint64_t ttl_ms = UINT64_MAX;
    uint64_t lease_ms = UINT64_MAX;
    uint32_t holds = UINT32_MAX;
    size_t len = 0;

    for (uint32_t i = 0; i < multilock->count; i++) {
        const struct ticket *ticket =
            slab_get(&core->tickets, multilock->members[i].ticket);
        require(ticket != NULL);
        ttl_ms = us_min(ttl_ms, ticket_ttl_ms(core, ticket));
        if (multilock->members[i].intent)
            continue;
        by_position[multilock->members[i].position] = ticket->fence;
        if (ticket->hard_end_us != NEVER)
            lease_ms = us_min(lease_ms, ticket_lease_ms(core, ticket));
        uint32_t all = ticket_all_holds(core, ticket);
        holds = all < holds ? all : holds;
    }
    for (uint32_t i = 0; i < multilock->names; i++) {
        if (i > 0)
            fences[len++] = ',';
        len += text_from_u64(fences + len, by_position[i]);
    }
    require(len <= sizeof(fences) && holds > 0);
    reply_pair(&reply, "fence", text_make(fences, len));
    reply_pair_number(&reply, "ttl_ms", ttl_ms);
    reply_pair_number(&reply, "count", holds);
    reply_lease(&reply, lease_ms != UINT64_MAX, lease_ms);
    reply_ignored(&reply, multilock->ignored);
    answer_end(core, parent->session, &reply);
}

/* Whether an intention that was had is held no more. */
static bool
multilock_is_uprooted(const struct core *core, struct multilock *multilock)
{
    bool uprooted = false;

    for (uint32_t i = 0; i < multilock->got; i++) {
        if (!multilock->members[i].intent ||
            multilock_hold(core, multilock, i) != NULL)
            continue;
        multilock->members[i].ticket = HANDLE_NONE;
        uprooted = true;
    }
    return uprooted;
}

/* All are granted. Requests that waited for that go on, and a session that ends
 * gives all back. */
static void
multilock_finish(struct core *core, struct multilock *multilock)
{
    struct request *parent = slab_get(&core->requests, multilock->parent);

    require(parent != NULL);
    for (uint32_t i = 0; i < multilock->count; i++) {
        struct ticket *ticket = multilock_hold(core, multilock, i);
        require(ticket != NULL);
        if (multilock->members[i].intent)
            continue;
        if (ticket->ask.part && !ticket->part)
            part_join(core, ticket);
        ticket_arm(core, ticket);
        if (parent->ask.hold_ms > 0 && ticket->holds == 1)
            ticket_set_lease(core, ticket, parent->ask.hold_ms);
        if (parent->wanted)
            core->hooks->wanted(core, ticket);
        multilock->ignored |= hold_ignores(ticket, parent, parent->ask.hold_ms);
    }
    multilock_answer(core, multilock, parent);
    for (uint32_t i = 0; i < multilock->count; i++) {
        if (multilock->members[i].intent)
            intent_give_back(core, multilock_hold(core, multilock, i));
    }
    multilock_end(core, multilock);
}

/* The next member begins at the end of the step, or when its turn comes. */
static void
multilock_advance(struct core *core, struct multilock *multilock)
{
    const struct request *parent = slab_get(&core->requests, multilock->parent);
    struct request *member = multilock_member(core, multilock, multilock->got);

    require(multilock->got < multilock->count);
    require(member != NULL && parent != NULL);
    require(multilock->got == 0 || /* DESIGN.md D10.5: the order of bytes */
            text_compare(multilock_name(multilock, multilock->got - 1),
                multilock_name(multilock, multilock->got)) < 0);
    request_begin_member(core, member, parent);
    if (member->wait_us == 0 && parent->wait_us > 0) {
        request_refuse(core, member, ERROR_UNAVAILABLE, NULL);
        return;
    }
    ticket_stir(core, member->ticket);
}

void
multilock_granted(
    struct core *core, struct request *granted, struct ticket *ticket)
{
    struct multilock *multilock = multilock_of(core, granted);

    require(ticket->state == TICKET_HELD && ticket->holds > 0);
    if (multilock_is_uprooted(core, multilock)) {
        request_refuse(core, granted, ERROR_UNAVAILABLE,
            "a name above it was had and lost again");
        ticket_give_back(core, ticket);
        return;
    }
    struct multilock_member *member = &multilock->members[multilock->got++];
    require(multilock_member(core, multilock, multilock->got - 1) == granted);
    require(handle_equal(member->ticket, HANDLE_NONE));
    member->ticket = slab_handle(&core->tickets, ticket);
    member->fence = ticket->fence;
    request_move(granted, REQUEST_QUEUED);
    granted->member = MEMBER_HAD;
    wheel_remove(&core->wheel, &granted->timer);
    if (member->intent) { /* later requests have their turn */
        list_remove(&granted->ticket_link);
        granted->ticket = NULL;
    }
    if (multilock->got == multilock->count)
        multilock_finish(core, multilock);
    else
        multilock_advance(core, multilock);
}

/* The member asks for an intention. */
static void
request_make_intent(struct request *member)
{
    bool shared = member->ask.mode == MODE_SHARED;

    member->ask = (struct ask){
        .mode = shared ? MODE_INTENT_SHARED : MODE_INTENT, .permits = 1};
    member->note_len = 0;
}

/* Takes a turn for every member. False: there was no room, and the request has
 * been refused. */
static bool
multilock_line_up(
    struct core *core, struct multilock *multilock, struct request *parent)
{
    struct text owner = text_make(multilock->owner, multilock->owner_len);
    const char *limit = "requests";
    uint32_t i;

    for (i = 0; i < multilock->count; i++) {
        struct request *member = request_create_member(core, parent);
        if (member == NULL) {
            count(core->counters, COUNTER_limit_requests);
            break;
        }
        multilock->members[i].request = slab_handle(&core->requests, member);
        struct text name = multilock_name(multilock, i);
        member->ask.part = parent->ask.part && name_above(&name);
        if (multilock->members[i].intent)
            request_make_intent(member);
        member->ticket = ticket_for_lock(
            core, parent->session, multilock_name(multilock, i), owner, &limit);
        if (member->ticket == NULL)
            break;
        require(member->ticket->session == member->session);
        list_push_back(&member->ticket->requests, &member->ticket_link);
    }
    if (i == multilock->count)
        return true;
    stats_turned_away(core, multilock_name(multilock, i), ERROR_LIMIT);
    answer_limit(core, parent->session, parent->tag, limit);
    multilock_end(core, multilock);
    return false;
}

/* NULL: a limit or the request forbids it, and the request was refused. */
static struct multilock *
multilock_create(
    struct core *core, struct request *parent, const struct request_line *line)
{
    struct multilock *multilock = slab_alloc(&core->multilocks);

    require(parent->ticket == NULL && parent->member == MEMBER_NONE);
    if (multilock == NULL) {
        if (line->command == COMMAND_LOCK)
            stats_turned_away(core, line->argument, ERROR_LIMIT);
        request_limit(core, parent, "requests");
        return NULL;
    }
    const char *wrong = multilock_fill(multilock, line, parent->ask.part);
    if (wrong != NULL) {
        slab_free(&core->multilocks, multilock);
        count(core->counters, COUNTER_requests_bad);
        request_refuse(core, parent, ERROR_BADREQ, wrong);
        return NULL;
    }
    if (request_has(line, REQUEST_KEY_OWNER)) {
        struct text owner = line->word[REQUEST_KEY_OWNER];
        memcpy(multilock->owner, owner.at, owner.len);
        multilock->owner_len = (uint8_t)owner.len;
    }
    multilock->parent = slab_handle(&core->requests, parent);
    parent->multilock = slab_handle(&core->multilocks, multilock);
    return multilock;
}

void
multilock_begin(
    struct core *core, struct request *parent, const struct request_line *line)
{
    struct multilock *multilock = multilock_create(core, parent, line);

    if (multilock != NULL && multilock_line_up(core, multilock, parent))
        multilock_advance(core, multilock);
}

/* The UNLOCK of one name takes its turn at the ticket, if there is one. False:
 * there was no room. */
static bool
multilock_line_up_release(struct core *core, struct multilock *multilock,
    struct request *parent, uint32_t place)
{
    struct lock *lock = lock_find(core, multilock_name(multilock, place));
    struct ticket *ticket = NULL;

    if (lock != NULL)
        ticket = ticket_meant(core, parent->session, lock,
            text_make(multilock->owner, multilock->owner_len), 0);
    if (ticket == NULL)
        return true;
    struct request *member = request_create_member(core, parent);
    if (member == NULL)
        return false;
    multilock->members[place].request = slab_handle(&core->requests, member);
    member->member = MEMBER_RELEASES;
    member->ticket = ticket;
    list_push_back(&ticket->requests, &member->ticket_link);
    return true;
}

void
multilock_unlock(
    struct core *core, struct request *parent, const struct request_line *line)
{
    struct multilock *multilock = multilock_create(core, parent, line);

    if (multilock == NULL)
        return;
    multilock->failed = multilock->count;
    multilock->unanswered = multilock->count;
    for (uint32_t i = 0; i < multilock->count; i++) {
        if (multilock_line_up_release(core, multilock, parent, i))
            continue;
        count(core->counters, COUNTER_limit_requests);
        answer_limit(core, parent->session, parent->tag, "requests");
        multilock_end(core, multilock);
        return;
    }
    /* The tickets come at the end of the step. The last of these answers frees
     * the multi-lock. */
    uint32_t names = multilock->count;
    for (uint32_t i = 0; i < names; i++) {
        const struct request *member = multilock_member(core, multilock, i);
        if (member != NULL)
            ticket_stir(core, member->ticket);
        else
            multilock_released(core, multilock, i, ERROR_NOTHELD, 0);
    }
}

bool
multilock_is_waiting(const struct core *core, const struct request *member)
{
    const struct multilock *multilock = multilock_of(core, member);
    const struct request *asks =
        multilock_member(core, multilock, multilock->got);

    if (asks == NULL || asks->ticket == NULL)
        return false;
    if (ticket_is_patient(asks->ticket) || ticket_expires(core, asks->ticket))
        return true;
    /* Or it stands behind one that came before, and waits. */
    const struct request *first =
        container_of(asks->ticket->requests.next, struct request, ticket_link);
    return request_stands(first) && multilock_is_waiting(core, first);
}
