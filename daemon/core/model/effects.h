/*
 * The effects of one or more steps of the core: lines to send, sessions to
 * close, operations for the store. The memory is the caller's, taken at start;
 * the caller carries the effects out and clears them.
 */
#ifndef HOLDFAST_CORE_MODEL_EFFECTS_H
#define HOLDFAST_CORE_MODEL_EFFECTS_H

#include "daemon/base/list.h"
#include "daemon/base/slab.h"
#include "daemon/op/kind.h"

struct op;

enum effect_kind {
    EFFECT_LINE,  /* send these bytes to the session's client */
    EFFECT_MORE,  /* once its output is drained, come back with CORE_MORE */
    EFFECT_CLOSE, /* after what was sent before, close the connection */
    EFFECT_HOOK,  /* no session: run the hook with this environment, KEY=value
                   * and a NUL each */
};

struct effect {
    enum effect_kind kind;
    struct handle session;
    uint32_t offset; /* of a line, or an environment, in `text` */
    uint32_t len;
};

/* A step adds no more than this; flush when less is left. */
#define EFFECTS_STEP_BYTES   (2u << 20)
#define EFFECTS_STEP_ENTRIES 16384u

struct effects {
    struct list ops;        /* struct op by link, in the order of asking */
    struct list hurried;    /* by hurry_link, of those and earlier ones: nobody
                             * waits any more for Redis to be asked */
    struct effect *entries; /* owned */
    uint32_t entry_count;
    uint32_t entry_capacity;
    char *text; /* owned */
    uint32_t text_len;
    uint32_t text_capacity;
};

/* Room for `steps` full steps. False: no memory. */
bool effects_init(struct effects *effects, uint32_t steps);

/* Frees the memory of effects. */
void effects_fini(struct effects *effects);

/* Forgets lines and closes; the operations have been taken over before. */
void effects_clear(struct effects *effects);

/* Whether another step may be made before the effects are carried out. */
static inline bool
effects_room(const struct effects *effects)
{
    return effects->text_capacity - effects->text_len >= EFFECTS_STEP_BYTES &&
           effects->entry_capacity - effects->entry_count >=
               EFFECTS_STEP_ENTRIES;
}

/* Within a step: whether what answers one of many may go on; half of what the
 * step may add is left for all else then. Else the rest comes later. */
static inline bool
effects_spare(const struct effects *effects)
{
    return effects->text_capacity - effects->text_len >=
               EFFECTS_STEP_BYTES / 2 &&
           effects->entry_capacity - effects->entry_count >=
               EFFECTS_STEP_ENTRIES / 2;
}

/* For the core. A place for a line of up to `bytes`; there must be room. */
char *effects_reserve(struct effects *effects, uint32_t bytes);

/* Sends the reserved `len` bytes to the session as one line. */
void effects_line(struct effects *effects, struct handle session, uint32_t len);

/* Gives the reserved `len` bytes to the hook program as one line. */
void effects_hook(struct effects *effects, uint32_t len);

/* Adds an effect without text. */
void effects_add(
    struct effects *effects, enum effect_kind kind, struct handle session);

#endif
