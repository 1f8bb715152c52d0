/*
 * Probes as messages: kind, count, index, then the nodes. Of 'D' index is how
 * many owners are asked after, which follow after a byte, `again`.
 */
#include "daemon/core/feature/deadlock.h"

#include "daemon/core/feature/message.h"

#include "daemon/base/assert.h"

/* The approximate cost of one in Redis. */
#define MESSAGE_US 20

#define HEAD_BYTES  3
#define NODE_BYTES  (16 + 8 + 8 + 8 + 8 + 8 + 1) /* and the name */
#define ASKED_BYTES (16 + 8 + 8 + 8)

_Static_assert(HEAD_BYTES + PROBE_NODES * (NODE_BYTES + PROTO_NAME_MAX) + 1 +
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
    require(node->name_len <= PROTO_NAME_MAX);
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
    return put(at, &asked->fence, 8);
}

void
probe_tell(struct core *core, const struct probe *probe,
    const struct question *question, const char broker[8], struct lock *lock)
{
    struct message *message = message_create(core);

    require(probe->count <= PROBE_NODES);
    require((question != NULL) == (probe->kind == 'D'));
    require(question == NULL || question->count <= PROBE_ASKED);
    if (message == NULL) {
        count(core->counters, COUNTER_deadlock_drops);
        return;
    }
    char *at = message->words;
    *at++ = probe->kind;
    *at++ = (char)probe->count;
    *at++ = (char)(question != NULL ? question->count : probe->index);
    for (uint32_t i = 0; i < probe->count; i++)
        at = node_encode(at, &probe->nodes[i]);
    if (question != NULL) {
        *at++ = (char)question->again;
        for (uint32_t i = 0; i < question->count; i++)
            at = asked_encode(at, &question->asked[i]);
    }
    message->len = (uint32_t)(at - message->words);
    require(message->len <= sizeof(message->words));
    count(core->counters, COUNTER_deadlock_probes);
    inspections_pay(core, MESSAGE_US);
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
    return get(from, asked->session, 16) && get(from, &asked->owner, 8) &&
           get(from, &asked->request, 8) && get(from, &asked->fence, 8);
}

static bool
question_decode(struct text *from, struct question *question)
{
    uint8_t again;

    if (!get(from, &again, 1))
        return false;
    question->again = again != 0;
    for (uint32_t i = 0; i < question->count; i++)
        if (!asked_decode(from, &question->asked[i]))
            return false;
    return true;
}

bool
probe_decode(struct text from, struct probe *probe, struct question *question)
{
    uint8_t head[HEAD_BYTES];

    if (!get(&from, head, sizeof(head)))
        return false;
    probe->kind = (char)head[0];
    probe->count = head[1];
    probe->index = head[2];
    question->count = head[2];
    bool asks = probe->kind == 'D';
    if (probe->count == 0 || probe->count + asks > PROBE_NODES ||
        (asks && question->count > PROBE_ASKED) ||
        (!asks && probe->index >= probe->count))
        return false;
    for (uint32_t i = 0; i < probe->count; i++)
        if (!node_decode(&from, &probe->nodes[i]))
            return false;
    if (asks && !question_decode(&from, question))
        return false;
    return from.len == 0;
}
