/*
 * Replies and events, and lines behind an AUTH.
 */
#ifndef HOLDFAST_CORE_ANSWER_ANSWER_H
#define HOLDFAST_CORE_ANSWER_ANSWER_H

#include "daemon/core/model/state.h"

/* answer.c */

#define LISTING_MAX 500

/* Begins a final reply in the step's buffer. answer_end() must follow before
 * another line begins. */
struct reply answer_begin(struct core *core, const char *tag, const char *word);

/* Begins an event line. answer_end() must follow before another line begins. */
struct reply answer_event(struct core *core, enum event_code event);

/* Adds key=value, unless the value is empty. */
void reply_pair_if(struct reply *reply, const char *key, struct text value);

/* Adds the times that the client of the session may count on. */
void answer_times(const struct core *core, const struct session *session,
    struct reply *reply);

/* Sends the line to the session. A session without a connection gets
 * nothing. */
void answer_end(
    struct core *core, const struct session *session, struct reply *reply);

/* Begins an ERR with that tag and code. answer_end() must follow. */
void answer_error_begin(struct core *core, struct reply *reply, const char *tag,
    enum error_code code);

/* Sends an ERR. `why` NULL stands for the meaning of the code. The request is
 * not freed: see request_refuse(). */
void answer_error(struct core *core, const struct session *session,
    const char *tag, enum error_code code, const char *why);

/* Sends ERR LIMIT with the name of the limit. The caller counts the refusal. */
void answer_limit(struct core *core, const struct session *session,
    const char *tag, const char *limit);

/* Sends OK with the tag of the request and nothing else. */
void answer_ok(struct core *core, struct session *session,
    const struct request_line *line);

/* How many items one answer has, by limit= of the request. */
uint32_t listing_limit(const struct request_line *line);

/* Ends a list with OK, the number of items, and the cursor of the next part; 0:
 * there is none. */
void listing_end(struct core *core, struct session *session, const char *tag,
    uint32_t shown, uint32_t next);

/* Adds what is left of the lease of a hold; or that its broker renews it. */
void reply_lease(struct reply *reply, bool leased, uint64_t lease_ms);

/* The same for a hold of this broker. */
void answer_lease(
    struct core *core, struct reply *reply, const struct ticket *ticket);

/* The keys of the LOCK that have another value than its hold, which a re-entry
 * does not change: bits for reply_ignored(). `hold_ms` is its lease=. */
unsigned hold_ignores(const struct ticket *ticket,
    const struct request *request, uint64_t hold_ms);

/* Adds ignored=WORD,WORD, if there is any. */
void reply_ignored(struct reply *reply, unsigned ignored);

/* The mode as SHOW says it. */
struct text mode_name(enum mode mode);

/* Adds the mode of a hold or a wait. Nothing is said of an exclusive one. */
void reply_mode(struct reply *reply, enum mode mode);

/* Adds the kind of a hold: shared, or its permits. Nothing is said of an
 * exclusive hold. */
void listing_kind(struct reply *reply, const struct ask *ask);

/* behind.c */

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
