/*
 * Counters for Prometheus: the family of each one, and its part of that.
 */
#ifndef HOLDFAST_OP_METRIC_H
#define HOLDFAST_OP_METRIC_H

#include <stdbool.h>

struct metric_family {
    const char *name;  /* without prefix and _total */
    const char *label; /* NULL: it has one part, itself */
    const char *help;
};

struct metric {
    const struct metric_family *family;
    const char *value; /* of the label */
    bool first;        /* of its family */
};

#endif
