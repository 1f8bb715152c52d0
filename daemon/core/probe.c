/*
 * Probes as messages: kind, count, index, then the nodes; of 'D' index is how
 * many owners are asked after, which follow.
 */
#include "daemon/core/deadlock.h"
#include "daemon/core/message.h"

/* What one costs Redis, about. */
#define MESSAGE_US 20

#define HEAD_BYTES  3
#define NODE_BYTES  (16 + 8 + 8 + 8 + 8 + 8 + 1) /* and the name */
#define ASKED_BYTES (16 + 8 + 8 + 8 + 1)

_Static_assert(HEAD_BYTES + PROBE_NODES * (NODE_BYTES + PROTO_NAME_MAX) +
                       PROBE_ASKED * ASKED_BYTES <=
                   MESSAGE_MAX,
    "the longest probe");

static char *
put(char *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

static char *
node_encode(char *at, const struct probe_node *node)
{
    at = put(at, node->session, 16);
    at = put(at, &node->owner, 8);
    at = put(at, node->broker, 8);
    at = put(at, &node->request, 8);
    at = put(at, &node->since_us, 8);
    at = put(at, &node->fence, 8);
    at = put(at, &node->name_len, 1);
    return put(at, node->name, node->name_len);
}

static char *
asked_encode(char *at, const struct probe_asked *asked)
{
    at = put(at, asked->session, 16);
    at = put(at, &asked->owner, 8);
    at = put(at, &asked->request, 8);
    at = put(at, &asked->fence, 8);
    *at++ = (char)asked->again;
    return at;
}

/* Sends it to another broker, if there is room; it stays the caller's. */
void
probe_tell(struct core *core, const struct probe *probe,
    const struct probe_asked *asked, uint32_t asked_count, const char broker[8],
    struct lock *lock)
{
    struct message *message = message_create(core);

    if (message == NULL) {
        count(core->counters, COUNTER_deadlock_drops);
        return;
    }
    char *at = message->words;
    *at++ = probe->kind;
    *at++ = (char)probe->count;
    *at++ = (char)(probe->kind == 'D' ? asked_count : probe->index);
    for (uint32_t i = 0; i < probe->count; i++)
        at = node_encode(at, &probe->nodes[i]);
    for (uint32_t i = 0; i < asked_count; i++)
        at = asked_encode(at, &asked[i]);
    message->len = (uint32_t)(at - message->words);
    count(core->counters, COUNTER_deadlock_probes);
    looks_pay(core, MESSAGE_US);
    message_send(core, message, broker, lock);
}

static bool
get(struct text *from, void *bytes, size_t len)
{
    if (from->len < len)
        return false;
    memcpy(bytes, from->at, len);
    *from = text_make(from->at + len, from->len - len);
    return true;
}

static bool
node_decode(struct text *from, struct probe_node *node)
{
    return get(from, node->session, 16) && get(from, &node->owner, 8) &&
           get(from, node->broker, 8) && get(from, &node->request, 8) &&
           get(from, &node->since_us, 8) && get(from, &node->fence, 8) &&
           get(from, &node->name_len, 1) &&
           get(from, node->name, node->name_len);
}

static bool
asked_decode(struct text *from, struct probe_asked *asked)
{
    uint8_t again;

    if (!get(from, asked->session, 16) || !get(from, &asked->owner, 8) ||
        !get(from, &asked->request, 8) || !get(from, &asked->fence, 8) ||
        !get(from, &again, 1))
        return false;
    asked->again = again != 0;
    return true;
}

/* What comes from Redis is not trusted. */
bool
probe_decode(struct text from, struct probe *probe,
    struct probe_asked asked[PROBE_ASKED], uint32_t *asked_count)
{
    uint8_t head[HEAD_BYTES];

    if (!get(&from, head, sizeof(head)))
        return false;
    probe->kind = (char)head[0];
    probe->count = head[1];
    probe->index = head[2];
    *asked_count = probe->kind == 'D' ? head[2] : 0;
    if (probe->count == 0 || *asked_count > PROBE_ASKED ||
        probe->count + (*asked_count > 0) > PROBE_NODES ||
        (probe->kind != 'D' && probe->index >= probe->count))
        return false;
    for (uint32_t i = 0; i < probe->count; i++)
        if (!node_decode(&from, &probe->nodes[i]))
            return false;
    for (uint32_t i = 0; i < *asked_count; i++)
        if (!asked_decode(&from, &asked[i]))
            return false;
    return from.len == 0;
}
