/*
 * Keys and durations in the words of a command; the state of the driver.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/driver/driver.h"

#include <stdlib.h>
#include <string.h>

struct holdfast *driver_h;
struct driver_item *driver_items;

const char *
driver_key(char **words, const char *key)
{
    size_t len = strlen(key);

    for (; *words != NULL; words++)
        if (strncmp(*words, key, len) == 0 && (*words)[len] == '=')
            return *words + len + 1;
    return NULL;
}

uint64_t
driver_duration(const char *text, uint64_t otherwise)
{
    char *unit;

    if (text == NULL)
        return otherwise;
    uint64_t value = strtoull(text, &unit, 10);
    if (strcmp(unit, "s") == 0)
        return value * 1000;
    if (strcmp(unit, "m") == 0)
        return value * 60000;
    return strcmp(unit, "h") == 0 ? value * 3600000 : value;
}

uint64_t
driver_renew_end_ms(const struct driver_item *item)
{
    return item->asked_ms + item->lease_ms - item->lease_ms / 100 - 2;
}
