/*
 * Command lines: `--name value`, `--name=value`, `-n value` for a name of one
 * letter, and `--name` for a flag.
 */
#ifndef HOLDFAST_COMMAND_OPTIONS_H
#define HOLDFAST_COMMAND_OPTIONS_H

#include "proto/holdfast/command.h"

/* The pointer that is not NULL tells the type. */
struct option {
    const char *name;  /* without dashes */
    size_t max;        /* of a text in bytes; of a number */
    const char **text; /* receives a ref */
    uint64_t *duration_ms;
    uint64_t *number; /* from 1 */
    bool *flag;       /* has no value */
};

/* The parsed command line. */
struct words {
    char **word; /* ref: the words between options, moved to the front */
    size_t count;
    char **rest; /* ref: the words after "--", ends in NULL; NULL: no "--" */
    bool help;   /* -h */
    int status;  /* words_take() is false: the exit status */
};

#define DAY_MS 86400000u /* the most of --delay, and of a detached lease */

enum options_stop {
    STOP_NEVER,
    STOP_AT_WORD, /* `rest` begins with the first word */
};

/*
 * Reads options and words, and moves the words to the front of `argv`. The
 * options -a, -o, -s, -u and --tls... go to `settings`. False after a
 * complaint.
 */
bool options_read(struct settings *settings, const struct option *options,
    size_t option_count, enum options_stop stop, char **argv,
    struct words *words);

/* Reads the command line of the command `name`, with its options. False: it has
 * printed the help, or complained. */
bool words_take(struct settings *settings, const char *name,
    const struct option *options, size_t option_count, char **argv,
    struct words *words);

/* Whether the option is given. False after a complaint. */
bool option_given(const char *command, const char *option, bool is_given);

/* Whether that is a lease, of a detached hold perhaps. False after a
 * complaint. */
bool lease_check(uint64_t lease_ms, bool detached);

#endif
