/*
 * Options of the command line: `--name value`, `--name=value`, `-n value` of
 * those whose name is one letter; and `--name` of those that take none.
 */
#ifndef HOLDFAST_COMMAND_OPTIONS_H
#define HOLDFAST_COMMAND_OPTIONS_H

#include "proto/holdfast/command.h"

/* One of the pointers says of which type it is; the others are NULL. */
struct option {
    const char *name;  /* without dashes */
    size_t max;        /* bytes of a text; the largest number */
    const char **text; /* gets a ref */
    uint64_t *duration_ms;
    uint64_t *number; /* from 1 */
    bool *flag;       /* takes no value */
};

/* The parsed command line. */
struct words {
    char **word; /* ref: what is no option, at the front of argv */
    size_t count;
    char **rest; /* ref: what follows "--", ends in NULL; NULL: no "--" */
    bool help;   /* -h */
};

enum options_stop {
    STOP_NEVER,
    STOP_AT_WORD, /* the rest begins with the first word */
};

/*
 * Reads options and words; the latter are moved to the front of `argv`. -a, -o,
 * -s, -u, -h and --tls... are always known and go to `settings`. False after a
 * complaint.
 */
bool options_parse(struct settings *settings, const struct option *options,
    size_t option_count, enum options_stop stop, char **argv,
    struct words *words);

/* "1500ms", "30s", "5m", "1h", at most a year; "0" alone needs no unit. */
bool duration_parse(const char *text, uint64_t *ms);

#endif
