/*
 * Core and store as one machine: the order in which a turn moves them.
 *
 * Pure, as they are. Whoever owns the sockets (io; the simulator) tells what
 * happened and when, carries out what comes by the sink, and moves the engine
 * once a turn. The order matters: the lines of a step leave before the
 * operations of it, so that LOST is on its way before the release that lets
 * somebody else have the lock.
 */
#ifndef HOLDFAST_STORE_ENGINE_H
#define HOLDFAST_STORE_ENGINE_H

#include "daemon/core/core.h"
#include "daemon/store/store.h"

/* What the engine wants of clients. `arg` is the engine's. */
struct engine_sink {
    /* A line, a close, a wish to be called back; in their order. The text is
     * at `effects->text`, and stays until `written` has returned. */
    void (*effect)(void *arg, const struct effect *effect);

    /* All effects so far have been given: they are to be written now. The core
     * must not be moved from here. */
    void (*written)(void *arg);

    /* The core may be moved for what came of the writing; true: it was. */
    bool (*settle)(void *arg);
};

struct engine {
    struct core *core;   /* owned */
    struct store *store; /* owned */
    struct effects effects;
    struct engine_sink sink;
    void *arg; /* ref, of the sink */
};

/* False where there is no memory. `counters` stays the caller's. */
bool engine_init(struct engine *engine, const struct core_settings *core,
    const struct store_settings *store, struct counters *counters,
    const struct engine_sink *sink, void *arg, uint64_t now_us);
void engine_fini(struct engine *engine);

/* Moves the core, after making room among the effects if need be. */
void engine_step(
    struct engine *engine, uint64_t now_us, struct core_event *event);

/*
 * Feeds what the store has done into the core. To be called after each reply,
 * as long as that is there: results refer to it.
 */
void engine_drain_store(struct engine *engine, uint64_t now_us);

/* Carries out the effects so far: lines, then operations. */
void engine_carry_out(struct engine *engine, uint64_t now_us);

/*
 * Once a turn, after all that has happened: time for core and store until
 * neither has more to do now, or for so many rounds: false, there is more.
 * What is to be sent to Redis is in the links' output then. `realtime_us` is
 * CLOCK_REALTIME.
 */
bool engine_move(struct engine *engine, uint64_t now_us, uint64_t realtime_us);

/* When to come again at the latest; WHEEL_NEVER: no need to. */
uint64_t engine_next_us(const struct engine *engine);

#endif
