/*
 * A client connection over a socketpair, with a scripted broker at the other
 * end and a clock that stands until it is moved.
 */
#ifndef HOLDFAST_UNIT_TEST_CLIENT_H
#define HOLDFAST_UNIT_TEST_CLIENT_H

#include "proto/client/client.h"
#include "proto/client/link.h"
#include "proto/client/watch.h"

#define TOLD_BYTES 16384

struct talk {
    struct holdfast *h; /* owned */
    int broker;         /* owned; the other end */
    uint64_t now_ms;
    char told[TOLD_BYTES]; /* events so far, one a line */
    size_t told_len;
    char sent[TOLD_BYTES]; /* what talk_sent() read last */
};

/* Begins at 1,000,000 ms, without a greeting. */
void talk_init(struct talk *talk);
void talk_fini(struct talk *talk);

/* The same by addresses; the broker's end, once it is there, is the caller's to
 * put into talk->broker. */
void talk_init_at(struct talk *talk, const struct holdfast_options *options);

/* The broker sends `text`; the client reads it and its events are noted. */
void talk_say(struct talk *talk, const char *text);

/* talk_say() of the usual greeting, forgetting the event. */
void talk_greet(struct talk *talk);

/* Time passes; the client looks at its clock. */
void talk_pass(struct talk *talk, uint64_t ms);

/* What the client has sent since the last call; a ref. */
const char *talk_sent(struct talk *talk);

/* What events there were since the last call, as "KIND request word ...\n". */
const char *talk_told(struct talk *talk);

#endif
