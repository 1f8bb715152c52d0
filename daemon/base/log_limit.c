/*
 * A token bucket for each event, kept as the time when it is full again.
 */
#include "daemon/base/log_limit.h"

#include "daemon/base/assert.h"

#define SECOND_US ((uint64_t)1000000)

void
log_limit_init(struct log_limit *limit, uint32_t rate)
{
    require(rate <= LOG_LIMIT_RATE_MAX);
    memset(limit, 0, sizeof(*limit));
    if (rate == 0)
        return;
    limit->pause_us = SECOND_US / rate;
    limit->burst_us = limit->pause_us * rate;
}

static bool
is_of(const struct log_limit_event *entry, const char *event)
{
    return strncmp(entry->held_back.event, event, LOG_LIMIT_NAME_BYTES - 1) ==
           0;
}

static struct log_limit_event *
event_find(struct log_limit *limit, const char *event)
{
    struct log_limit_event *entry;

    require(limit->count <= LOG_LIMIT_EVENTS_MAX);
    for (uint32_t i = 0; i < limit->count; i++)
        if (is_of(&limit->events[i], event))
            return &limit->events[i];
    if (limit->count == LOG_LIMIT_EVENTS_MAX)
        return &limit->events[LOG_LIMIT_EVENTS_MAX - 1];
    entry = &limit->events[limit->count++];
    size_t len = strnlen(event, LOG_LIMIT_NAME_BYTES - 1);
    memcpy(entry->held_back.event, event, len);
    return entry;
}

bool
log_limit_take(struct log_limit *limit, enum log_level level, const char *event,
    uint64_t now_us)
{
    if (limit->pause_us == 0)
        return true;
    struct log_limit_event *entry = event_find(limit, event);
    struct log_held_back *held_back = &entry->held_back;
    if (entry->full_us < now_us)
        entry->full_us = now_us;
    if (entry->full_us + limit->pause_us <= now_us + limit->burst_us) {
        entry->full_us += limit->pause_us;
        return true;
    }
    if (held_back->lines++ == 0 || level < held_back->level)
        held_back->level = level;
    return false;
}

bool
log_limit_tell(struct log_limit *limit, struct log_held_back *held_back)
{
    for (uint32_t i = 0; i < limit->count; i++) {
        struct log_limit_event *entry = &limit->events[i];
        if (entry->held_back.lines == 0)
            continue;
        *held_back = entry->held_back;
        entry->held_back.lines = 0;
        return true;
    }
    return false;
}
