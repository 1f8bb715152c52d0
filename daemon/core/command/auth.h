/*
 * AUTH, and changes of the users. See auth.c.
 */
#ifndef HOLDFAST_CORE_COMMAND_AUTH_H
#define HOLDFAST_CORE_COMMAND_AUTH_H

#include "daemon/core/model/state.h"

/* Takes another time for AUTH, in microseconds. It holds for open connections,
 * too. */
void auth_set_timeout(struct core *core, uint64_t auth_us);

/* Refuses an AUTH whose delay is over, and frees it. Lines behind it go on in a
 * later step. */
void auth_answer(struct core *core, struct request *request);

/* Takes other users. Rights change at once. Sessions are checked by
 * auth_recheck() in later steps. */
void auth_set_users(struct core *core, const struct users *users);

/* Ends a LOCK whose user has lost the right to it. The answer may wait for
 * Redis, so the request may stay. */
void auth_end_wait(struct core *core, struct request *request);

/* Applies the changed users to the session. True: its user is gone, and the
 * session has ended. */
bool auth_recheck(struct core *core, struct session *session);

/* Asserts that the counts of users and of lines behind an AUTH are true. For
 * core_check(). */
void auth_check(const struct core *core);

#endif
