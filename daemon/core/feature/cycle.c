/*
 * A cycle of a deadlock as text: the names of its locks, and its sessions.
 */
#include "daemon/core/feature/deadlock.h"

#include "daemon/core/model/session_table.h"

#include "daemon/base/assert.h"

#include <stdio.h>

/* A name as part of a list: what could be taken for the list's is encoded. */
static size_t
cycle_name(const struct probe_node *node, char out[3 * PROTO_NAME_MAX])
{
    size_t len = 0;

    require(node->name_len <= PROTO_NAME_MAX);
    for (size_t i = 0; i < node->name_len; i++) {
        char c = node->name[i];
        if (c == ',' || c == '%') {
            memcpy(out + len, c == ',' ? "%2C" : "%25", 3);
            len += 3;
        } else {
            out[len++] = c;
        }
    }
    return len;
}

struct text
cycle_names(const struct probe *probe, char *out, size_t out_bytes)
{
    char name[3 * PROTO_NAME_MAX];
    size_t len = 0;

    require(probe->count > 0 && probe->count <= PROBE_NODES);
    for (uint32_t i = 0; i < probe->count; i++) {
        size_t name_len = cycle_name(&probe->nodes[i], name);
        if (i > 0)
            out[len++] = ',';
        if (len + name_len + 2 > out_bytes)
            break;
        memcpy(out + len, name, name_len);
        len += name_len;
    }
    require(len <= out_bytes);
    return text_make(out, len);
}

void
cycle_people(const struct probe *probe, char *out, size_t out_bytes)
{
    size_t len = 0;

    require(out_bytes > 0);
    out[0] = '\0';
    for (uint32_t i = 0; i < probe->count && len + 40 < out_bytes; i++) {
        const struct probe_node *node = &probe->nodes[i];
        char id[SHORT_ID_BYTES + 1];
        core_short_id(node->session, id);
        len += (size_t)snprintf(
            out + len, out_bytes - len, "%s%s", i > 0 ? ", for " : "", id);
    }
    require(len < out_bytes);
}

struct text
cycle_sessions(const struct probe *probe, char *out)
{
    size_t len = 0;

    require(probe->count <= PROBE_NODES);
    for (uint32_t i = 0; i < probe->count; i++) {
        if (i > 0)
            out[len++] = ',';
        core_short_id(probe->nodes[i].session, out + len);
        len += SHORT_ID_BYTES;
    }
    require(len < RECENT_SESSIONS_BYTES);
    return text_make(out, len);
}
