/*
 * Which namespace a lock is in, and the names of what is counted for each, from
 * spaces.def.
 */
#include "daemon/core/model/spaces.h"

#include "daemon/base/assert.h"

#include <string.h>

#define FAMILY(id, label, help) \
    static const struct metric_family family_##id = {#id, label, help};
#define PART(id, family, value, help)
#include "daemon/core/model/spaces.def"
#undef FAMILY
#undef PART

static const struct {
    const struct metric_family *family;
    const char *value;
} table[SPACE_COUNTER_COUNT] = {

#define FAMILY(id, label, help)
#define PART(id, family, value, help) {&family_##family, value},
#include "daemon/core/model/spaces.def"
#undef FAMILY
#undef PART
};

void
spaces_init(struct spaces *spaces, const struct text *prefixes, uint32_t count)
{
    require(count <= SPACES_MAX);
    memset(spaces, 0, sizeof(*spaces));
    spaces->count = count + 1;
    for (uint32_t i = 0; i < count; i++) {
        struct space *space = &spaces->space[i];
        require(prefixes[i].len > 0 && prefixes[i].len <= SPACE_PREFIX_BYTES);
        space->prefix_len = (uint8_t)prefixes[i].len;
        memcpy(space->prefix, prefixes[i].at, prefixes[i].len);
    }
}

bool
spaces_are(
    const struct spaces *spaces, const struct text *prefixes, uint32_t count)
{
    if (spaces->count != count + 1)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!text_equal(prefixes[i], text_make(spaces->space[i].prefix,
                                         spaces->space[i].prefix_len)))
            return false;
    return true;
}

/* Has what was counted before for the same prefix, or for `other`. */
static void
space_go_on(struct space *space, const struct spaces *before)
{
    for (uint32_t i = 0; i < before->count; i++) {
        const struct space *old = &before->space[i];
        if (old->prefix_len == space->prefix_len &&
            memcmp(old->prefix, space->prefix, sizeof(old->prefix)) == 0)
            *space = *old;
    }
}

void
spaces_change(
    struct spaces *spaces, const struct text *prefixes, uint32_t count)
{
    struct spaces before = *spaces;

    spaces_init(spaces, prefixes, count);
    for (uint32_t i = 0; i < spaces->count; i++)
        space_go_on(&spaces->space[i], &before);
    spaces->serial = before.serial + 1;
}

uint8_t
spaces_find(const struct spaces *spaces, struct text name)
{
    uint8_t found = (uint8_t)(spaces->count - 1);
    size_t longest = 0;

    for (uint32_t i = 0; i + 1 < spaces->count; i++) {
        const struct space *space = &spaces->space[i];
        size_t len = space->prefix_len;
        if (len <= longest || len > name.len ||
            memcmp(space->prefix, name.at, len) != 0)
            continue;
        longest = len;
        found = (uint8_t)i;
    }
    return found;
}

struct text
space_name(const struct space *space)
{
    if (space->prefix_len == 0)
        return TEXT("other");
    return text_make(space->prefix, space->prefix_len);
}

struct metric
space_metric(enum space_counter counter)
{
    require(counter < SPACE_COUNTER_COUNT);
    const struct metric_family *family = table[counter].family;
    return (struct metric){
        .family = family,
        .value = table[counter].value,
        .first = counter == 0 || table[counter - 1].family != family,
    };
}
