/*
 * Namespaces: locks whose names begin alike are counted together, and all that
 * are in none of them as `other`. So no lock's name gets into the metrics, and
 * there are only so many series.
 */
#ifndef HOLDFAST_CORE_MODEL_NAMESPACES_H
#define HOLDFAST_CORE_MODEL_NAMESPACES_H

#include "daemon/base/histogram.h"
#include "daemon/base/text.h"
#include "daemon/op/metric.h"

#include <stdint.h>

#define NAMESPACES_MAX         32 /* without `other`, which comes after them */
#define NAMESPACE_PREFIX_BYTES 64 /* of the names' beginning */

enum namespace_counter {
#define FAMILY(id, label, help)
#define PART(id, family, value, help) NAMESPACE_##id,
#include "daemon/core/model/namespaces.def"
#undef FAMILY
#undef PART
    NAMESPACE_COUNTER_COUNT
};

struct namespace
{
    uint8_t prefix_len;
    char prefix[NAMESPACE_PREFIX_BYTES]; /* none: `other` */
    uint64_t value[NAMESPACE_COUNTER_COUNT];
    struct histogram wait;   /* µs from a LOCK to its grant */
    struct histogram hold;   /* µs from a grant to its end, whatever that is */
    struct histogram margin; /* thousandths of the lease that a renewal left */
};

struct namespaces {
    uint32_t count;  /* with `other` */
    uint32_t serial; /* another one after each change */
    struct namespace namespace[NAMESPACES_MAX + 1];
};

/* At most NAMESPACES_MAX prefixes, none longer than NAMESPACE_PREFIX_BYTES. */
void namespaces_init(
    struct namespaces *namespaces, const struct text *prefixes, uint32_t count);

/* Whether the prefixes are those of `namespaces`, in that order. */
bool namespaces_are(const struct namespaces *namespaces,
    const struct text *prefixes, uint32_t count);

/*
 * Others in their place; one that was there before goes on with what was
 * counted for it, as `other` does. Places that were found before are void.
 */
void namespaces_change(
    struct namespaces *namespaces, const struct text *prefixes, uint32_t count);

/* That of a lock of this name: the one with the longest of the prefixes that
 * it begins with. */
uint8_t namespaces_find(const struct namespaces *namespaces, struct text name);

/* Its name for people. */
struct text namespace_name(const struct namespace *namespace);

/* The row of the metrics for a counter of namespaces. */
struct metric namespace_metric(enum namespace_counter counter);

#endif
