/*
 * The rig of the core's tests; see core_rig.h.
 */
#include "tests/unit/core_rig.h"

#include "tests/unit/log_kept.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"
#include "daemon/op/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rig *
rig_create(void)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    rig_must(rig != NULL);
    log_set_level(LOG_ERROR);
    rig->now_us = 1000 * (uint64_t)SECOND_US;
    rig->silence_us = 11 * SECOND_US;
    rig->settings = (struct core_settings){
        .key_prefix = "holdfast",
        .broker_id = "broker-1",
        .server = "holdfastd/test",
        .seed = 1,
        .hash_seed = {2, 3},
        .lease_ms = RIG_LEASE_MS,
        .redis_timeout_us = 5 * SECOND_US,
        .command_timeout_us = 2 * SECOND_US,
        .stop_grace_us = 10 * SECOND_US,
        .line_max = 4096,
        .name_max = 255,
        .sessions_max = RIG_SESSIONS,
        .output_max = RIG_LINES,
        .outstanding_max = 64,
        .holds_max = 64,
        .tickets_max = 256,
        .requests_max = 256,
        .releases_kept = 16,
    };
    return rig;
}

/* Redis is well. */
static const struct health well = {.ready = true, .node = HEALTH_NO_NODE};

void
rig_start(struct rig *rig)
{
    rig_must(effects_init(&rig->effects, 2));
    rig->core = core_create(&rig->settings, &rig->counters, rig->now_us);
    rig_must(rig->core != NULL);
    core_set_health(rig->core, &well);
}

struct rig *
rig_new(void)
{
    struct rig *rig = rig_create();

    rig_start(rig);
    return rig;
}

void
rig_free(struct rig *rig)
{
    log_keep_no_more();
    core_destroy(&rig->core);
    rig_must(rig->core == NULL);
    core_destroy(&rig->core);
    effects_fini(&rig->effects);
    free(rig);
}

static struct rig_session *
session_of(struct rig *rig, struct handle handle)
{
    for (uint32_t i = rig->session_count; i > 0; i--)
        if (handle_equal(rig->sessions[i - 1].handle, handle))
            return &rig->sessions[i - 1];
    /* A line of CORE_OPEN comes before its handle is known. */
    rig_must(rig->opening);
    rig_must(rig->session_count < RIG_SESSIONS);
    rig->sessions[rig->session_count].handle = handle;
    return &rig->sessions[rig->session_count];
}

static void
take_line(struct rig *rig, const struct effect *effect)
{
    struct rig_session *session = session_of(rig, effect->session);
    const char *line = rig->effects.text + effect->offset;
    const char *namespace = memchr(line, ' ', effect->len);

    rig_must(!session->closed);
    rig_must((unsigned char)line[effect->len - 1] == '\n');
    rig_must(session->written + effect->len < RIG_LINES);
    memcpy(session->lines + session->written, line, effect->len);
    session->written += effect->len;
    if (line[0] != '*' && namespace != NULL &&
        (memcmp(namespace, " OK", 3) == 0 || memcmp(namespace, " ERR", 4) == 0))
        session->finals++;
}

/* The NULs as blanks. */
static void
take_hook(struct rig *rig, const struct effect *effect)
{
    rig->hooks++;
    rig_must(effect->len < sizeof(rig->hook));
    memcpy(rig->hook, rig->effects.text + effect->offset, effect->len);
    rig->hook[effect->len] = '\0';
    for (uint32_t i = 0; i < effect->len; i++)
        if (rig->hook[i] == '\0')
            rig->hook[i] = ' ';
}

static void
take_effects(struct rig *rig)
{
    struct effects *effects = &rig->effects;
    struct list *link;

    for (uint32_t i = 0; i < effects->entry_count; i++) {
        const struct effect *effect = &effects->entries[i];
        if (effect->kind == EFFECT_HOOK) {
            take_hook(rig, effect);
            continue;
        }
        struct rig_session *session = session_of(rig, effect->session);
        if (effect->kind == EFFECT_LINE)
            take_line(rig, effect);
        else if (effect->kind == EFFECT_MORE)
            session->more++;
        else
            session->closed = true;
    }
    while ((link = list_pop_front(&effects->ops)) != NULL) {
        rig_must(rig->op_count < RIG_OPS);
        rig->asked_us[rig->op_count] = rig->now_us;
        rig->ops[rig->op_count++] = container_of(link, struct op, link);
    }
    while ((link = list_pop_front(&effects->hurried)) != NULL) {
        struct op *op = container_of(link, struct op, hurry_link);
        if (rig->now_us < op->deadline_us)
            op->deadline_us = rig->now_us;
        rig->hurried++;
    }
    effects_clear(effects);
}

