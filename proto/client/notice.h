/*
 * The queue of events for the program.
 */
#ifndef HOLDFAST_CLIENT_NOTICE_H
#define HOLDFAST_CLIENT_NOTICE_H

#include "proto/client/holdfast.h"
#include "proto/client/message.h"

/* An event in the queue. */
struct holdfast_notice {
    struct holdfast_notice *next; /* owned by the queue */
    struct holdfast_event event;  /* refs into message and line */
    struct holdfast_message message;
    char line[]; /* the decoded line */
};

/* A notice with a copy of the line, not parsed. The caller owns it; NULL: no
 * memory. */
struct holdfast_notice *holdfast_notice_create(const char *line, size_t len);

/* Fills in the event from the message. The queue owns the notice. */
void holdfast_notice_push(struct holdfast *h, struct holdfast_notice *notice,
    enum holdfast_kind kind, uint64_t request);

/* Queues a line of the library. Without memory it sets h->no_memory, and the
 * turn closes the connection. */
void holdfast_notice_say(struct holdfast *h, enum holdfast_kind kind,
    uint64_t request, const char *line);

/* Takes the final answer to `request`. The event is valid until the next one is
 * taken. False: the queue has none. */
bool holdfast_notice_take(
    struct holdfast *h, uint64_t request, struct holdfast_event *event);

/* Removes the greeting from the queue, if it is there. */
void holdfast_notice_drop_hello(struct holdfast *h);

/* Frees the queue, and the last event taken. */
void holdfast_notice_clear(struct holdfast *h);

#endif
