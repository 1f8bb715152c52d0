/*
 * Reads command lines. getopt_long() does not fit: it reorders the words after
 * "--", accepts abbreviations, and hides whether there was a "--".
 */
#include "proto/holdfast/options.h"

#include "daemon/base/assert.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define DURATION_MAX_MS 31536000000u /* 365 days */

/* Reads "1500ms", "30s", "5m", "1h", at most a year. "0" needs no unit. */
static bool
duration_parse(const char *text, uint64_t *ms)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

    uint64_t value = 0;
    const char *at = text;

    while (*at >= '0' && *at <= '9') {
        value = value * 10 + (uint64_t)(*at++ - '0');
        if (value > DURATION_MAX_MS)
            return false;
    }
    if (at == text)
        return false;
    if (*at == '\0' && value == 0) {
        *ms = 0;
        return true;
    }
    for (size_t i = 0; i < COUNT(units); i++) {
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
    static const char *const names[] = {"columns", "tabs", "json"};

    for (size_t i = 0; i < COUNT(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *format = (enum out_format)(OUT_COLUMNS + i);
            return true;
        }
    }
    complain("-o: '%s' is not json, tabs or columns", text);
    return false;
}

/* The dashes before the option's name. */
static const char *
dashes(const struct option *option)
{
    return option->name[1] == '\0' ? "-" : "--";
}

static bool
number_set(const struct option *option, const char *value)
{
    uint64_t number = 0;

    for (const char *at = value; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || number > option->max) {
            number = 0;
            break;
        }
        number = number * 10 + (uint64_t)(*at - '0');
    }
    if (number == 0 || number > option->max) {
        complain("%s%s: '%s' is not a number from 1 to %zu", dashes(option),
            option->name, value, option->max);
        return false;
    }
    *option->number = number;
    return true;
}

static bool
duration_set(const struct option *option, const char *value)
{
    if (duration_parse(value, option->duration_ms))
        return true;
    if (value[0] != '\0' && value[strspn(value, "0123456789")] == '\0')
        complain("%s%s: '%s' needs a unit: write %ss or %sms", dashes(option),
            option->name, value, value, value);
    else
        complain("%s%s: '%s' is not a duration such as 1500ms, 30s, 5m or 1h",
            dashes(option), option->name, value);
    return false;
}

static bool
option_set(const struct option *option, const char *value)
{
    if (option->number != NULL)
        return number_set(option, value);
    if (option->duration_ms != NULL)
        return duration_set(option, value);
    if (value[0] == '\0' || strlen(value) > option->max) {
        complain("--%s: a value of %zu bytes; it must have 1 to %zu",
            option->name, strlen(value), option->max);
        return false;
    }
    require(option->text != NULL); /* a flag has no value */
    *option->text = value;
    return true;
}

/* NULL: no option has this name. */
static const struct option *
option_find(const struct option *options, size_t option_count, const char *name,
    size_t len)
{
    for (size_t i = 0; i < option_count; i++)
        if (strlen(options[i].name) == len &&
            memcmp(options[i].name, name, len) == 0)
            return &options[i];
    return NULL;
}

/* The long options of all commands. False: none of them has this name. */
static bool
option_common(struct settings *settings, const char *name, size_t len,
    struct option *found)
{
    const struct option options[] = {
        {.name = "tls", .flag = &settings->tls},
        {.name = "tls-ca", .max = PATH_MAX, .text = &settings->tls_ca},
        {.name = "tls-cert", .max = PATH_MAX, .text = &settings->tls_cert},
        {.name = "tls-key", .max = PATH_MAX, .text = &settings->tls_key},
        {.name = "tls-name", .max = NAME_MAX, .text = &settings->tls_name},
        {.name = "tls-verify", .max = NAME_MAX, .text = &settings->tls_verify},
    };
    const struct option *option =
        option_find(options, COUNT(options), name, len);

    if (option != NULL)
        *found = *option;
    return option != NULL;
}

