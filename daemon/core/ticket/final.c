/*
 * The last answers to requests: errors, refusals by a limit, the count after an
 * UNLOCK. Each frees its request. The refusal of a member refuses its multi-
 * lock, and gives back the members that were had.
 */
#include "daemon/core/ticket/tickets.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/session_table.h"
#include "daemon/core/model/stats.h"
#include "daemon/core/ticket/states.h"

#include "daemon/base/assert.h"

#include <stdio.h>

/* Of an outstanding request, by commands.def: error codes, and two others. */
enum refusal {
    REFUSAL_INDOUBT = ERROR_INDOUBT,
    REFUSAL_UNAVAILABLE = ERROR_UNAVAILABLE,
    REFUSAL_AUTH = ERROR_AUTH,
    REFUSAL_REASON = ERROR_COUNT,
    REFUSAL_AT_ONCE,
};

#define UNAVAILABLE_BYTES (HEALTH_TEXT_MAX + 160)

static const enum refusal refusals[COMMAND_COUNT] = {

#define COMMAND(id, right, draining, refusal, ...) REFUSAL_##refusal,
#include "proto/commands.def"
};

enum error_code
command_refusal(enum command command, enum error_code reason)
{
    enum refusal refusal = refusals[command];

    require(refusal != REFUSAL_AT_ONCE);
    return refusal == REFUSAL_REASON ? reason : (enum error_code)refusal;
}

/* The answer to an UNLOCK of several names. */
static void
multilock_answer_release(struct core *core, const struct multilock *multilock)
{
    const struct request *parent = slab_get(&core->requests, multilock->parent);
    struct reply reply;

    require(parent != NULL && parent->command == COMMAND_UNLOCK);
    require(multilock->released <= multilock->count);
    if (multilock->failed == multilock->count) {
        reply = answer_begin(core, parent->tag, "OK");
        reply_pair_number(&reply, "count", multilock->holds);
    } else {
        answer_error_begin(core, &reply, parent->tag, multilock->failure);
        reply_pair(
            &reply, "name", multilock_name(multilock, multilock->failed));
        reply_pair_number(&reply, "released", multilock->released);
        reply_text(&reply, error_outcome(multilock->failure, COMMAND_UNLOCK));
    }
    answer_end(core, parent->session, &reply);
}

void
multilock_released(struct core *core, struct multilock *multilock,
    uint32_t place, enum error_code failure, uint32_t holds)
{
    const struct multilock_member *member = &multilock->members[place];
    uint32_t failed = multilock->failed;

    require(multilock->unanswered > 0);
    if (failure == ERROR_COUNT) {
        multilock->released++;
        multilock->holds = holds > multilock->holds ? holds : multilock->holds;
    } else if (failed == multilock->count ||
               member->position < multilock->members[failed].position) {
        multilock->failed = place;
        multilock->failure = failure;
    }
    if (--multilock->unanswered > 0)
        return;
    multilock_answer_release(core, multilock);
    multilock_end(core, multilock);
}

/* One name of an UNLOCK of several is answered. */
static void
member_released(struct core *core, struct request *member,
    enum error_code failure, uint32_t holds)
{
    struct multilock *multilock = multilock_of(core, member);
    uint32_t place = 0;

    require(member->member == MEMBER_RELEASES);
    while (multilock_member(core, multilock, place) != member)
        place++;
    require(place < multilock->count);
    member->multilock = HANDLE_NONE;
    member->member = MEMBER_NONE;
    request_free(core, member);
    multilock_released(core, multilock, place, failure, holds);
}

