/*
 * STATUS: whether this broker can grant locks now, and how each Redis node is
 * that it needs.
 */
#include "daemon/core/answer/answer.h"
#include "daemon/core/model/handlers.h"

#include "daemon/base/assert.h"

static void
reply_since(const struct core *core, struct reply *reply, uint64_t since_us)
{
    reply_pair_number(reply, "since_ms",
        (core->now_us - us_min(since_us, core->now_us)) / 1000);
}

static void
reply_why(const struct core *core, struct reply *reply,
    const struct health_why *why, bool whole)
{
    uint64_t left_ms = health_left_ms(why, core->now_us);

    reply_pair(reply, "reason", text_from(health_word(why->reason)));
    if (whole && why->node != NULL)
        reply_pair(reply, "node", text_from(why->node->name));
    if (left_ms > 0)
        reply_pair_number(reply, "after_ms", left_ms);
}

static void
status_node(struct core *core, struct session *session, const char *tag,
    const struct health_node *node)
{
    struct reply reply = answer_begin(core, tag, "ITEM");
    const struct health_why why = {node->reason, node};
    char text[HEALTH_TEXT_MAX];

    reply_pair(&reply, "kind", TEXT("node"));
    reply_pair(&reply, "node", text_from(node->name));
    reply_pair(
        &reply, "role", node->sentinel ? TEXT("sentinel") : TEXT("redis"));
    reply_pair(&reply, "state", text_from(health_state(node)));
    reply_since(core, &reply, node->since_us);
    if (node->reason != HEALTH_FINE) {
        reply_why(core, &reply, &why, false);
        reply_text(&reply, health_text(&why, false, text));
    }
    answer_end(core, session, &reply);
}

static void
status_end(
    struct core *core, struct session *session, const char *tag, uint32_t shown)
{
    const struct health *health = core->health;
    struct reply reply = answer_begin(core, tag, "OK");
    struct health_why why = health_why(health);
    char text[HEALTH_TEXT_MAX];

    require(shown <= health->node_count);
    reply_pair_number(&reply, "ready", health->ready && !core->stopping);
    reply_since(core, &reply, health->since_us);
    if (core->stopping)
        reply_pair_number(&reply, "draining", 1);
    if (!health->ready)
        reply_why(core, &reply, &why, true);
    reply_pair(&reply, "broker", text_from(core->settings.broker_id));
    reply_pair(&reply, "server", text_from(core->settings.server));
    reply_pair_number(&reply, "n", shown);
    if (!health->ready)
        reply_text(&reply, health_text(&why, true, text));
    answer_end(core, session, &reply);
}

void
status_list(
    struct core *core, struct session *session, const struct request_line *line)
{
    const struct health *health = core->health;
    uint32_t shown = 0;

    require(health != NULL);
    for (uint32_t i = 0; i < health->node_count; i++) {
        if (!health->nodes[i].needed)
            continue;
        status_node(core, session, line->tag, &health->nodes[i]);
        shown++;
    }
    status_end(core, session, line->tag, shown);
}
