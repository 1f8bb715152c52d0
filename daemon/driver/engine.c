/*
 * The order of a turn. See engine.h. Core and store decide about locks.
 */
#include "daemon/driver/engine.h"

#include "daemon/base/assert.h"
#include "daemon/op/op.h"
#include "proto/request.h"

/* Steps that may gather effects before these are carried out. */
#define EFFECT_STEPS 4
/* Rounds of store and core in a turn, and their time. The next turn does the
 * rest. */
#define ROUNDS_A_TURN 8
#define ROUNDS_US     500
/* Lines of a client between looks at the clock, and the time of one client's
 * lines in a turn. */
#define LINES_A_LOOK 16
#define LINES_US     500

static void
engine_set_stop_limit(struct engine *engine, const struct core_settings *core)
{
    engine->stop_limit_us = core->stop_grace_us + 2 * core->command_timeout_us;
}

bool
engine_init(struct engine *engine, const struct core_settings *core,
    const struct store_settings *store, struct counters *counters,
    const struct engine_sink *sink, void *arg)
{
    memset(engine, 0, sizeof(*engine));
    engine->sink = *sink;
    engine->arg = arg;
    engine->stop_us = WHEEL_NEVER;
    engine_set_stop_limit(engine, core);
    engine->line_max = core->line_max;
    uint64_t now_us = sink->clock(arg);
    if (!effects_init(&engine->effects, EFFECT_STEPS))
        return false;
    engine->core = core_create(core, counters, now_us);
    engine->store = store_create(store, counters, now_us);
    if (engine->core != NULL && engine->store != NULL) {
        core_set_health(engine->core, store_health(engine->store));
        return true;
    }
    engine_fini(engine);
    return false;
}

void
engine_configure(struct engine *engine, const struct core_settings *core,
    const struct store_settings *store)
{
    engine_set_stop_limit(engine, core);
    core_configure(engine->core, core);
    store_configure(engine->store, store);
}

void
engine_fini(struct engine *engine)
{
    core_destroy(&engine->core);
    store_destroy(&engine->store);
    effects_fini(&engine->effects);
}

/* Whether effects wait to be carried out. */
static bool
engine_owes(const struct engine *engine)
{
    return engine->effects.entry_count > 0 ||
           !list_empty(&engine->effects.ops) ||
           !list_empty(&engine->effects.hurried);
}

void
engine_carry_out(struct engine *engine)
{
    const struct effects *effects = &engine->effects;

    for (uint32_t i = 0; i < effects->entry_count; i++)
        engine->sink.effect(engine->arg, &effects->entries[i]);
    engine->writing = true;
    engine->sink.written(engine->arg);
    engine->writing = false;
    if (!list_empty(&engine->effects.ops))
        store_submit(engine->store, engine_now(engine), &engine->effects.ops);
    if (!list_empty(&engine->effects.hurried))
        store_hurry(
            engine->store, engine_now(engine), &engine->effects.hurried);
    effects_clear(&engine->effects);
    require(!engine_owes(engine));
}

void
engine_step(struct engine *engine, struct core_event *event)
{
    require(!engine->writing);
    if (!effects_room(&engine->effects))
        engine_carry_out(engine);
    core_step(engine->core, engine_now(engine), event, &engine->effects);
}

size_t
engine_take(struct engine *engine, struct engine_input *input, char *data,
    size_t len, bool fresh, bool *late)
{
    size_t done = 0;

    *late = false;
    uint64_t begin_us = engine->sink.clock(engine->arg);
    if (fresh)
        engine->now_us = begin_us;
    for (uint32_t lines = 1;; lines++) {
        struct core_event event = {.session = input->session};
        size_t used = 0;
        enum line_status status =
            line_next(data + done, len - done, engine->line_max,
                &input->skipping, &used, &event.line.at, &event.line.len);
        done += used;
        require(done <= len);
        if (status == LINE_MORE)
            break;
        event.kind = status == LINE_FOUND ? CORE_LINE : CORE_TOO_LONG;
        engine_step(engine, &event);
        if (input->deaf)
            return len;
        if (lines % LINES_A_LOOK == 0 && done < len &&
            engine->sink.clock(engine->arg) > begin_us + LINES_US) {
            *late = true;
            break;
        }
    }
    if (done < len || input->skipping) {
        struct core_event event = {
            .kind = CORE_BYTES, .session = input->session};
        engine_step(engine, &event);
    }
    return done;
}

