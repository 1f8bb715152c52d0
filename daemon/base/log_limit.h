/*
 * Limits the lines of each event: a flood of one event must neither fill the
 * disk nor hide others. Knows no clock and writes nothing.
 */
#ifndef HOLDFAST_BASE_LOG_LIMIT_H
#define HOLDFAST_BASE_LOG_LIMIT_H

#include "daemon/base/log.h"

#define LOG_LIMIT_RATE_MAX   1000000 /* lines a second */
#define LOG_LIMIT_EVENTS_MAX 128     /* more than there are */
#define LOG_LIMIT_NAME_BYTES 32

/* Suppressed lines of an event since the last report. */
struct log_held_back {
    char event[LOG_LIMIT_NAME_BYTES]; /* cut to what fits */
    enum log_level level;             /* the most severe of them */
    uint64_t lines;
};

struct log_limit_event {
    struct log_held_back held_back;
    uint64_t full_us; /* when a full burst may come again */
};

struct log_limit {
    uint64_t pause_us; /* the time between lines; 0: no limit */
    uint64_t burst_us;
    uint32_t count;
    struct log_limit_event events[LOG_LIMIT_EVENTS_MAX];
};

/* Allows `rate` lines a second of each event, at most LOG_LIMIT_RATE_MAX, and
 * as many at once after a second of silence. 0: no limit. */
void log_limit_init(struct log_limit *limit, uint32_t rate);

/*
 * Whether a line of `event` may be written now; else counts it. `now_us` never
 * goes back. With too many events, the last ones share a count.
 */
bool log_limit_take(struct log_limit *limit, enum log_level level,
    const char *event, uint64_t now_us);

/* Takes an event with suppressed lines, and resets its count. False: there is
 * none. */
bool log_limit_tell(struct log_limit *limit, struct log_held_back *held_back);

#endif
