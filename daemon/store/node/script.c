/*
 * Scripts at a node: the header of each call, the loading, and the probe.
 *
 * The probe asks whether the node allows the commands that scripts use. The
 * rights of a user are known before the first LOCK.
 */
#include "daemon/store/node/script.h"

#include "daemon/store/node/conn.h"
#include "daemon/store/node/history.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <stdio.h>

void
script_load(
    struct store *store, struct conn *conn, enum script_id id, uint64_t now_us)
{
    struct call *call =
        CONN_SEND(store, conn, CALL_LOAD, now_us, TEXT("SCRIPT"), TEXT("LOAD"),
            text_make(scripts[id].body, scripts[id].body_len));

    if (call == NULL)
        return;
    call->optional = id >= SCRIPTS_AT_ONCE;
    conn->loading++;
}

void
scripts_load(struct store *store, struct conn *conn, uint64_t now_us)
{
    if (conn->loading > 0)
        return;
    for (int i = 0; i < SCRIPTS_AT_ONCE; i++)
        script_load(store, conn, (enum script_id)i, now_us);
}

struct record_header
script_header(
    const struct store *store, const struct conn *conn, uint64_t now_us)
{
    return (struct record_header){
        .number = store->nodes[conn->node].number,
        .broker = store->settings.broker_id,
        .id = conn->id,
        .channel = text_from(store->channel),
        .fence_clock_us = fence_clock_us(store, now_us),
        .expected_us = now_us + (uint64_t)conn->clock.least_us,
        .forget_after_ms = store->settings.forget_after_ms,
        .waiters_max = store->settings.waiters_max,
        .settles_ms = history_settles_ms(store, conn, now_us),
        .steady_ms = history_steady_ms(store, conn, now_us),
        .within_us = history_within_us(store, conn),
        .idle_after_ms = store->settings.idle_after_ms,
        .expiry_ms = store->settings.expiry_ms,
    };
}

/* The commands of the probe, in their order. */
static const char *const probes[] = {
    "SET", "GETRANGE", "SETRANGE", "STRLEN", "PEXPIRE", "EVALSHA"};

#define PROBES (sizeof(probes) / sizeof(probes[0]))

static void
probe_run(struct store *store, struct conn *conn, uint64_t now_us)
{
    struct record_header header = script_header(store, conn, now_us);
    size_t bytes = record_header_bytes(&header);
    struct resp_writer writer;

    if (!resp_begin(&writer, &conn->out, 4, 120 + RESP_BULK_BYTES(bytes)))
        return;
    resp_text(&writer, TEXT("EVALSHA"));
    resp_text(&writer, text_make(scripts[SCRIPT_ACQUIRE].sha1, 40));
    resp_number(&writer, 0);
    record_write_header(&header, resp_bulk(&writer, bytes));
    resp_end(&writer);
    (void)conn_call(store, conn, CALL_PROBE, now_us);
}

void
script_probe(struct store *store, struct conn *conn, uint64_t now_us)
{
    char name[KEY_BYTES];
    uint16_t slot = 0;
    size_t len = history_key(store, conn, "probe", &slot, name);
    struct text key = text_make(name, len);

    if (len == 0 || conn->probing > 0 ||
        CONN_OUT_BYTES - buffer_len(&conn->out) < CONN_OUT_BYTES / 2)
        return;
    CONN_SEND(store, conn, CALL_PROBE, now_us, TEXT("SET"), key, TEXT("?"),
        TEXT("PX"), TEXT("1000"));
    CONN_SEND(store, conn, CALL_PROBE, now_us, TEXT("GETRANGE"), key, TEXT("0"),
        TEXT("0"));
    CONN_SEND(store, conn, CALL_PROBE, now_us, TEXT("SETRANGE"), key, TEXT("0"),
        TEXT("?"));
    CONN_SEND(store, conn, CALL_PROBE, now_us, TEXT("STRLEN"), key);
    CONN_SEND(
        store, conn, CALL_PROBE, now_us, TEXT("PEXPIRE"), key, TEXT("1000"));
    probe_run(store, conn, now_us);
    conn->probing = PROBES;
    conn->lacks[0] = '\0';
}

void
node_refuses(
    struct store *store, struct conn *conn, uint64_t now_us, struct text error)
{
    enum health_reason reason = health_of_error(error);
    char name[80];

    if (health_fault(conn, reason, error, now_us))
        log_write(LOG_WARN, "redis_refuses_for_now",
            log_word("node", conn_name(store, conn, name, sizeof(name))),
            log_word("reason", health_word(reason)),
            log_foreign("error", error));
    history_probe(conn, now_us);
}

/* The first error, and then the commands that got others. */
static void
probe_fails(struct conn *conn, const char *command, struct text error)
{
    size_t len = strlen(conn->lacks);

    if (len == 0)
        health_copy(conn->lacks, sizeof(conn->lacks), error);
    else if (!text_starts_with(text_from(conn->lacks), error))
        (void)snprintf(
            conn->lacks + len, sizeof(conn->lacks) - len, ", nor %s", command);
}

void
script_probed(struct store *store, struct conn *conn, uint64_t now_us,
    const struct resp *reply)
{
    require(conn->probing > 0);
    const char *command = probes[PROBES - conn->probing--];

    if (reply->type == RESP_ERROR) {
        enum refusal refusal = refusal_of(reply->text);
        if (refusal == REFUSAL_NOSCRIPT)
            scripts_load(store, conn, now_us);
        else if (refusal == REFUSAL_LATER || refusal == REFUSAL_OTHER)
            probe_fails(conn, command, reply->text);
    }
    if (conn->probing > 0)
        return;
    conn->unproved = false;
    if (conn->lacks[0] != '\0')
        node_refuses(store, conn, now_us, text_from(conn->lacks));
    else
        health_grants(conn);
}
