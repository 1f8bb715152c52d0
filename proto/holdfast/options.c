/*
 * Reads command lines. Written by hand because getopt_long() would reorder what
 * follows "--" along with the rest, take abbreviations, and hide whether there
 * was a "--" at all.
 */
#include "proto/holdfast/options.h"

#include <string.h>

#define DURATION_MAX_MS 31536000000u /* 365 days */

bool
duration_parse(const char *text, uint64_t *ms)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

    uint64_t value = 0;
    const char *at = text;

    while (*at >= '0' && *at <= '9') {
        value = value * 10 + (uint64_t)(*at++ - '0');
        if (value > DURATION_MAX_MS)
            return false;
    }
    if (at == text)
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(at, units[i].unit) == 0) {
            *ms = value * units[i].ms;
            return *ms <= DURATION_MAX_MS;
        }
    }
    return false;
}

static bool
format_parse(const char *text, enum out_format *format)
{
    if (strcmp(text, "json") == 0) {
        *format = OUT_JSON;
    } else if (strcmp(text, "tabs") == 0) {
        *format = OUT_TABS;
    } else if (strcmp(text, "columns") == 0) {
        *format = OUT_COLUMNS;
    } else {
        complain("-o: '%s' is not json, tabs or columns", text);
        return false;
    }
    return true;
}

static bool
option_set(const struct option *option, const char *value)
{
    if (option->max == 0) {
        if (duration_parse(value, option->duration_ms))
            return true;
        complain("--%s: '%s' is not a duration such as 1500ms, 30s, 5m, 1h",
            option->name, value);
        return false;
    }
    if (value[0] == '\0' || strlen(value) > option->max) {
        complain(
            "--%s: 1 to %zu bytes are asked for", option->name, option->max);
        return false;
    }
    *option->text = value;
    return true;
}

/* An option with a value, by its name without dashes. */
static bool
value_take(struct settings *settings, const struct option *options,
    size_t option_count, const char *name, size_t len, const char *value)
{
    if (len == 1 && name[0] == 'o')
        return format_parse(value, &settings->format);
    if (len == 1 && name[0] == 'a') {
        settings->address = value;
        return true;
    }
    for (size_t i = 0; i < option_count; i++)
        if (strlen(options[i].name) == len &&
            memcmp(options[i].name, name, len) == 0)
            return option_set(&options[i], value);
    return false;
}

static bool
name_known(const struct option *options, size_t option_count, const char *name,
    size_t len)
{
    if (len == 1)
        return name[0] == 'a' || name[0] == 'o';
    for (size_t i = 0; i < option_count; i++)
        if (strlen(options[i].name) == len &&
            memcmp(options[i].name, name, len) == 0)
            return true;
    return false;
}

/* One option at argv[*at]; moves *at to its last part. */
static bool
option_take(struct settings *settings, const struct option *options,
    size_t option_count, char **argv, size_t *at)
{
    bool is_long = argv[*at][1] == '-';
    const char *name = argv[*at] + (is_long ? 2 : 1);
    const char *equals = is_long ? strchr(name, '=') : NULL;
    const char *value = equals != NULL ? equals + 1 : NULL;
    size_t len = equals != NULL ? (size_t)(equals - name) : strlen(name);

    if (!is_long && len > 1) {
        /* -aADDR */
        value = name + 1;
        len = 1;
    }
    if ((is_long && len == 1) ||
        !name_known(options, option_count, name, len)) {
        complain("there is no option '%s' here", argv[*at]);
        return false;
    }
    if (value == NULL) {
        value = argv[*at + 1];
        if (value == NULL) {
            complain("%s: a value is missing", argv[*at]);
            return false;
        }
        (*at)++;
    }
    return value_take(settings, options, option_count, name, len, value);
}

bool
options_parse(struct settings *settings, const struct option *options,
    size_t option_count, enum options_stop stop, char **argv,
    struct words *words)
{
    memset(words, 0, sizeof(*words));
    for (size_t at = 0; argv[at] != NULL; at++) {
        const char *part = argv[at];

        if (strcmp(part, "--") == 0) {
            words->rest = argv + at + 1;
            return true;
        }
        if (strcmp(part, "-h") == 0 || strcmp(part, "--help") == 0) {
            words->help = true;
            continue;
        }
        if (part[0] == '-' && part[1] != '\0') {
            if (!option_take(settings, options, option_count, argv, &at))
                return false;
            continue;
        }
        if (stop == STOP_AT_WORD) {
            words->rest = argv + at;
            return true;
        }
        if (words->count == OPTION_WORDS) {
            complain("'%s' is one word too many", part);
            return false;
        }
        words->word[words->count++] = part;
    }
    return true;
}