/* Feeds the core with what the store has done. */
static void
engine_drain_store(struct engine *engine)
{
    struct core_event event;
    struct store_hint hint;
    struct op_members members;
    struct op *op;

    while ((op = store_take_done(engine->store)) != NULL) {
        event.kind = CORE_DONE;
        event.op = op;
        engine_step(engine, &event);
    }
    while (store_take_hint(engine->store, &hint)) {
        event.kind = hint.broken ? CORE_BROKEN : CORE_HINT;
        event.hint.request = hint.request;
        event.hint.fence = hint.fence;
        engine_step(engine, &event);
    }
    while (store_take_news(engine->store, &event.news)) {
        event.kind = CORE_NEWS;
        if (store_read_members(engine->store, event.news, &members)) {
            event.kind = CORE_MEMBERS;
            event.members = &members;
        }
        engine_step(engine, &event);
    }
    event.kind = CORE_UNHEARD;
    if (store_take_unheard(engine->store))
        engine_step(engine, &event);
    event.kind = CORE_CHANGED;
    if (store_take_changed(engine->store))
        engine_step(engine, &event);
}

void
engine_conn_opened(struct engine *engine, struct store_conn conn)
{
    store_opened(engine->store, conn);
}

void
engine_conn_connected(struct engine *engine, struct store_conn conn)
{
    store_connected(engine->store, conn, engine_now(engine));
    engine_drain_store(engine);
}

void
engine_reply(
    struct engine *engine, struct store_conn conn, const struct resp *reply)
{
    store_reply(engine->store, conn, engine_now(engine), reply);
    engine_drain_store(engine); /* results refer to the reply */
}

void
engine_conn_lost(struct engine *engine, struct store_conn conn,
    enum health_reason reason, const char *why)
{
    store_closed(engine->store, conn, engine_now(engine), reason, why);
    engine_drain_store(engine);
}

/* A stop has begun, by a signal or by a client's DRAIN. */
static void
engine_note_stop(struct engine *engine)
{
    if (engine->stop_us == WHEEL_NEVER && core_stopping(engine->core))
        engine->stop_us = engine_now(engine) + engine->stop_limit_us;
}

bool
engine_move(struct engine *engine, uint64_t realtime_us)
{
    uint64_t until_us = engine->sink.clock(engine->arg) + ROUNDS_US;
    bool more = true;

    engine_note_stop(engine);
    for (int round = 0; more && round < ROUNDS_A_TURN; round++) {
        struct core_event event = {.kind = CORE_TIME};
        engine_step(engine, &event);
        engine_carry_out(engine);
        /* The time may be later than before: settling may read the clock. */
        store_flush(engine->store, engine_now(engine), realtime_us);
        engine_drain_store(engine);
        bool settled = engine->sink.settle(engine->arg);
        if (!event.more && !settled && !engine_owes(engine))
            return true;
        more = engine->sink.clock(engine->arg) < until_us;
    }
    engine_carry_out(engine);
    return false;
}

uint64_t
engine_next_us(const struct engine *engine)
{
    uint64_t core_us = core_next_us(engine->core);
    uint64_t store_us = store_next_us(engine->store);

    if (engine_owes(engine))
        return 0;
    if (engine->stop_us < core_us)
        core_us = engine->stop_us;
    return core_us < store_us ? core_us : store_us;
}

void
engine_stop(struct engine *engine)
{
    struct core_event event = {.kind = CORE_STOP};

    if (!engine_stopping(engine))
        engine_step(engine, &event);
    engine_note_stop(engine);
}

bool
engine_impatient(const struct engine *engine)
{
    return engine_stopping(engine) &&
           engine->sink.clock(engine->arg) >= engine->stop_us;
}
