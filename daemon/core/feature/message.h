/*
 * Messages to other brokers, by PUBLISH in Redis: some of them are lost, and
 * those of a broker may come in any order.
 */
#ifndef HOLDFAST_CORE_FEATURE_MESSAGE_H
#define HOLDFAST_CORE_FEATURE_MESSAGE_H

#include "daemon/core/model/state.h"

#define MESSAGE_MAX 15360 /* bytes */

/* One that is being sent. */
struct message {
    struct slab_node node;
    char to[8];
    uint32_t len;
    char words[MESSAGE_MAX];
};

/* Takes memory for messages. False: there is none. */
bool message_init(struct core *core);

/* Frees the memory of messages. */
void message_fini(struct core *core);

/* To be filled and sent; NULL: there is no room. */
struct message *message_create(struct core *core);

/* Sends it, or does not where there is no room; it is given away. The lock says
 * where to ask Redis for that. */
void message_send(struct core *core, struct message *message,
    const char broker[8], struct lock *lock);

/* Likewise those words. */
void message_tell(struct core *core, const char broker[8], struct text name,
    struct text words);

#endif
