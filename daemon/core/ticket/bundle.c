/*
 * LOCK of several names: all or none.
 *
 * The names are taken one after the other in the order of their bytes, which is
 * the same for everybody, so that two such requests never wait for one another.
 * Each part is a LOCK of its own, whose answer comes here instead of to the
 * client. All of them take their turn at their tickets when the request comes,
 * and keep it until it is answered, so that what the client sent after it on
 * any of the names comes after it.
 *
 * Until the last one is had, what was had before is no hold that the client
 * knows of: it is not listed, not given back by UNLOCK, and where it is lost or
 * another part fails, all of it is given back and the request refused.
 *
 * request.c has the parts as requests, final.c the refusal of all of them.
 *
 * With lease= the parts are renewed until the last one is had; then the lease
 * begins, for all at once.
 *
 * See DESIGN.md D10.5.
 */
#include "daemon/core/ticket/bundle.h"

#include "daemon/core/answer/answer.h"
#include "daemon/core/model/request.h"
#include "daemon/core/model/tally.h"
#include "daemon/core/model/ticket.h"
#include "daemon/core/ticket/advance.h"
#include "daemon/core/ticket/final.h"
#include "daemon/core/ticket/hold.h"
#include "daemon/core/ticket/leave.h"
#include "daemon/core/ticket/wait.h"

#include "daemon/base/assert.h"

/* Takes the bundle's names out of the request, in their order. NULL, or what is
 * wrong with them. */
static const char *
bundle_fill(struct bundle *bundle, const struct request_line *line)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < line->name_count; i++) {
        struct text name = line->names[i];
        uint32_t place = i;
        while (place > 0) {
            int way = text_compare(bundle_name(bundle, place - 1), name);
            if (way == 0)
                return "a name was given twice";
            if (way < 0)
                break;
            bundle->parts[place] = bundle->parts[place - 1];
            place--;
        }
        require(used + name.len <= sizeof(bundle->text));
        memcpy(bundle->text + used, name.at, name.len);
        bundle->parts[place] = (struct bundle_part){
            .offset = (uint16_t)used, .len = (uint16_t)name.len, .position = i};
        used += (uint32_t)name.len;
    }
    bundle->count = line->name_count;
    return NULL;
}

void
bundle_lost(struct core *core, const struct request *had)
{
    struct bundle *bundle = bundle_of(core, had);
    uint32_t place = 0;

    require(had->part == PART_HAD);
    while (bundle_part(core, bundle, place) != had)
        place++;
    bundle->parts[place].ticket = HANDLE_NONE;
    (void)bundle_cancel(core, had, ERROR_UNAVAILABLE,
        "one of the names was had and lost again");
}

/* OK fence=F1,F2: in the order of the request. */
static void
bundle_answer(
    struct core *core, const struct bundle *bundle, const struct request *whole)
{
    struct reply reply = answer_begin(core, whole->tag, "OK");
    char fences[LOCK_NAMES_MAX * 21];
    uint64_t by_position[LOCK_NAMES_MAX] = {0};
    uint64_t ttl_ms = UINT64_MAX;
    uint32_t holds = UINT32_MAX;
    size_t len = 0;

    for (uint32_t i = 0; i < bundle->count; i++) {
        const struct ticket *ticket =
            slab_get(&core->tickets, bundle->parts[i].ticket);
        require(ticket != NULL);
        by_position[bundle->parts[i].position] = ticket->fence;
        ttl_ms = us_min(ttl_ms, ticket_ttl_ms(core, ticket));
        if (ticket->holds < holds)
            holds = ticket->holds;
    }
    for (uint32_t i = 0; i < bundle->count; i++) {
        if (i > 0)
            fences[len++] = ',';
        len += text_from_u64(fences + len, by_position[i]);
    }
    reply_pair(&reply, "fence", text_make(fences, len));
    reply_pair_number(&reply, "ttl_ms", ttl_ms);
    reply_pair_number(&reply, "count", holds);
    answer_end(core, whole->session, &reply);
}

/* All are had. What waited for that goes on, and a session that ends gives all
 * back. */
static void
bundle_finish(struct core *core, struct bundle *bundle)
{
    struct request *whole = slab_get(&core->requests, bundle->whole);

    require(whole != NULL);
    for (uint32_t i = 0; i < bundle->count; i++) {
        struct ticket *ticket = bundle_hold(core, bundle, i);
        require(ticket != NULL);
        if (whole->ask.hold_ms > 0 && ticket->holds == 1)
            ticket_set_lease(core, ticket, whole->ask.hold_ms);
    }
    bundle_answer(core, bundle, whole);
    bundle_end(core, bundle);
}

