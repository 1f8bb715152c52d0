/*
 * The names and texts of commands.def, by their enumerators.
 *
 * Anybody may ask; nothing here changes.
 */
#include "proto/request.h"

#include "daemon/base/assert.h"

const char *
command_name(enum command command)
{
    static const char *const names[COMMAND_COUNT] = {
#define COMMAND(id, ...) #id,
#include "proto/commands.def"
    };

    require(command < COMMAND_COUNT);
    return names[command];
}

const char *
command_usage(enum command command)
{
    static const char *const usages[COMMAND_COUNT] = {
#define COMMAND(                                                               \
    id, right, draining, refusal, handler, timer, argument, keys, usage, help) \
    usage,
#include "proto/commands.def"
    };

    require(command < COMMAND_COUNT);
    return usages[command];
}

const char *
command_help(enum command command)
{
    static const char *const helps[COMMAND_COUNT] = {
#define COMMAND(                                                               \
    id, right, draining, refusal, handler, timer, argument, keys, usage, help) \
    help,
#include "proto/commands.def"
    };

    require(command < COMMAND_COUNT);
    return helps[command];
}

const char *
error_name(enum error_code code)
{
    static const char *const names[ERROR_COUNT] = {
#define ERROR(id, retry, meaning) #id,
#include "proto/commands.def"
    };

    require(code < ERROR_COUNT);
    return names[code];
}

bool
error_retry(enum error_code code)
{
    static const bool retries[ERROR_COUNT] = {
#define ERROR(id, retry, meaning) (retry) != 0,
#include "proto/commands.def"
    };

    require(code < ERROR_COUNT);
    return retries[code];
}

const char *
error_meaning(enum error_code code)
{
    static const char *const meanings[ERROR_COUNT] = {
#define ERROR(id, retry, meaning) meaning,
#include "proto/commands.def"
    };

    require(code < ERROR_COUNT);
    return meanings[code];
}

/* What the error says of that command. */
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
    static const char *const names[EVENT_COUNT] = {
#define EVENT(id, form, meaning) #id,
#include "proto/commands.def"
    };

    require(code < EVENT_COUNT);
    return names[code];
}