void
answer_count(struct core *core, struct request *request, uint32_t holds)
{
    if (request->member == MEMBER_RELEASES) {
        member_released(core, request, ERROR_COUNT, holds);
        return;
    }
    struct reply reply = answer_begin(core, request->tag, "OK");

    require(request->command == COMMAND_UNLOCK);
    reply_pair_number(&reply, "count", holds);
    if (request->ask.permits > 0 && holds > 0)
        reply_pair_number(&reply, "permits", request->ticket->ask.permits);
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

/* The reason that a request is not answered, as far as is known. */
static struct health_why
request_why(const struct core *core, const struct request *request)
{
    return health_why_slot(core->health,
        request->ticket != NULL ? request->ticket->lock->slot : HEALTH_NO_SLOT);
}

/* The text of UNAVAILABLE: which node cannot be asked, why, and what to do. */
static const char *
unavailable_text(
    enum command command, struct health_why why, char out[UNAVAILABLE_BYTES])
{
    char text[HEALTH_TEXT_MAX];

    if (why.reason == HEALTH_FINE)
        return error_outcome(ERROR_UNAVAILABLE, command);
    (void)snprintf(out, UNAVAILABLE_BYTES, "%s: %s",
        command == COMMAND_LOCK ? "nothing is held by this request"
                                : error_outcome(ERROR_UNAVAILABLE, command),
        health_text(&why, true, text));
    return out;
}

const char *
fence_text(enum error_code code, enum command command, uint64_t fence)
{
    bool notes = command == COMMAND_NOTE;

    if (fence > 0 && code == ERROR_NOTHELD)
        return notes ? "this session's owner has no such hold; a detached hold "
                       "keeps its note"
                     : "this session's owner has no such hold; a detached hold "
                       "needs detached=1";
    if (fence > 0 && code == ERROR_STALE)
        return notes ? "the hold has another fence; a detached hold keeps its "
                       "note"
                     : "the hold has another fence; a detached hold needs "
                       "detached=1";
    return NULL;
}

/* The name that is the reason why not all are had: the one that is denied, or
 * that was lost, or that is being taken. */
static struct text
multilock_culprit(const struct core *core, const struct session *session,
    const struct multilock *multilock, enum error_code code)
{
    uint32_t place = multilock->count;

    if (code == ERROR_DENIED)
        place = auth_denied(core, session, multilock);
    if (place < multilock->count)
        return multilock_name(multilock, place);
    place = 0; /* or it is allowed again by now */
    while (place < multilock->got &&
           !handle_equal(multilock->members[place].ticket, HANDLE_NONE))
        place++;
    return multilock_name(multilock, place);
}

/* Gives back what was had. */
static void
multilock_roll_back(struct core *core, struct multilock *multilock)
{
    for (uint32_t i = 0; i < multilock->got; i++) {
        struct ticket *ticket = multilock_hold(core, multilock, i);
        if (ticket != NULL)
            ticket_give_back(core, ticket);
    }
    multilock->got = 0;
}

/*
 * A member has been refused: by `code`, of which more is said in key=value
 * where there is a key. Granted members are given back, unless the request is
 * only called off here and the client goes on elsewhere.
 */
static void
multilock_refused(struct core *core, struct request *member,
    enum error_code code, const char *key, struct text value, const char *why)
{
    if (member->member == MEMBER_RELEASES) {
        member_released(core, member, code, 0);
        return;
    }
    struct multilock *multilock = multilock_of(core, member);
    struct request *parent = slab_get(&core->requests, multilock->parent);
    struct reply reply;

    require(parent != NULL && member->member == MEMBER_ASKS);
    require(multilock->got < multilock->count); /* DESIGN.md D10.5 */
    bool moves = code == ERROR_DRAINING ||
                 (code == ERROR_CANCELLED && session_closes(parent->session));
    answer_error_begin(core, &reply, parent->tag, code);
    if (code == ERROR_UNAVAILABLE && key == NULL)
        reply_pair_if(&reply, "reason",
            text_from(health_word(request_why(core, member).reason)));
    else if (code == ERROR_UNAVAILABLE) /* after_ms= */
        reply_pair(&reply, "reason", text_from(health_word(HEALTH_SETTLING)));
    if (key != NULL)
        reply_pair(&reply, key, value);
    reply_pair(&reply, "name",
        multilock_culprit(core, parent->session, multilock, code));
    reply_text(&reply, why != NULL ? why : error_meaning(code));
    answer_end(core, parent->session, &reply);
    if (moves && session_keeps(parent->session))
        multilock_leave(core, multilock);
    else
        multilock_roll_back(core, multilock);
    multilock_end(core, multilock);
}

void
request_refuse(struct core *core, struct request *request, enum error_code code,
    const char *why)
{
    const char *key = code == ERROR_DENIED ? "right" : NULL;
    struct health_why whose = request_why(core, request);
    char text[UNAVAILABLE_BYTES];
    struct reply reply;

    if (code == ERROR_TIMEOUT && request->presses)
        code = ERROR_BUSY;
    if (code == ERROR_UNAVAILABLE && why == NULL)
        why = unavailable_text(request->command, whose, text);
    if (why == NULL)
        why = fence_text(code, request->command, request->fence);

    stats_refused(core, request, code);
    if (request->member != MEMBER_NONE) {
        multilock_refused(core, request, code, key, TEXT("lock"), why);
        return;
    }
    answer_error_begin(core, &reply, request->tag, code);
    if (key != NULL)
        reply_pair(&reply, key,
            request->command == COMMAND_AWAIT ? TEXT("see") : TEXT("lock"));
    if (code == ERROR_UNAVAILABLE)
        reply_pair_if(&reply, "reason", text_from(health_word(whose.reason)));
    reply_text(
        &reply, why != NULL ? why : error_outcome(code, request->command));
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

void
request_unavailable(
    struct core *core, struct request *request, uint64_t after_us)
{
    static const char unsettled[] =
        "Redis is new to this broker, or has failed over: earlier holders may "
        "still report; ask again after after_ms";
    char digits[20];
    struct text after =
        text_make(digits, text_from_u64(digits, after_us / 1000 + 1));

    count(core->counters, COUNTER_refused_unavailable);
    stats_refused(core, request, ERROR_UNAVAILABLE);
    if (request->member != MEMBER_NONE) {
        multilock_refused(
            core, request, ERROR_UNAVAILABLE, "after_ms", after, unsettled);
        return;
    }
    struct reply reply;
    answer_error_begin(core, &reply, request->tag, ERROR_UNAVAILABLE);
    reply_pair(&reply, "reason", text_from(health_word(HEALTH_SETTLING)));
    reply_pair(&reply, "after_ms", after);
    reply_text(&reply, unsettled);
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

void
request_limit(struct core *core, struct request *request, const char *limit)
{
    stats_refused(core, request, ERROR_LIMIT);
    if (request->member != MEMBER_NONE) {
        multilock_refused(
            core, request, ERROR_LIMIT, "limit", text_from(limit), NULL);
        return;
    }
    answer_limit(core, request->session, request->tag, limit);
    request_free(core, request);
}

void
request_conflict(struct core *core, struct request *request, uint32_t limit)
{
    static const char why[] =
        "others hold it or wait for it as another kind of lock, or with "
        "another limit=";
    char digits[20];
    struct text number = text_make(digits, text_from_u64(digits, limit));

    stats_refused(core, request, ERROR_CONFLICT);
    if (request->member != MEMBER_NONE) {
        multilock_refused(core, request, ERROR_CONFLICT,
            limit > 0 ? "limit" : NULL, number, why);
        return;
    }
    struct reply reply;
    answer_error_begin(core, &reply, request->tag, ERROR_CONFLICT);
    if (limit > 0)
        reply_pair(&reply, "limit", number);
    reply_text(&reply, why);
    answer_end(core, request->session, &reply);
    request_free(core, request);
}

void
multilock_end(struct core *core, struct multilock *multilock)
{
    struct request *parent = slab_get(&core->requests, multilock->parent);

    require(parent != NULL && multilock_of(core, parent) == multilock);
    multilock_drop_members(core, multilock);
    slab_free(&core->multilocks, multilock);
    parent->multilock = HANDLE_NONE;
    request_free(core, parent);
}

void
ticket_deadlocked(struct core *core, struct ticket *ticket,
    struct request *request, struct text cycle, const char *why)
{
    struct reply reply;

    require(
        ticket->state == TICKET_WAITING && request->state != REQUEST_QUEUED);
    stats_refused(core, request, ERROR_DEADLOCK);
    if (!handle_equal(request->multilock, HANDLE_NONE)) {
        multilock_refused(core, request, ERROR_DEADLOCK, "cycle", cycle, why);
    } else {
        answer_error_begin(core, &reply, request->tag, ERROR_DEADLOCK);
        reply_pair(&reply, "cycle", cycle);
        reply_text(&reply, why);
        answer_end(core, request->session, &reply);
        request_free(core, request);
    }
    ticket_leave(core, ticket);
}