void
rig_step(struct rig *rig, struct core_event *event)
{
    core_step(rig->core, rig->now_us, event, &rig->effects);
    take_effects(rig);
    core_check(rig->core);
}

static struct handle
step_open(struct rig *rig, bool tcp, uint8_t id[16])
{
    struct core_event event = {.kind = CORE_OPEN};

    memset(event.open.id, 0xa5, sizeof(event.open.id));
    memcpy(event.open.id, rig->settings.broker_id, 8);
    rig->opened++;
    memcpy(event.open.id + 8, &rig->opened, sizeof(rig->opened));
    memcpy(id, event.open.id, sizeof(event.open.id));
    event.open.peer = "a peer";
    event.open.silence_us = tcp ? rig->silence_us : UINT64_MAX;
    memcpy(event.open.address, rig->address, sizeof(rig->address));
    event.open.user = rig->user;
    event.open.mark = rig->mark;
    rig->opening = true;
    rig_step(rig, &event);
    rig->opening = false;
    return event.session;
}

static unsigned
open_session(struct rig *rig, bool tcp)
{
    unsigned session = rig->session_count;
    uint8_t id[16];

    rig_must(session < RIG_SESSIONS);
    rig->sessions[session].handle = step_open(rig, tcp, id);
    memcpy(rig->sessions[session].id, id, sizeof(id));
    rig->session_count++;
    return session;
}

unsigned
rig_open(struct rig *rig)
{
    unsigned session = open_session(rig, false);

    rig_expect(rig, session,
        "* HELLO proto=1 server=holdfastd/test session=~ max_line=~ "
        "lease_ms=~");
    return session;
}

unsigned
rig_open_tcp(struct rig *rig)
{
    unsigned session = open_session(rig, true);

    (void)rig_line(rig, session);
    return session;
}

unsigned
rig_open_kept(struct rig *rig)
{
    unsigned session = rig_open(rig);

    rig_ask(rig, session, "HELLO keep=10s",
        "- OK session=~ proto=1 server=~ keep_ms=10000");
    return session;
}

void
rig_reopen(struct rig *rig, unsigned session)
{
    struct rig_session *scratch = &rig->sessions[rig->session_count];
    uint8_t id[16];

    memset(&rig->sessions[session], 0, offsetof(struct rig_session, lines));
    struct handle handle = step_open(rig, true, id);
    memset(scratch, 0, offsetof(struct rig_session, lines));
    rig->sessions[session].handle = handle;
    memcpy(rig->sessions[session].id, id, sizeof(id));
}

void
rig_id(const struct rig *rig, unsigned session, char *hex)
{
    text_to_hex(hex, rig->sessions[session].id, 16);
    hex[32] = '\0';
}

void
rig_resume(struct rig *rig, unsigned from, unsigned to, unsigned generation,
    const char *rest)
{
    char id[33];
    char line[120];

    rig_id(rig, from, id);
    snprintf(
        line, sizeof(line), "HELLO resume=%s gen=%u%s", id, generation, rest);
    rig_say(rig, to, line);
}

void
rig_kill(struct rig *rig, unsigned by, unsigned session)
{
    char line[40] = "KILL ";

    rig_id(rig, session, line + 5);
    rig_say(rig, by, line);
}

void
rig_event(struct rig *rig, unsigned session, enum core_event_kind kind)
{
    struct core_event event = {
        .kind = kind, .session = rig->sessions[session].handle};

    rig_step(rig, &event);
}

void
rig_say(struct rig *rig, unsigned session, const char *line)
{
    char copy[5000];
    struct core_event event = {
        .kind = CORE_LINE, .session = rig->sessions[session].handle};

    event.line.at = copy;
    event.line.len = strlen(line);
    rig_must(event.line.len < sizeof(copy));
    memcpy(copy, line, event.line.len);
    rig_step(rig, &event);
}

static void
step_time(struct rig *rig)
{
    struct core_event event = {.kind = CORE_TIME};

    do
        rig_step(rig, &event);
    while (event.more);
}

void
rig_pass_us(struct rig *rig, uint64_t us)
{
    uint64_t end_us = rig->now_us + us;

    for (;;) {
        uint64_t next_us = core_next_us(rig->core);
        if (next_us > end_us)
            break;
        if (next_us > rig->now_us)
            rig->now_us = next_us;
        step_time(rig);
        if (core_next_us(rig->core) <= rig->now_us)
            rig->now_us++;
    }
    if (rig->now_us < end_us)
        rig->now_us = end_us;
    step_time(rig);
}

void
rig_pass(struct rig *rig, uint64_t ms)
{
    rig_pass_us(rig, ms * 1000);
}

void
rig_stall(struct rig *rig, uint64_t ms)
{
    rig->now_us += ms * 1000;
}

