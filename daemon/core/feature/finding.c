/*
 * Findings of audits in the three forms in which they are told. Whoever is told
 * sees sessions by their short ids; names and words of clients may hold any
 * bytes, and are quoted or encoded.
 */
#include "daemon/core/feature/finding.h"

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
    char name[4 * PROTO_NAME_MAX + 3];
    char client[4 * PROTO_CLIENT_MAX + 3];
    char owner[4 * PROTO_OWNER_MAX + 3];
    char note[4 * PROTO_NOTE_MAX + 3];
    char broker[40]; /* as Redis has it: it may be anything */

    if (finding->kind == FINDING_SENSELESS) {
        log_write(LOG_WARN, "audit_finding", "kind=senseless lock=%s why=%s",
            log_quote(name, sizeof(name), lock), wrong_names[finding->wrong]);
        return;
    }
    log_write(LOG_WARN, "audit_finding",
        "kind=%s lock=%s age_ms=%" PRIu64 " ttl_ms=%" PRIu64
        " session=%s broker=%s fence=%" PRIu64
        " client=%s owner=%s note=%s waiters=%u broken=%d",
        kind_names[finding->kind], log_quote(name, sizeof(name), lock),
        finding->age_ms, finding->ttl_ms, finding->short_id,
        log_quote(broker, sizeof(broker), text_from(finding->broker)),
        finding->fence, log_quote(client, sizeof(client), finding->client),
        log_quote(owner, sizeof(owner), finding->owner),
        log_quote(note, sizeof(note), finding->note), finding->waiters,
        finding->broken);
}

void
finding_item(struct core *core, const struct request *request, struct text lock,
    const struct finding *finding)
{
    struct reply reply = answer_begin(core, request->tag, "ITEM");

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
    const struct space *space =
        &core->spaces.space[spaces_find(&core->spaces, lock)];
    char *start = effects_reserve(core->effects, HOOK_BYTES);
    const char *end = start + HOOK_BYTES;
    char *at = start;
    hook_put(&at, end, "HOLDFAST_LOCK", lock);
    hook_put(
        &at, end, "HOLDFAST_FINDING", text_from(kind_names[finding->kind]));
    hook_put(&at, end, "HOLDFAST_NAMESPACE", space_name(space));
    hook_put(&at, end, "HOLDFAST_WHY", text_from(wrong_names[finding->wrong]));
    hook_put_number(&at, end, "HOLDFAST_AGE_MS", finding->age_ms);
    hook_put(&at, end, "HOLDFAST_SESSION", text_from(finding->short_id));
    hook_put(&at, end, "HOLDFAST_BROKER", text_from(finding->broker));
    hook_put(&at, end, "HOLDFAST_CLIENT", finding->client);
    hook_put(&at, end, "HOLDFAST_OWNER", finding->owner);
    hook_put(&at, end, "HOLDFAST_NOTE", finding->note);
    hook_put_number(&at, end, "HOLDFAST_FENCE", finding->fence);
    hook_put_number(&at, end, "HOLDFAST_BROKEN", finding->broken);
    effects_hook(core->effects, (uint32_t)(at - start));
}
