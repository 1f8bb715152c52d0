/* A log-linear histogram: see histogram.h. */
#include "tests/bench/histogram.h"

#include <string.h>

#define STEP_BITS 6

_Static_assert(1 << STEP_BITS == HISTOGRAM_STEPS, "a power of two");

/* Values below 2 * HISTOGRAM_STEPS have a place each. */
static unsigned
place_of(uint64_t value)
{
    unsigned shift = 0;
    unsigned place;

    if (value >= HISTOGRAM_STEPS)
        shift = 63U - (unsigned)__builtin_clzll(value) - STEP_BITS;
    place = shift * HISTOGRAM_STEPS + (unsigned)(value >> shift);
    if (place >= HISTOGRAM_STEPS * HISTOGRAM_OCTAVES)
        place = HISTOGRAM_STEPS * HISTOGRAM_OCTAVES - 1;
    return place;
}

/* The largest value that belongs there. */
static uint64_t
highest_at(unsigned place)
{
    unsigned shift;

    if (place < 2 * HISTOGRAM_STEPS)
        return place;
    shift = place / HISTOGRAM_STEPS - 1;
    return ((uint64_t)(place - shift * HISTOGRAM_STEPS + 1) << shift) - 1;
}

void
histogram_init(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
}

void
histogram_add(struct histogram *histogram, uint64_t value_ns)
{
    histogram->count[place_of(value_ns)]++;
    histogram->total++;
    if (value_ns > histogram->max_ns)
        histogram->max_ns = value_ns;
}

uint64_t
histogram_at(const struct histogram *histogram, double share)
{
    uint64_t wanted = (uint64_t)((double)histogram->total * share);
    uint64_t seen = 0;

    for (unsigned i = 0; i < HISTOGRAM_STEPS * HISTOGRAM_OCTAVES; i++) {
        seen += histogram->count[i];
        if (seen > wanted)
            return highest_at(i) < histogram->max_ns ? highest_at(i)
                                                     : histogram->max_ns;
    }
    return histogram->max_ns;
}

void
histogram_print(const struct histogram *histogram, FILE *out)
{
    static const struct {
        const char *name;
        double share;
    } marks[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};

    fputc('{', out);
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        fprintf(out, "\"%s\":%.1f,", marks[i].name,
            (double)histogram_at(histogram, marks[i].share) / 1000.0);
    fprintf(out, "\"max\":%.1f}", (double)histogram->max_ns / 1000.0);
}
