/*
 * Options of the command line: `--name value`, `--name=value`, `-n value`.
 */
#ifndef HOLDFAST_COMMAND_OPTIONS_H
#define HOLDFAST_COMMAND_OPTIONS_H

#include "proto/holdfast/command.h"

#define OPTION_WORDS 2

struct option {
    const char *name; /* without dashes */
    size_t max;       /* bytes of a text; 0: it is a duration */
    const char **text;
    uint64_t *duration_ms;
};

/* What a command line was found to be. */
struct words {
    const char *word[OPTION_WORDS]; /* refs: what is no option */
    size_t count;
    char **rest; /* ref: what follows "--", ends in NULL; NULL: no "--" */
    bool help;   /* -h */
};

enum options_stop {
    STOP_NEVER,
    STOP_AT_WORD, /* the rest begins with the first word */
};

/*
 * Reads options and at most OPTION_WORDS words. -a, -o and -h are always known
 * and go to `settings`. False after a complaint.
 */
bool options_parse(struct settings *settings, const struct option *options,
    size_t option_count, enum options_stop stop, char **argv,
    struct words *words);

/* "1500", "1500ms", "30s", "5m", "1h"; at most a year. */
bool duration_parse(const char *text, uint64_t *ms);

#endif
