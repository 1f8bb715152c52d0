/*
 * Core and store as one machine: the order in which a turn moves them, and the
 * time of the turn.
 *
 * The engine is pure. The owner of the sockets (io, or the simulator) reports
 * events, carries out effects by the sink, and moves the engine once a turn.
 * The order matters: the lines of a step leave before its operations. So LOST
 * is on its way before the release that gives another session the lock.
 *
 * A turn reads the clock when it begins: a lease counts from before its call
 * was sent. engine_take() reads it again.
 *
 * See DESIGN.md D8.1.
 */
#ifndef HOLDFAST_DRIVER_ENGINE_H
#define HOLDFAST_DRIVER_ENGINE_H

#include "daemon/base/slab.h"
#include "daemon/base/wheel.h"
#include "daemon/core/core.h"
#include "daemon/store/store.h"

/* The engine's calls to its owner. `arg` is the engine's. */
struct engine_sink {
    /* CLOCK_BOOTTIME in us. */
    uint64_t (*clock)(void *arg);

    /* A line, a close, a wish to be called back; in their order. The text is
     * at `effects->text`, and stays until `written` has returned. */
    void (*effect)(void *arg, const struct effect *effect);

    /* All effects so far have been given, and must be written now. The owner
     * must not move the core from here. */
    void (*written)(void *arg);

    /* The owner may move the core for results of the writing. True: it did. */
    bool (*settle)(void *arg);
};

struct engine {
    struct core *core;   /* owned */
    struct store *store; /* owned */
    struct effects effects;
    struct engine_sink sink;
    void *arg;        /* ref, of the sink */
    uint64_t now_us;  /* of this turn; 0: none has begun */
    uint64_t stop_us; /* the latest end of a stop; WHEEL_NEVER: no stop */
    uint64_t stop_limit_us;
    bool writing; /* in `written`: the core must not be moved */
    uint32_t line_max;
};

/* The state of a client's input between two reads. */
struct engine_input {
    struct handle session;
    bool skipping; /* inside an overlong line */
    bool deaf;     /* the owner's: its input is ignored */
};

/* Makes core and store. False: no memory. `counters` stays the caller's. */
bool engine_init(struct engine *engine, const struct core_settings *core,
    const struct store_settings *store, struct counters *counters,
    const struct engine_sink *sink, void *arg);

/* Frees core, store and effects. */
void engine_fini(struct engine *engine);

/* Takes new settings while it runs: those of core_configure() and
 * store_configure(). A stop under way keeps its end. */
void engine_configure(struct engine *engine, const struct core_settings *core,
    const struct store_settings *store);

/* The time of this turn, which the first call begins. */
static inline uint64_t
engine_now(struct engine *engine)
{
    if (engine->now_us == 0)
        engine->now_us = engine->sink.clock(engine->arg);
    return engine->now_us;
}

/* Moves the core. Carries out effects first, if there is no room for more. */
void engine_step(struct engine *engine, struct core_event *event);

/*
 * Takes bytes of a client. Whole lines go to the core. Returns the count of
 * bytes that are done. The caller keeps the rest, and gives it again in front
 * of the next bytes. `*late`: the lines have taken too long, and the rest may
 * have whole lines, for the next turn. So no client can keep the others
 * waiting.
 *
 * `fresh` bytes were just read, and the clock is read again. A client counts
 * each `ttl_ms` from the sending of its request. The broker must count from no
 * later time, and a turn may be long (a stopped process, a busy machine).
 */
size_t engine_take(struct engine *engine, struct engine_input *input,
    char *data, size_t len, bool fresh, bool *late);

/*
 * Events of a connection to Redis. The core gets the results before these
 * functions return.
 */

/* Its socket is connected, and a TLS handshake begins. */
void engine_conn_opened(struct engine *engine, struct store_conn conn);

/* It can be used. */
void engine_conn_connected(struct engine *engine, struct store_conn conn);

/* A reply, or a message of a subscription, which stays the caller's. */
void engine_reply(
    struct engine *engine, struct store_conn conn, const struct resp *reply);

/* It has ended, or was never made. `why` is for people. */
void engine_conn_lost(struct engine *engine, struct store_conn conn,
    enum health_reason reason, const char *why);

/* Carries out the effects so far: lines, then operations. */
void engine_carry_out(struct engine *engine);

/*
 * Moves core and store once a turn, after all events, until neither has more to
 * do. False: there is more, after so many rounds. Output for Redis is in the
 * connections' buffers then. `realtime_us` is CLOCK_REALTIME.
 */
bool engine_move(struct engine *engine, uint64_t realtime_us);

/* The latest time of the next turn; WHEEL_NEVER: none. */
uint64_t engine_next_us(const struct engine *engine);

/* Ends the turn. */
static inline void
engine_turn_over(struct engine *engine)
{
    engine->now_us = 0;
}

/* Begins to stop: no new grants, and clients are told. */
void engine_stop(struct engine *engine);

/* Whether a stop is under way. */
static inline bool
engine_stopping(const struct engine *engine)
{
    return engine->stop_us != WHEEL_NEVER;
}

/* Whether the stop has taken too long: the loop must end. */
bool engine_impatient(const struct engine *engine);

#endif
