/*
 * The latest fault of a connection: why it is not there, or what Redis answered
 * last where it refuses what grants. health.c makes the health of the store of
 * it.
 */
#include "daemon/store/node/conn.h"

#include "daemon/base/assert.h"

/* Errors, by their beginnings. */
static const struct {
    const char *begin;
    enum health_reason reason;
} errors[] = {
    {"WRONGPASS ", HEALTH_PASSWORD},
    {"ERR invalid password", HEALTH_PASSWORD},
    {"NOAUTH ", HEALTH_PASSWORD_MISSING},
    {"ERR AUTH ", HEALTH_PASSWORD_UNUSED},
    {"ERR Client sent AUTH", HEALTH_PASSWORD_UNUSED},
    {"NOPERM ", HEALTH_RIGHTS},
    {"DENIED ", HEALTH_PROTECTED},
    {"ERR max number of clients", HEALTH_CLIENTS},
    {"ERR unknown command", HEALTH_COMMAND},
    {"ERR Unknown Redis command called from", HEALTH_COMMAND},
    {"ERR The user executing the script can't", HEALTH_RIGHTS},
    {"ERR ACL failure in script", HEALTH_RIGHTS},
    {"LOADING ", HEALTH_LOADING},
    {"READONLY ", HEALTH_REPLICA},
    {"MASTERDOWN ", HEALTH_REPLICA},
    {"OOM ", HEALTH_FULL},
    {"NOREPLICAS ", HEALTH_REPLICAS_TOO_FEW},
    {"MISCONF ", HEALTH_NOT_SAVED},
    {"CLUSTERDOWN ", HEALTH_CLUSTER_DOWN},
    {"BUSY ", HEALTH_BUSY},
};

enum health_reason
health_of_error(struct text error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (text_starts_with(error, text_from(errors[i].begin)))
            return errors[i].reason;
    return HEALTH_ERROR;
}

enum refusal
refusal_of(struct text error)
{
    static const char *const later[] = {"LOADING ", "CLUSTERDOWN ", "BUSY ",
        "MASTERDOWN ", "READONLY ", "OOM ", "NOREPLICAS ", "MISCONF ",
        "NOAUTH ", "NOPERM ", "ERR unknown command"};

    if (text_starts_with(error, TEXT("MOVED ")))
        return REFUSAL_MOVED;
    if (text_starts_with(error, TEXT("ASK ")))
        return REFUSAL_ASK;
    if (text_starts_with(error, TEXT("TRYAGAIN ")))
        return REFUSAL_TRYAGAIN;
    if (text_starts_with(error, TEXT("NOSCRIPT ")))
        return REFUSAL_NOSCRIPT;
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
        if (text_starts_with(error, text_from(later[i])))
            return REFUSAL_LATER;
    return REFUSAL_OTHER;
}

bool
health_is_of_node(enum health_reason reason)
{
    return reason >= HEALTH_LOADING && reason <= HEALTH_BUSY;
}

void
health_copy(char *out, size_t out_bytes, struct text text)
{
    size_t len = text.len < out_bytes ? text.len : out_bytes - 1;

    for (size_t i = 0; i < len; i++)
        out[i] = text.at[i] >= ' ' && text.at[i] <= '~' ? text.at[i] : '?';
    if (len < text.len)
        memcpy(out + len - 3, "...", 3);
    out[len] = '\0';
}

bool
health_fault(struct conn *conn, enum health_reason reason, struct text said,
    uint64_t now_us)
{
    struct conn_fault *fault = &conn->fault;
    char before[sizeof(fault->said)];

    require(reason != HEALTH_FINE);
    memcpy(before, fault->said, sizeof(before));
    fault->reason = reason;
    health_copy(fault->said, sizeof(fault->said), said);
    if (fault->told == reason && strcmp(before, fault->said) == 0 &&
        now_us < fault->told_us + SAID_AGAIN_US)
        return false;
    fault->told = reason;
    fault->told_us = now_us;
    return true;
}

void
health_grants(struct conn *conn)
{
    conn->fault.reason = HEALTH_FINE;
}