char *
rig_line(struct rig *rig, unsigned session)
{
    static char line[4200];
    struct rig_session *s = &rig->sessions[session];

    line[0] = '\0';
    if (s->read == s->written)
        return line;
    const char *at = s->lines + s->read;
    const char *end = memchr(at, '\n', s->written - s->read);
    size_t len = (size_t)(end - at);
    rig_must(len < sizeof(line));
    s->read += (uint32_t)len + 1;
    memcpy(line, at, len);
    line[len] = '\0';
    char *text = strstr(line, " :");
    if (text != NULL)
        *text = '\0';
    if (s->read == s->written)
        s->read = s->written = 0;
    return line;
}

static bool
matches(const char *pattern, const char *line)
{
    while (*pattern != '\0') {
        if (*pattern == '~') {
            size_t run = strcspn(line, " ");
            pattern++;
            for (size_t i = run + 1; i > 0; i--)
                if (matches(pattern, line + i - 1))
                    return true;
            return false;
        }
        if (*pattern++ != *line++)
            return false;
    }
    return *line == '\0';
}

/* Takes the pair out of the line, unless the pattern names it. */
static void
pair_pass(char *line, const char *pattern, const char *key)
{
    char *pair = strstr(line, key);

    if (pair == NULL || strstr(pattern, key) != NULL)
        return;
    const char *next = pair + 1 + strcspn(pair + 1, " ");
    memmove(pair, next, strlen(next) + 1);
}

void
rig_expect(struct rig *rig, unsigned session, const char *pattern)
{
    char *line = rig_line(rig, session);

    pair_pass(line, pattern, " renewed=");
    pair_pass(line, pattern, " lease_ms=");
    pair_pass(line, pattern, " keep=");
    pair_pass(line, pattern, " silence_ms=");
    pair_pass(line, pattern, " command_ms=");
    if (!matches(pattern, line))
        ck_abort_msg("expected \"%s\", got \"%s\"", pattern, line);
}

void
rig_text(struct rig *rig, unsigned session, const char *text)
{
    const char *lines = rig->sessions[session].lines;
    const char *at = lines + rig->sessions[session].read;

    if (rig->sessions[session].read == rig->sessions[session].written)
        at = "";
    int len = (int)strcspn(at, "\n");
    const char *found = strstr(at, text);
    if (found == NULL || found > at + len)
        ck_abort_msg("expected \"%s\" in \"%.*s\"", text, len, at);
}

void
rig_silent(struct rig *rig, unsigned session)
{
    const char *line = rig_line(rig, session);

    ck_assert_msg(line[0] == '\0', "expected nothing, got \"%s\"", line);
}

void
rig_ask(
    struct rig *rig, unsigned session, const char *line, const char *pattern)
{
    rig_say(rig, session, line);
    rig_expect(rig, session, pattern);
}

struct op *
rig_op(struct rig *rig, enum op_kind kind)
{
    ck_assert_msg(rig->op_count > 0, "no operation; expected kind %d", kind);
    rig_must(rig->ops[0]->kind == kind);
    return rig->ops[0];
}

struct op *
rig_op_on(struct rig *rig, enum op_kind kind, const char *name)
{
    struct op *op = rig_op(rig, kind);

    if (!text_equal(op->name, text_from(name)))
        ck_abort_msg("an operation on %.*s instead of %s", (int)op->name.len,
            op->name.at, name);
    return op;
}

uint64_t
rig_grant_on(struct rig *rig, const char *name, uint64_t fence)
{
    struct op *op = rig_op_on(rig, OP_ACQUIRE, name);
    uint64_t request = op->request;

    rig_granted(rig, op, fence);
    return request;
}

void
rig_released_on(struct rig *rig, const char *name)
{
    rig_status(rig, rig_op_on(rig, OP_RELEASE, name), OP_OK);
}

void
rig_no_op(struct rig *rig)
{
    ck_assert_msg(rig->op_count == 0, "%u operations; the first is kind %d",
        rig->op_count, rig->op_count == 0 ? -1 : (int)rig->ops[0]->kind);
}

void
rig_finish(struct rig *rig, struct op *op, struct op_result result)
{
    struct core_event event = {.kind = CORE_DONE, .op = op};
    uint32_t i = 0;

    while (i < rig->op_count && rig->ops[i] != op)
        i++;
    rig_must(i < rig->op_count);
    if (result.sent_us == 0)
        result.sent_us = rig->asked_us[i];
    rig->op_count--;
    for (; i < rig->op_count; i++) {
        rig->ops[i] = rig->ops[i + 1];
        rig->asked_us[i] = rig->asked_us[i + 1];
    }
    op->result = result;
    rig_step(rig, &event);
}

