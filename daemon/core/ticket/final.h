/*
 * The last answers to requests. See final.c.
 */
#ifndef HOLDFAST_CORE_TICKET_FINAL_H
#define HOLDFAST_CORE_TICKET_FINAL_H

#include "daemon/core/model/state.h"

/* The code that refuses an outstanding request of that command as its session
 * ends; `reason` is that of a LOCK. */
enum error_code command_refusal(enum command command, enum error_code reason);

/* Answers an UNLOCK with OK and the holds that are left, and frees the
 * request. */
void answer_count(struct core *core, struct request *request, uint32_t holds);

/* Refuses the request with `code`, counts that for its namespace, and frees the
 * request. `why` may be NULL: the text of the code. */
void request_refuse(struct core *core, struct request *request,
    enum error_code code, const char *why);

/* Refuses the request, since the broker is settled with the lock's node only
 * after `after_us`, and frees it. */
void request_unavailable(
    struct core *core, struct request *request, uint64_t after_us);

/* Refuses the request by the limit of that name, and frees it. The caller has
 * counted the limit. */
void request_limit(
    struct core *core, struct request *request, const char *limit);

/* Frees the multi-lock, its members and its request, after the answer. */
void multilock_end(struct core *core, struct multilock *multilock);

/* Refuses a LOCK whose wait would never end, and frees the request. The ticket
 * leaves. */
void ticket_deadlocked(struct core *core, struct ticket *ticket,
    struct request *request, struct text cycle, const char *why);

#endif
