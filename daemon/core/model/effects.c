/*
 * Effects: memory taken once, filled by the core, carried out by io.
 */
#include "daemon/core/model/effects.h"

#include "daemon/base/assert.h"

#include <stdlib.h>

bool
effects_init(struct effects *effects, uint32_t steps)
{
    require(steps > 0 && steps <= UINT32_MAX / EFFECTS_STEP_BYTES);
    list_init(&effects->ops);
    list_init(&effects->hurried);
    effects->entry_count = 0;
    effects->text_len = 0;
    effects->entry_capacity = steps * EFFECTS_STEP_ENTRIES;
    effects->text_capacity = steps * EFFECTS_STEP_BYTES;
    effects->entries =
        calloc(effects->entry_capacity, sizeof(*effects->entries));
    effects->text = malloc(effects->text_capacity);
    if (effects->entries != NULL && effects->text != NULL)
        return true;
    effects_fini(effects);
    return false;
}

void
effects_fini(struct effects *effects)
{
    free(effects->entries);
    free(effects->text);
    effects->entries = NULL;
    effects->text = NULL;
}

void
effects_clear(struct effects *effects)
{
    require(list_empty(&effects->ops) && list_empty(&effects->hurried));
    effects->entry_count = 0;
    effects->text_len = 0;
}

char *
effects_reserve(struct effects *effects, uint32_t bytes)
{
    require(effects->text_capacity - effects->text_len >= bytes);
    return effects->text + effects->text_len;
}

/* `len` bytes have just been written into the text. */
static void
effects_next(struct effects *effects, enum effect_kind kind,
    struct handle session, uint32_t len)
{
    require(effects->entry_count < effects->entry_capacity);
    struct effect *effect = &effects->entries[effects->entry_count++];

    effect->kind = kind;
    effect->session = session;
    require((len > 0) == (kind == EFFECT_LINE || kind == EFFECT_HOOK));
    require(len <= effects->text_capacity - effects->text_len);
    effect->offset = effects->text_len;
    effect->len = len;
    effects->text_len += len;
}

void
effects_line(struct effects *effects, struct handle session, uint32_t len)
{
    require(!handle_equal(session, HANDLE_NONE));
    effects_next(effects, EFFECT_LINE, session, len);
}

void
effects_hook(struct effects *effects, uint32_t len)
{
    effects_next(effects, EFFECT_HOOK, HANDLE_NONE, len);
}

void
effects_add(
    struct effects *effects, enum effect_kind kind, struct handle session)
{
    require(kind == EFFECT_MORE || kind == EFFECT_CLOSE);
    require(!handle_equal(session, HANDLE_NONE));
    effects_next(effects, kind, session, 0);
}