/* Sets -a, -o, -s or -u. False after a complaint. */
static bool
setting_set(struct settings *settings, char letter, const char *value)
{
    if (letter == 'o')
        return format_parse(value, &settings->format);
    if (letter == 'u')
        settings->user = value;
    else if (letter == 's')
        settings->secret_file = value;
    else
        settings->address = value;
    return true;
}

/* Reads the option at argv[*at], and moves *at to its value. False after a
 * complaint. */
static bool
option_take(struct settings *settings, const struct option *options,
    size_t option_count, char **argv, size_t *at)
{
    const struct option *option = NULL;
    struct option common;
    bool is_long = argv[*at][1] == '-';
    const char *name = argv[*at] + (is_long ? 2 : 1);
    const char *value = NULL;

    if (is_long) {
        size_t len = strcspn(name, "=");

        if (len > 1)
            option = option_find(options, option_count, name, len);
        if (option == NULL && option_common(settings, name, len, &common))
            option = &common;
        if (name[len] == '=')
            value = name + len + 1;
    } else {
        option = option_find(options, option_count, name, 1);
        if (name[0] != '\0' && name[1] != '\0')
            value = name + 1; /* -aADDR */
    }
    if (option == NULL &&
        (is_long || name[0] == '\0' || strchr("aosu", name[0]) == NULL)) {
        /* Without the value, which may be a secret. */
        complain("there is no option '%.*s' here",
            is_long ? (int)strcspn(argv[*at], "=") : 2, argv[*at]);
        return false;
    }
    if (option != NULL && option->flag != NULL) {
        if (value != NULL) {
            complain("--%s takes no value", option->name);
            return false;
        }
        *option->flag = true;
        return true;
    }
    if (value == NULL) {
        value = argv[*at + 1];
        if (value == NULL) {
            complain("%s: a value is missing", argv[*at]);
            return false;
        }
        (*at)++;
    }
    return option != NULL ? option_set(option, value)
                          : setting_set(settings, name[0], value);
}

bool
options_read(struct settings *settings, const struct option *options,
    size_t option_count, enum options_stop stop, char **argv,
    struct words *words)
{
    *words = (struct words){.word = argv, .status = STATUS_USAGE};
    for (size_t at = 0; argv[at] != NULL; at++) {
        char *part = argv[at];

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
        require(words->count <= at); /* it overwrites words read before */
        words->word[words->count++] = part;
    }
    return true;
}

bool
option_given(const char *command, const char *option, bool is_given)
{
    if (!is_given)
        complain("%s: --%s is missing", command, option);
    return is_given;
}

bool
lease_check(uint64_t lease_ms, bool detached)
{
    if (lease_ms == 0)
        complain("--lease: 0 is not a lease; write 1ms or more");
    else if (detached && lease_ms > DAY_MS)
        complain("--lease: %" PRIu64 "ms is more than 24h, the most of a "
                 "detached hold",
            lease_ms);
    else
        return true;
    return false;
}

/* Whether the options of the connection fit the command. False after a
 * complaint. */
static bool
settings_take(const struct settings *settings, const char *name)
{
    if (strcmp(name, "secret") == 0)
        return true; /* it needs no broker */
    return settings_fit(settings) &&
           (strcmp(name, "raw") == 0 || secret_fit(settings));
}

bool
words_take(struct settings *settings, const char *name,
    const struct option *options, size_t option_count, char **argv,
    struct words *words)
{
    const struct usage *usage = usage_find(name);
    bool program = strcmp(name, "run") == 0;

    require(usage != NULL);
    if (!options_read(settings, options, option_count, STOP_NEVER, argv, words))
        return false;
    if (words->help) {
        (void)fputs(usage->help, stdout);
        words->status = STATUS_FINE;
        return false;
    }
    if (words->count >= usage->words_min && words->count <= usage->words_max &&
        (program ? words->rest != NULL && words->rest[0] != NULL
                 : words->rest == NULL))
        return settings_take(settings, name);
    if (!program && words->rest != NULL)
        complain("%s: takes no words after --", name);
    else
        complain("%s: takes %s", name, usage->takes);
    return false;
}
