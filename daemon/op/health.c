/* Words for what the store has found out. See health.h. */
#include "daemon/op/health.h"

#include "daemon/base/assert.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *word;
    const char *wrong;
    const char *advice;
} reasons[HEALTH_REASON_COUNT] = {

#define REASON(id, word, wrong, advice) {word, wrong, advice},
#include "daemon/op/health.def"
#undef REASON
};

struct health_why
health_why_slot(const struct health *health, uint16_t slot)
{
    if (health == NULL)
        return (struct health_why){HEALTH_FINE, NULL};
    if (slot == HEALTH_NO_SLOT || health->slots == NULL ||
        health->slots_missing == SLOT_COUNT)
        return health_why(health);
    require(slot < SLOT_COUNT);
    uint16_t node = health->slots[slot];
    if (node >= health->node_count)
        return (struct health_why){HEALTH_SLOTS, NULL};
    return (struct health_why){
        health->nodes[node].reason, &health->nodes[node]};
}

const char *
health_word(enum health_reason reason)
{
    require(reason < HEALTH_REASON_COUNT);
    return reasons[reason].word;
}

const char *
health_state(const struct health_node *node)
{
    if (node->reason == HEALTH_FINE)
        return "ready";
    if (node->reason == HEALTH_SETTLING)
        return "settling";
    return node->connected ? "refusing" : "away";
}

const char *
health_text(const struct health_why *why, bool node, char out[HEALTH_TEXT_MAX])
{
    const char *said = why->node != NULL ? why->node->said : "";
    bool named = node && why->node != NULL;
    int len;

    require(why->reason < HEALTH_REASON_COUNT);
    if (strcmp(said, reasons[why->reason].wrong) == 0)
        said = "";
    len = snprintf(out, HEALTH_TEXT_MAX, "%s%s%s%s%s%s; %s",
        named ? why->node->name : "", named ? ": " : "",
        reasons[why->reason].wrong, said[0] != '\0' ? " (" : "", said,
        said[0] != '\0' ? ")" : "", reasons[why->reason].advice);
    require(len > 0 && len < HEALTH_TEXT_MAX);
    return out;
}
