/*
 * A record that searches for deadlocks read: which of its tickets are in the
 * way of a wait. See DESIGN.md D6.2.
 */
#include "daemon/core/feature/deadlock.h"

#include "daemon/op/op.h"

#include "daemon/base/assert.h"

bool
ticket_is_over(const struct op_ticket *ticket)
{
    return !ticket->granted && ticket->ttl_ms == 0;
}

/*
 * The waits that an ended request has left: their owners wait further behind.
 * Nobody asks after them, and they end. One walk from the end of the queue, for
 * there may be hundreds, with the owners that were met in a table of hashes.
 */
static void
find_left(const struct core *core, struct reading *reading)
{
    const struct op_result *result = reading->result;
    uint64_t met[2 * INSPECTION_TICKETS] = {0};

    require(result->ticket_count <= INSPECTION_TICKETS);
    for (uint32_t i = result->ticket_count; i > 0; i--) {
        const struct op_ticket *ticket = &result->tickets[i - 1];
        uint8_t owner[24];
        reading->left[i - 1] = false;
        if (ticket->granted || ticket_is_over(ticket))
            continue;
        memcpy(owner, ticket->session, 16);
        memcpy(owner + 16, ticket->owner_hash, 8);
        uint64_t hash = hash_bytes(&core->hash_key, owner, sizeof(owner)) | 1;
        uint32_t at = (uint32_t)(hash >> 32) % (2 * INSPECTION_TICKETS);
        while (met[at] != 0 && met[at] != hash)
            at = (at + 1) % (2 * INSPECTION_TICKETS);
        reading->left[i - 1] = met[at] == hash;
        met[at] = hash;
    }
}

/*
 * A shared intention goes with those who share the whole, and with other
 * intentions. Behind such a wait it waits for all that this one waits for: the
 * queue is first come, first served.
 */
static void
find_bars(struct reading *reading)
{
    static const enum mode modes[3] = {
        MODE_SHARED, MODE_UPGRADABLE, MODE_INTENT};
    const struct op_result *result = reading->result;
    uint32_t next[3] = {/* wait of that mode */
        INSPECTION_TICKETS, INSPECTION_TICKETS, INSPECTION_TICKETS};

    require(result->ticket_count <= INSPECTION_TICKETS);
    for (uint32_t i = result->ticket_count; i > 0; i--) {
        const struct op_ticket *ticket = &result->tickets[i - 1];
        bool waits = !ticket->granted && !reading->left[i - 1] &&
                     !ticket_is_over(ticket);
        reading->bars[i - 1] = INSPECTION_TICKETS;
        for (int m = 0; m < 3; m++) {
            if (!modes_join(modes[m], ticket->mode) &&
                next[m] < reading->bars[i - 1])
                reading->bars[i - 1] = next[m];
            if (waits && ticket->mode == modes[m])
                next[m] = i - 1;
        }
    }
}

void
reading_begin(const struct core *core, struct reading *reading,
    const struct op_result *result)
{
    reading->result = result;
    find_left(core, reading);
    find_bars(reading);
}

/* Whether one of them is an upgrade of the other. */
static bool
is_same_owner(const struct op_ticket *a, const struct op_ticket *b)
{
    return (a->mode == MODE_UPGRADE) != (b->mode == MODE_UPGRADE) &&
           memcmp(a->session, b->session, 16) == 0 &&
           memcmp(a->owner_hash, b->owner_hash, 8) == 0;
}

bool
reading_in_the_way(const struct reading *reading, uint32_t own, uint32_t other)
{
    const struct op_result *result = reading->result;
    const struct op_ticket *before = &result->tickets[other];

    require(other < own && own < result->ticket_count);
    /* Anybody may end a detached hold, also where its broker does not know yet
     * that it is one. */
    if (reading->left[other] || ticket_is_over(before) || before->detached ||
        is_same_owner(&result->tickets[own], before))
        return false;
    if (result->limit > 0)
        return before->granted && result->holders == 1;
    if (result->tickets[own].mode == MODE_INTENT_SHARED &&
        reading->bars[other] < own)
        return true;
    /* A reader behind an upgradable wait waits for another upgradable hold. */
    return (!before->granted && before->mode == MODE_UPGRADABLE) ||
           !modes_join(result->tickets[own].mode, before->mode);
}