/* The next part begins, at once or when its turn comes. */
static void
bundle_advance(struct core *core, struct bundle *bundle)
{
    const struct request *whole = slab_get(&core->requests, bundle->whole);
    struct request *part = bundle_part(core, bundle, bundle->got);

    require(part != NULL && whole != NULL);
    request_begin_part(core, part, whole);
    if (part->wait_us == 0 && whole->wait_us > 0) {
        request_refuse(core, part, ERROR_UNAVAILABLE, NULL);
        return;
    }
    ticket_advance(core, part->ticket);
}

void
bundle_granted(struct core *core, struct request *part, struct ticket *ticket)
{
    struct bundle *bundle = bundle_of(core, part);
    struct bundle_part *place = &bundle->parts[bundle->got++];

    place->ticket = slab_handle(&core->tickets, ticket);
    place->fence = ticket->fence;
    part->part = PART_HAD;
    part->asked = false;
    wheel_remove(&core->wheel, &part->timer);
    if (bundle->got == bundle->count)
        bundle_finish(core, bundle);
    else
        bundle_advance(core, bundle);
}

/* Takes a turn for every part. False: there was no room, and the request has
 * been refused. */
static bool
bundle_line_up(struct core *core, struct bundle *bundle, struct request *whole)
{
    struct text owner = text_make(bundle->owner, bundle->owner_len);
    const char *limit = "requests";
    uint32_t i;

    for (i = 0; i < bundle->count; i++) {
        struct request *part = request_create_part(core, whole);
        if (part == NULL) {
            count(core->counters, COUNTER_limit_requests);
            break;
        }
        bundle->parts[i].request = slab_handle(&core->requests, part);
        part->ticket = ticket_obtain(
            core, whole->session, bundle_name(bundle, i), owner, &limit);
        if (part->ticket == NULL)
            break;
        list_push_back(&part->ticket->requests, &part->ticket_link);
    }
    if (i == bundle->count)
        return true;
    tally_turned_away(core, bundle_name(bundle, i), ERROR_LIMIT);
    answer_limit(core, whole->session, whole->tag, limit);
    bundle_end(core, bundle);
    return false;
}

void
bundle_begin(
    struct core *core, struct request *whole, const struct request_line *line)
{
    struct bundle *bundle = slab_alloc(&core->bundles);

    if (bundle == NULL) {
        tally_turned_away(core, line->argument, ERROR_LIMIT);
        request_limit(core, whole, "requests");
        return;
    }
    const char *wrong = bundle_fill(bundle, line);
    if (wrong != NULL) {
        slab_free(&core->bundles, bundle);
        count(core->counters, COUNTER_requests_bad);
        request_refuse(core, whole, ERROR_BADREQ, wrong);
        return;
    }
    if (request_has(line, REQUEST_KEY_OWNER)) {
        struct text owner = line->word[REQUEST_KEY_OWNER];
        memcpy(bundle->owner, owner.at, owner.len);
        bundle->owner_len = (uint8_t)owner.len;
    }
    bundle->whole = slab_handle(&core->requests, whole);
    whole->bundle = slab_handle(&core->bundles, bundle);
    if (bundle_line_up(core, bundle, whole))
        bundle_advance(core, bundle);
}

bool
bundle_is_waiting(const struct core *core, const struct request *part)
{
    const struct bundle *bundle = bundle_of(core, part);
    const struct request *asks = bundle_part(core, bundle, bundle->got);

    if (asks == NULL || asks->ticket == NULL)
        return false;
    if (ticket_is_patient(asks->ticket) || ticket_lapses(core, asks->ticket))
        return true;
    /* Or it stands behind one that came before, and waits. */
    const struct request *first =
        container_of(asks->ticket->requests.next, struct request, ticket_link);
    return request_stands(first) && bundle_is_waiting(core, first);
}

bool
bundle_cancel(struct core *core, const struct request *request,
    enum error_code code, const char *why)
{
    const struct bundle *bundle = bundle_of(core, request);

    require(bundle != NULL);
    struct request *part = bundle_part(core, bundle, bundle->got);
    require(part != NULL);
    return ticket_cancel(core, part->ticket, part, code, why);
}
