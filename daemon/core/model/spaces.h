/*
 * Namespaces: locks whose names begin alike are counted together, and all that
 * are in none of them as `other`. So no lock's name gets into the metrics, and
 * there are only so many series.
 */
#ifndef HOLDFAST_CORE_MODEL_SPACES_H
#define HOLDFAST_CORE_MODEL_SPACES_H

#include "daemon/base/histogram.h"
#include "daemon/base/text.h"
#include "daemon/op/metric.h"

#include <stdint.h>

#define SPACES_MAX         32 /* without `other`, which comes after them */
#define SPACE_PREFIX_BYTES 64 /* of the names' beginning */

enum space_counter {
#define FAMILY(id, label, help)
#define PART(id, family, value, help) SPACE_##id,
#include "daemon/core/model/spaces.def"
#undef FAMILY
#undef PART
    SPACE_COUNTER_COUNT
};

struct space {
    uint8_t prefix_len;
    char prefix[SPACE_PREFIX_BYTES]; /* none: `other` */
    uint64_t value[SPACE_COUNTER_COUNT];
    struct histogram wait;   /* µs from a LOCK to its grant */
    struct histogram hold;   /* µs from a grant to its end, whatever that is */
    struct histogram margin; /* thousandths of the lease that a renewal left */
};

struct spaces {
    uint32_t count;  /* with `other` */
    uint32_t serial; /* another one after each change */
    struct space space[SPACES_MAX + 1];
};

/* `prefixes` are at most SPACES_MAX, none longer than SPACE_PREFIX_BYTES. */
void spaces_init(
    struct spaces *spaces, const struct text *prefixes, uint32_t count);

/* Whether the prefixes are those of `spaces`, in that order. */
bool spaces_are(
    const struct spaces *spaces, const struct text *prefixes, uint32_t count);

/*
 * Others in their place; one that was there before goes on with what was
 * counted for it, as `other` does. Places that were found before are void.
 */
void spaces_change(
    struct spaces *spaces, const struct text *prefixes, uint32_t count);

/* That of a lock of this name: the one with the longest of the prefixes that
 * it begins with. */
uint8_t spaces_find(const struct spaces *spaces, struct text name);

/* What people call it. */
struct text space_name(const struct space *space);

/* The row of the metrics for a counter of namespaces. */
struct metric space_metric(enum space_counter counter);

#endif
