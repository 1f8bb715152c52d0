/*
 * The queue of events that the user has not taken yet.
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

/* A copy of the line, not parsed yet. The caller owns it; NULL: no memory. */
struct holdfast_notice *holdfast_notice_create(const char *line, size_t len);

/* Fills in the event by the message, and gives the notice to the queue. */
void holdfast_notice_push(struct holdfast *h, struct holdfast_notice *notice,
    enum holdfast_kind kind, uint64_t request);

/*
 * Queues a line of the library's own. Without memory it raises h->no_memory,
 * and the turn closes the connection.
 */
void holdfast_notice_say(struct holdfast *h, enum holdfast_kind kind,
    uint64_t request, const char *line);

/* Takes the final answer to `request`; false: the queue has none. The event
 * is good until the next one is taken. */
bool holdfast_notice_take(
    struct holdfast *h, uint64_t request, struct holdfast_event *event);

/* Takes the greeting out of the queue; false: it has none. */
bool holdfast_notice_take_hello(struct holdfast *h);

/* Frees the queue, and the event that was taken last. */
void holdfast_notice_clear(struct holdfast *h);

#endif
