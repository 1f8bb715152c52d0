/*
 * The order of a turn. See engine.h; what the parts do is core's and store's.
 */
#include "daemon/store/engine.h"

/* Steps whose effects may gather before they are carried out. */
#define EFFECT_STEPS 4
/* Rounds of store and core in a turn; what is left comes in the next one. */
#define ROUNDS_A_TURN 8

bool
engine_init(struct engine *engine, const struct core_settings *core,
    const struct store_settings *store, struct counters *counters,
    const struct engine_sink *sink, void *arg, uint64_t now_us)
{
    engine->core = NULL;
    engine->store = NULL;
    engine->sink = *sink;
    engine->arg = arg;
    if (!effects_init(&engine->effects, EFFECT_STEPS))
        return false;
    engine->core = core_create(core, counters, now_us);
    engine->store = store_create(store, counters, now_us);
    if (engine->core != NULL && engine->store != NULL)
        return true;
    engine_fini(engine);
    return false;
}

void
engine_fini(struct engine *engine)
{
    core_destroy(&engine->core);
    store_destroy(&engine->store);
    effects_fini(&engine->effects);
}

void
engine_carry_out(struct engine *engine, uint64_t now_us)
{
    const struct effects *effects = &engine->effects;

    for (uint32_t i = 0; i < effects->entry_count; i++)
        engine->sink.effect(engine->arg, &effects->entries[i]);
    engine->sink.written(engine->arg);
    if (!list_empty(&engine->effects.ops))
        store_submit(engine->store, now_us, &engine->effects.ops);
    effects_clear(&engine->effects);
}

void
engine_step(struct engine *engine, uint64_t now_us, struct core_event *event)
{
    if (!effects_room(&engine->effects))
        engine_carry_out(engine, now_us);
    core_step(engine->core, now_us, event, &engine->effects);
}

void
engine_drain_store(struct engine *engine, uint64_t now_us)
{
    struct core_event event;
    struct op *op;

    while ((op = store_take_done(engine->store)) != NULL) {
        event.kind = CORE_DONE;
        event.op = op;
        engine_step(engine, now_us, &event);
    }
    event.kind = CORE_HINT;
    while (
        store_take_hint(engine->store, &event.hint.request, &event.hint.fence))
        engine_step(engine, now_us, &event);
    event.kind = CORE_UNHEARD;
    if (store_take_unheard(engine->store))
        engine_step(engine, now_us, &event);
}

/* Whether effects wait to be carried out. */
static bool
engine_owes(const struct engine *engine)
{
    return engine->effects.entry_count > 0 || !list_empty(&engine->effects.ops);
}

bool
engine_move(struct engine *engine, uint64_t now_us, uint64_t realtime_us)
{
    for (int round = 0; round < ROUNDS_A_TURN; round++) {
        struct core_event event = {.kind = CORE_TIME};
        engine_step(engine, now_us, &event);
        engine_carry_out(engine, now_us);
        store_flush(engine->store, now_us, realtime_us);
        engine_drain_store(engine, now_us);
        bool settled = engine->sink.settle(engine->arg);
        if (!event.more && !settled && !engine_owes(engine))
            return true;
    }
    engine_carry_out(engine, now_us);
    return false;
}

uint64_t
engine_next_us(const struct engine *engine)
{
    uint64_t core_us = core_next_us(engine->core);
    uint64_t store_us = store_next_us(engine->store);

    if (engine_owes(engine))
        return 0;
    return core_us < store_us ? core_us : store_us;
}
