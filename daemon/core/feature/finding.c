/*
 * Findings of audits in the three forms in which they are told. They show
 * sessions by their short IDs. Names and words of clients may have any bytes:
 * they are quoted or encoded.
 */
#include "daemon/core/feature/audit.h"

#include "daemon/core/answer/answer.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <inttypes.h>

#define HOOK_BYTES 4096 /* an environment is shorter */

static const char *const kind_names[] = {
    [FINDING_HELD] = "held",
    [FINDING_WAITING] = "waiting",
    [FINDING_ORPHAN] = "orphan",
    [FINDING_SENSELESS] = "senseless",
};

static const char *const wrong_names[WRONG_COUNT] = {
    [WRONG_NOTHING] = "",
    [WRONG_TYPE] = "type",
    [WRONG_NAME] = "name",
    [WRONG_VERSION] = "version",
    [WRONG_RECORD] = "record",
    [WRONG_COUNTS] = "counts",
    [WRONG_EXPIRY] = "expiry",
    [WRONG_FENCE] = "fence",
};

void
finding_log(struct text lock, const struct finding *finding)
{
    require(finding->stage == FINDING_DONE);
    require((finding->kind == FINDING_SENSELESS) !=
            (finding->wrong == WRONG_NOTHING));
    if (finding->kind == FINDING_SENSELESS) {
        log_write(LOG_WARN, "audit_finding", log_word("kind", "senseless"),
            log_quoted("lock", lock),
            log_word("why", wrong_names[finding->wrong]));
        return;
    }
    log_write(LOG_WARN, "audit_finding",
        log_word("kind", kind_names[finding->kind]), log_quoted("lock", lock),
        log_number("age_ms", finding->age_ms),
        log_number("ttl_ms", finding->ttl_ms),
        log_word("session", finding->short_id),
        log_foreign("broker", text_from(finding->broker)),
        log_number("fence", finding->fence),
        log_quoted("client", finding->client),
        log_quoted("owner", finding->owner), log_quoted("note", finding->note),
        log_number("waiters", finding->waiters),
        log_signed("broken", finding->broken),
        log_signed("detached", finding->detached));
}

void
finding_item(struct core *core, const struct request *request, struct text lock,
    const struct finding *finding)
{
    struct reply reply = answer_begin(core, request->tag, "ITEM");

    require(request->command == COMMAND_AUDIT);
    require(finding->stage == FINDING_DONE && finding->wrong < WRONG_COUNT);
    reply_pair(&reply, "kind", text_from(kind_names[finding->kind]));
    reply_pair(&reply, "name", lock);
    if (finding->kind == FINDING_SENSELESS) {
        reply_pair(&reply, "why", text_from(wrong_names[finding->wrong]));
        answer_end(core, request->session, &reply);
        return;
    }
    reply_pair_number(&reply, "age_ms", finding->age_ms);
    reply_pair(&reply, "session", text_from(finding->short_id));
    reply_pair(&reply, "broker", text_from(finding->broker));
    if (finding->kind == FINDING_WAITING) {
        reply_pair_number(&reply, "waiters", finding->waiters);
    } else {
        reply_pair_number(&reply, "fence", finding->fence);
        reply_pair_number(&reply, "ttl_ms", finding->ttl_ms);
    }
    if (finding->broken)
        reply_pair_number(&reply, "broken", 1);
    if (finding->detached)
        reply_pair_number(&reply, "detached", 1);
    reply_pair_if(&reply, "client", finding->client);
    reply_pair_if(&reply, "owner", finding->owner);
    reply_pair_if(&reply, "note", finding->note);
    answer_end(core, request->session, &reply);
}

/* A value as it is on the wire, so that no blank or line end is in it. */
static void
hook_put(char **at, const char *end, const char *key, struct text value)
{
    size_t len = strlen(key);

    require(len + 2 < (size_t)(end - *at));
    memcpy(*at, key, len);
    *at += len;
    *(*at)++ = '=';
    *at += percent_encode(value, *at, (size_t)(end - *at) - 1);
    *(*at)++ = '\0';
}

static void
hook_put_number(char **at, const char *end, const char *key, uint64_t value)
{
    char digits[20];

    hook_put(at, end, key, text_make(digits, text_from_u64(digits, value)));
}

void
finding_hook(struct core *core, struct text lock, const struct finding *finding)
{
    const struct namespace *namespace =
        &core->namespaces.namespace[namespaces_find(&core->namespaces, lock)];
    char *start = effects_reserve(core->effects, HOOK_BYTES);
    const char *end = start + HOOK_BYTES;
    char *at = start;
    require(finding->stage == FINDING_DONE && finding->wrong < WRONG_COUNT);
    hook_put(&at, end, "HOLDFAST_LOCK", lock);
    hook_put(
        &at, end, "HOLDFAST_FINDING", text_from(kind_names[finding->kind]));
    hook_put(&at, end, "HOLDFAST_NAMESPACE", namespace_name(namespace));
    hook_put(&at, end, "HOLDFAST_WHY", text_from(wrong_names[finding->wrong]));
    hook_put_number(&at, end, "HOLDFAST_AGE_MS", finding->age_ms);
    hook_put(&at, end, "HOLDFAST_SESSION", text_from(finding->short_id));
    hook_put(&at, end, "HOLDFAST_BROKER", text_from(finding->broker));
    hook_put(&at, end, "HOLDFAST_CLIENT", finding->client);
    hook_put(&at, end, "HOLDFAST_OWNER", finding->owner);
    hook_put(&at, end, "HOLDFAST_NOTE", finding->note);
    hook_put_number(&at, end, "HOLDFAST_FENCE", finding->fence);
    hook_put_number(&at, end, "HOLDFAST_BROKEN", finding->broken);
    hook_put_number(&at, end, "HOLDFAST_DETACHED", finding->detached);
    require(at <= end);
    effects_hook(core->effects, (uint32_t)(at - start));
}
