/*
 * Commands of clients, and what they need: rights, limits, the stop.
 */
#ifndef HOLDFAST_CORE_COMMAND_COMMAND_H
#define HOLDFAST_CORE_COMMAND_COMMAND_H

#include "daemon/core/model/state.h"
#include "daemon/op/kind.h"
#include "proto/request.h"

/* command.c */

/* Takes the answer to OP_BREAK. An inspection then shows whether the holders
 * have let go. */
void command_break_done(struct core *core, struct op *op);

/* Inspects the lock of a BREAK, to see whether its holders have let go. */
void command_break_look(struct core *core, struct request *request);

/* Takes the inspection for a BREAK: answers it, or looks again until the
 * command's time-out. */
void command_break_seen(struct core *core, struct op *op);

/* The time of a request is over. Each command has its own row of what then
 * happens. */
void command_timer(struct core *core, struct request *request);

/* Parses and carries out one request line. `line` is changed. The session may
 * be gone afterwards. */
void command_line(
    struct core *core, struct session *session, char *line, size_t len);

/* admit.c */

/* Whether the user may send that request. A refusal has been answered and
 * counted. */
bool auth_permits(struct core *core, struct session *session,
    const struct request_line *line);

/* Creates the request of a session. NULL: a limit forbids it, and the client
 * has been told. */
struct request *request_admit(struct core *core, struct session *session,
    const struct request_line *line);

/* Creates an operation on a lock's record, for a request that waits for
 * nothing else. NULL: there is no room, and the client was told. */
struct op *command_op(struct core *core, struct session *session,
    const struct request_line *line, enum op_kind kind);

/* The error of limit= of a semaphore, or NULL. */
const char *limit_objection(
    const struct core *core, const struct request_line *line);

/* auth.c */

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

/* detached.c */

/* The error of a request with detached=1, or NULL. */
const char *detached_objection(const struct request_line *line);

/* An UNLOCK or RENEW with detached=1, of one name. */
void detached_command(struct core *core, struct session *session,
    const struct request_line *line);

/* Takes the answer of Redis to that, or to RESIZE. */
void detached_done(struct core *core, struct op *op);

/* stop.c */

/* Begins the stop: sessions are told, and grace begins. A second call does
 * nothing. */
void core_stop(struct core *core);

/* Ends grace: each session ends in a step of its own. */
void core_stop_grace_over(struct core *core);

#endif
