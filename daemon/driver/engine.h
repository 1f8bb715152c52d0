/*
 * Core and store as one machine: the order in which a turn moves them, and the
 * time that counts in it.
 *
 * Pure, as they are. Whoever owns the sockets (io; the simulator) tells what
 * happened, carries out what comes by the sink, and moves the engine once a
 * turn. The order matters: the lines of a step leave before the operations of
 * it, so that LOST is on its way before the release that lets somebody else
 * have the lock.
 *
 * The clock is read when a turn begins, so that a lease counts from before its
 * call was sent, and when bytes of a client are taken (engine_take() says why).
 *
 * See DESIGN.md D8.1.
 */
#ifndef HOLDFAST_DRIVER_ENGINE_H
#define HOLDFAST_DRIVER_ENGINE_H

#include "daemon/core/core.h"
#include "daemon/store/store.h"

/* What the engine wants of its owner. `arg` is the engine's. */
struct engine_sink {
    /* CLOCK_BOOTTIME in us. */
    uint64_t (*clock)(void *arg);

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
    void *arg;        /* ref, of the sink */
    uint64_t now_us;  /* of this turn; 0: none has begun */
    uint64_t stop_us; /* the latest end of a stop; WHEEL_NEVER: no stop */
    uint64_t stop_limit_us;
    uint32_t line_max;
};

/* What is known of a client's bytes between two readings. */
struct engine_input {
    struct handle session;
    bool skipping; /* inside an overlong line */
    bool deaf;     /* its owner's: nothing that it sends matters any more */
};

/* False where there is no memory. `counters` stays the caller's. */
bool engine_init(struct engine *engine, const struct core_settings *core,
    const struct store_settings *store, struct counters *counters,
    const struct engine_sink *sink, void *arg);

/* Frees core, store and effects. */
void engine_fini(struct engine *engine);

/* Takes new settings while it runs, those of core_configure() and
 * store_configure(). A stop that is under way keeps its end. */
void engine_configure(struct engine *engine, const struct core_settings *core,
    const struct store_settings *store);

/* The time of this turn, which begins with the first call of it. */
uint64_t engine_now(struct engine *engine);

/* Moves the core, after making room among the effects if need be. */
void engine_step(struct engine *engine, struct core_event *event);

/*
 * Takes bytes that a client sent: whole lines go to the core; returns how many
 * bytes are done with. The rest is kept by the caller and comes again in front
 * of what comes next. `*late`: the turn has lasted too long, and even whole
 * lines may be among the rest; they are for the next turn. There is no work
 * that a client could keep all others waiting with.
 *
 * `fresh` bytes have just been read, and so the clock is read anew: what the
 * client is told in milliseconds it counts from the sending of its request,
 * which must not be later than the time that we count from; and a turn may last
 * (a stopped process, a busy machine).
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
 * Once a turn, after all that has happened: time for core and store until
 * neither has more to do now, or for so many rounds: false, there is more. What
 * is to be sent to Redis is in the connections' output then. `realtime_us` is
 * CLOCK_REALTIME.
 */
bool engine_move(struct engine *engine, uint64_t realtime_us);

/* When to come again at the latest; WHEEL_NEVER: no need to. */
uint64_t engine_next_us(const struct engine *engine);

/* All that was to be done in this turn has been. */
void engine_turn_over(struct engine *engine);

/* Begins to stop: nothing is granted any more, and clients are told. */
void engine_stop(struct engine *engine);

/* Whether a stop is under way. */
bool engine_stopping(const struct engine *engine);

/* Whether the stop has taken too long: the loop must end. */
bool engine_impatient(const struct engine *engine);

#endif
