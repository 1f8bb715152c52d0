/*
 * A client connection over a socketpair, with a scripted broker at the other
 * end and a clock that stands until it is moved.
 */
#ifndef HOLDFAST_UNIT_TEST_CLIENT_H
#define HOLDFAST_UNIT_TEST_CLIENT_H

#include "proto/clients/c/client.h"
#include "proto/clients/c/link.h"
#include "proto/clients/c/submit.h"

#define TALK_START 1000000u /* ms; the clock of a talk begins here */
#define TOLD_BYTES 16384

struct talk {
    struct holdfast *h; /* owned */
    int broker;         /* owned; the other end */
    uint64_t now_ms;
    char told[TOLD_BYTES]; /* events so far, one a line */
    size_t told_len;
    char sent[TOLD_BYTES]; /* the result of talk_sent() */
};

/* Begins at TALK_START, without a greeting. */
void talk_init(struct talk *talk);
void talk_fini(struct talk *talk);

/* Begins with addresses. The caller sets talk->broker after the accept. */
void talk_init_at(struct talk *talk, const struct holdfast_options *options);

/* The broker sends `text`. The client reads it; its events are noted. */
void talk_say(struct talk *talk, const char *text);

/* talk_say() of the usual greeting, forgetting the event. */
void talk_greet(struct talk *talk);

/* Time passes, and the client has a turn. */
void talk_pass(struct talk *talk, uint64_t ms);

/* The bytes that the client has sent since the last call; a ref. */
const char *talk_sent(struct talk *talk);

/* The events since the last call, as "KIND request word ...\n"; a ref. */
const char *talk_told(struct talk *talk);

/*
 * A script: steps with line ends or " | " between them. Neighbouring lines of
 * one kind are one text.
 *
 * - `< LINE`: the broker says the line. `> LINE`: the client has sent it.
 * - `= LINE`: the event of the program. Without a line: nothing.
 * - `>*`, `=*`: ignores the text. `>~ TEXT`, `=~ TEXT`: looks for a part of it.
 * - `+MS`: time passes, with a turn of the client. `@MS`: without one.
 * - `clock MS`: sets the clock to TALK_START + MS.
 * - `pass MS`: turns at intervals of 500 ms until then.
 * - `lock NAME,NAME [wait=MS] [lease=MS] [owner=OWNER]`
 * - `unlock NAME[/OWNER] FENCE`, `renew NAME[/OWNER] FENCE MS`, `cancel
 *   REQUEST`, `submit WORD`, `watch NAME`, `unwatch NAME`
 * - `until NAME[/OWNER] FENCE MS`: the deadline is TALK_START + MS. 0: there is
 *   none. `some`: there is one.
 * - `timeout MS`, `margin MS`
 * - `shutdown`: the broker closes. A dot does nothing.
 */
struct talk_script {
    const char *name;
    const char *steps;
};

/* A step of one suite; false: it has no such step. Absent words are empty. */
typedef bool talk_step(char **word);

/* The number in a word of a step, or FOREVER. Other words fail the test. */
uint64_t talk_number(const char *word);

/* Fails the test unless `good`, and names the step. */
void talk_check(bool good);

/* Runs a script; `more` may be NULL. */
void talk_run(
    struct talk *talk, const struct talk_script *script, talk_step *more);

#endif