void
rig_status(struct rig *rig, struct op *op, enum op_status status)
{
    rig_finish(rig, op, (struct op_result){.status = status});
}

void
rig_granted(struct rig *rig, struct op *op, uint64_t fence)
{
    uint64_t ttl_ms = op->lease_ms;

    if (op->kind == OP_ACQUIRE && op->ask.hold_ms > 0 &&
        op->ask.hold_ms < ttl_ms)
        ttl_ms = op->ask.hold_ms;
    if (op->kind == OP_RENEW && op->hard_end_us != WHEEL_NEVER &&
        (op->hard_end_us - rig->now_us) / 1000 < ttl_ms)
        ttl_ms = (op->hard_end_us - rig->now_us) / 1000;
    rig_finish(rig, op,
        (struct op_result){.status = OP_OK,
            .fence = fence,
            .arrival = fence,
            .ttl_ms = (uint32_t)ttl_ms});
}

void
rig_queued(struct rig *rig, struct op *op)
{
    rig_finish(rig, op,
        (struct op_result){.status = OP_WAITING,
            .arrival = 7,
            .place = 1,
            .ahead = 1,
            .again_ms = 36000000});
}

void
rig_lock(struct rig *rig, unsigned session, const char *request, uint64_t fence)
{
    char pattern[60];

    rig_say(rig, session, request);
    rig_must(rig->op_count > 0);
    rig_granted(rig, rig->ops[rig->op_count - 1], fence);
    snprintf(pattern, sizeof(pattern), "~ OK fence=%llu ttl_ms=~ count=1",
        (unsigned long long)fence);
    rig_expect(rig, session, pattern);
}

void
rig_wait(struct rig *rig, unsigned session, const char *request)
{
    rig_say(rig, session, request);
    rig_queued(rig, rig->ops[rig->op_count - 1]);
    rig_silent(rig, session);
}

void
rig_hint(struct rig *rig, uint64_t request)
{
    struct core_event event = {.kind = CORE_HINT};

    event.hint.request = request;
    event.hint.fence = 1;
    rig_step(rig, &event);
}

void
rig_broken(struct rig *rig, uint64_t request, uint64_t fence)
{
    struct core_event event = {.kind = CORE_BROKEN};

    event.hint.request = request;
    event.hint.fence = fence;
    rig_step(rig, &event);
}

void
rig_news(struct rig *rig, const char *news, size_t len)
{
    struct core_event event = {.kind = CORE_NEWS};

    event.news = text_make(news, len);
    rig_step(rig, &event);
}

const char rig_other_session[16] = "another session";
const char rig_other_broker[9] = "another!";

static char *
put(char *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

char *
rig_node(char *at, const struct rig_node *node)
{
    const uint64_t owner = 0;

    at = put(at, node->session, 16);
    at = put(at, &owner, 8);
    at = put(at, node->broker, 8);
    at = put(at, &node->request, 8);
    at = put(at, &node->since_us, 8);
    at = put(at, &node->fence, 8);
    *at++ = 1;
    *at++ = node->name;
    return at;
}

void
rig_verify(struct rig *rig, const void *session, uint64_t request,
    uint64_t fence, uint64_t own)
{
    char bytes[3 + 2 * RIG_NODE_BYTES] = {'V', 2, 1};
    const struct rig_node other = {.session = rig_other_session,
        .broker = rig_other_broker,
        .fence = fence,
        .name = 'a'};
    const struct rig_node ours = {.session = session,
        .broker = rig->settings.broker_id,
        .request = request,
        .since_us = 1,
        .fence = own,
        .name = 'b'};

    (void)rig_node(rig_node(bytes + 3, &other), &ours);
    rig_news(rig, bytes, sizeof(bytes));
}

void
rig_stop(struct rig *rig)
{
    struct core_event event = {.kind = CORE_STOP};

    rig_step(rig, &event);
}

uint64_t
rig_count(const struct rig *rig, enum counter counter)
{
    return rig->counters.value[counter];
}

void
rig_end(struct rig *rig)
{
    struct core_totals totals;

    for (unsigned i = 0; i < rig->session_count; i++)
        rig_event(rig, i, CORE_DROP);
    for (int round = 0; round < 20; round++) {
        while (rig->op_count > 0)
            rig_status(rig, rig->ops[0], OP_OK);
        rig_pass(rig, 3600000);
    }
    core_totals(rig->core, &totals);
    rig_must(totals.sessions == 0);
    rig_must(totals.tickets == 0);
    rig_must(totals.requests == 0);
    rig_must(totals.ops == 0);
    rig_must(totals.locks == 0);
    rig_must(core_next_us(rig->core) == WHEEL_NEVER);
    rig_free(rig);
}
