/*
 * The command line of holdfastd.
 *
 * It does nothing: main acts on the result.
 */
#ifndef HOLDFAST_OPTIONS_H
#define HOLDFAST_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifndef OPTIONS_CONFIG_FILE
#define OPTIONS_CONFIG_FILE "/etc/holdfast/holdfast.yaml"
#endif

/* Exit statuses of holdfastd (sysexits.h), besides 0. */
#define OPTIONS_EXIT_USAGE  64
#define OPTIONS_EXIT_SYSTEM 71
#define OPTIONS_EXIT_CONFIG 78

enum options_action {
    OPTIONS_RUN,
    OPTIONS_CHECK_CONFIG, /* "FILE: ok", or the error and status 78 */
    OPTIONS_PRINT_CONFIG,
    OPTIONS_VERSION,
    OPTIONS_HELP,
    OPTIONS_WRONG, /* options.error, and status 64 */
};

struct options {
    const char *config_file; /* ref into argv; NULL: none */
    bool dev;                /* --dev, which takes no other option */
    uint16_t dev_port;       /* 0: any free port */
    char error[128];         /* one line, if the action is OPTIONS_WRONG */
};

/*
 * Reads a command line; prints nothing, and may reorder `argv`. -h and -V win
 * over later options.
 */
enum options_action options_parse(
    struct options *options, int argc, char **argv);

/*
 * The file to read: that of -c, else OPTIONS_CONFIG_FILE if it exists, readable
 * or not, else NULL, for the defaults.
 */
const char *options_config_file(const struct options *options);

/* Writes the output of -h. */
void options_usage(FILE *out);

#endif
