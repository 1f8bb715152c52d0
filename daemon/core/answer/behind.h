/*
 * Lines behind an AUTH. See behind.c.
 */
#ifndef HOLDFAST_CORE_ANSWER_BEHIND_H
#define HOLDFAST_CORE_ANSWER_BEHIND_H

#include "daemon/core/model/state.h"

/* Whether a new line must wait for the reply to an AUTH. */
bool auth_pauses(const struct session *session);

/* Takes a line that comes behind an AUTH, or refuses it by a limit. False:
 * nothing is to be waited for, and the caller serves the line. */
bool auth_keeps_back(struct core *core, struct session *session,
    const char *line, size_t len, bool too_long);

/* Takes the next line out; the caller frees it. NULL: there is none. */
struct behind *behind_pop(struct session *session);

/* Frees a line, and wipes its bytes, which may be a secret. */
void behind_free(struct core *core, struct behind *behind);

/* The session ends before their turn: each line behind the AUTH is refused with
 * `code`. */
void auth_refuse_behind(
    struct core *core, struct session *session, enum error_code code);

/* Forgets all lines behind the AUTH, without an answer. */
void auth_drop_behind(struct core *core, struct session *session);

#endif
