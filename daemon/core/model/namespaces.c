/*
 * Which namespace a lock is in, and the names of what is counted for each, from
 * namespaces.def.
 */
#include "daemon/core/model/namespaces.h"

#include "daemon/base/assert.h"

#include <string.h>

#define FAMILY(id, label, help) \
    static const struct metric_family family_##id = {#id, label, help};
#define PART(id, family, value, help)
#include "daemon/core/model/namespaces.def"
#undef FAMILY
#undef PART

static const struct {
    const struct metric_family *family;
    const char *value;
} table[NAMESPACE_COUNTER_COUNT] = {

#define FAMILY(id, label, help)
#define PART(id, family, value, help) {&family_##family, value},
#include "daemon/core/model/namespaces.def"
#undef FAMILY
#undef PART
};

void
namespaces_init(
    struct namespaces *namespaces, const struct text *prefixes, uint32_t count)
{
    require(count <= NAMESPACES_MAX);
    memset(namespaces, 0, sizeof(*namespaces));
    namespaces->count = count + 1;
    for (uint32_t i = 0; i < count; i++) {
        struct namespace *namespace = &namespaces->namespace[i];
        require(
            prefixes[i].len > 0 && prefixes[i].len <= NAMESPACE_PREFIX_BYTES);
        namespace->prefix_len = (uint8_t)prefixes[i].len;
        memcpy(namespace->prefix, prefixes[i].at, prefixes[i].len);
    }
}

bool
namespaces_are(const struct namespaces *namespaces, const struct text *prefixes,
    uint32_t count)
{
    if (namespaces->count != count + 1)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!text_equal(prefixes[i], text_make(namespaces->namespace[i].prefix,
                                         namespaces->namespace[i].prefix_len)))
            return false;
    return true;
}

/* Has what was counted before for the same prefix, or for `other`. */
static void
namespace_go_on(struct namespace *namespace, const struct namespaces *before)
{
    for (uint32_t i = 0; i < before->count; i++) {
        const struct namespace *old = &before->namespace[i];
        if (old->prefix_len == namespace->prefix_len &&
            memcmp(old->prefix, namespace->prefix, sizeof(old->prefix)) == 0)
            *namespace = *old;
    }
}

void
namespaces_change(
    struct namespaces *namespaces, const struct text *prefixes, uint32_t count)
{
    struct namespaces before = *namespaces;

    require(before.count > 0);
    namespaces_init(namespaces, prefixes, count);
    for (uint32_t i = 0; i < namespaces->count; i++)
        namespace_go_on(&namespaces->namespace[i], &before);
    namespaces->serial = before.serial + 1;
}

uint8_t
namespaces_find(const struct namespaces *namespaces, struct text name)
{
    uint8_t found = (uint8_t)(namespaces->count - 1);
    size_t longest = 0;

    require(namespaces->count > 0);
    for (uint32_t i = 0; i + 1 < namespaces->count; i++) {
        const struct namespace *namespace = &namespaces->namespace[i];
        size_t len = namespace->prefix_len;
        if (len <= longest || len > name.len ||
            memcmp(namespace->prefix, name.at, len) != 0)
            continue;
        longest = len;
        found = (uint8_t)i;
    }
    return found;
}

struct text
namespace_name(const struct namespace *namespace)
{
    require(namespace->prefix_len <= sizeof(namespace->prefix));
    if (namespace->prefix_len == 0)
        return TEXT("other");
    return text_make(namespace->prefix, namespace->prefix_len);
}

struct metric
namespace_metric(enum namespace_counter counter)
{
    require(counter < NAMESPACE_COUNTER_COUNT);
    const struct metric_family *family = table[counter].family;
    return (struct metric){
        .family = family,
        .value = table[counter].value,
        .first = counter == 0 || table[counter - 1].family != family,
    };
}
