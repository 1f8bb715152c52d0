/*
 * The names and texts of commands.def, by their enumerators.
 */
#include "proto/request.h"

#include "daemon/base/assert.h"

static const struct {
    const char *name;
    const char *usage;
    const char *help;
} commands[COMMAND_COUNT] = {

#define COMMAND(                                                              \
    id, right, draining, refusal, handler, timer, argument, keys, form, text) \
    {.name = #id, .usage = form, .help = text},
#include "proto/commands.def"
};

static const struct {
    const char *name;
    bool retry;
    const char *meaning;
} errors[ERROR_COUNT] = {

#define ERROR(id, retry, meaning) {#id, (retry) != 0, meaning},
#include "proto/commands.def"
};

static const char *const events[EVENT_COUNT] = {
#define EVENT(id, form, meaning) #id,
#include "proto/commands.def"
};

const char *
command_name(enum command command)
{
    require(command < COMMAND_COUNT);
    return commands[command].name;
}

const char *
command_usage(enum command command)
{
    require(command < COMMAND_COUNT);
    return commands[command].usage;
}

const char *
command_help(enum command command)
{
    require(command < COMMAND_COUNT);
    return commands[command].help;
}

const char *
error_name(enum error_code code)
{
    require(code < ERROR_COUNT);
    return errors[code].name;
}

bool
error_retry(enum error_code code)
{
    require(code < ERROR_COUNT);
    return errors[code].retry;
}

const char *
error_meaning(enum error_code code)
{
    require(code < ERROR_COUNT);
    return errors[code].meaning;
}

const char *
error_outcome(enum error_code code, enum command command)
{
#define OUTCOME(of, on, meaning)                       \
    if (code == ERROR_##of && command == COMMAND_##on) \
        return meaning;
#include "proto/commands.def"

    return error_meaning(code);
}

const char *
event_name(enum event_code code)
{
    require(code < EVENT_COUNT);
    return events[code];
}
