/*
 * Health, readiness, metrics and the status page.
 *
 * No page has text of a client: no name, owner or note. Prefixes in the
 * configuration have no quotes. Redis' own words are printable, and are escaped
 * in HTML. No page is longer than PAGE_BYTES.
 */
#include "daemon/io/http.h"

#include "daemon/base/assert.h"
#include "daemon/io/clock.h"
#include "daemon/io/state.h"
#include "daemon/io/tls.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char plain[] = "text/plain; charset=utf-8";
static const char html[] = "text/html; charset=utf-8";
/* Version 0.0.4 of Prometheus' text format. */
static const char exposition[] = "text/plain; version=0.0.4; charset=utf-8";

/* Each call adds a few lines, and all of them fit in PAGE_BYTES. */
static void __attribute__((format(printf, 2, 3)))
add(struct buffer *body, const char *format, ...)
{
    char line[1024];
    va_list arguments;

    va_start(arguments, format);
    int len = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    require(len >= 0 && (size_t)len < sizeof(line));
    require(buffer_append(body, line, (size_t)len));
}

static const struct health *
health_of(const struct loop *loop)
{
    return store_health(loop->engine.store);
}

static bool
is_stopping(const struct loop *loop)
{
    return engine_stopping(&loop->engine);
}

static bool
is_ready(const struct loop *loop)
{
    return !is_stopping(loop) && health_of(loop)->ready;
}

/* How long a node has had its state, and the rest of its settle time, in
 * seconds. */
static void
node_times(const struct health_node *node, uint64_t *since_s, uint64_t *left_s)
{
    const struct health_why why = {node->reason, node};
    uint64_t now_us = clock_boot_us();

    *since_s =
        now_us > node->since_us ? (now_us - node->since_us) / 1000000 : 0;
    *left_s = (health_left_ms(&why, now_us) + 999) / 1000;
}

/* A line for the broker, and one for each node that is not ready. */
static void
unready_lines(const struct health *health, struct buffer *body)
{
    const struct health_why whole = health_why(health);
    char text[HEALTH_TEXT_MAX];
    uint64_t since_s, left_s;

    add(body, "redis: not ready: %s: %s\n", health_word(whole.reason),
        health_text(&whole, true, text));
    for (uint32_t i = 0; i < health->node_count; i++) {
        const struct health_node *node = &health->nodes[i];
        const struct health_why why = {node->reason, node};
        if (!node->needed || node->reason == HEALTH_FINE)
            continue;
        node_times(node, &since_s, &left_s);
        add(body, "node=%s state=%s reason=%s since_s=%" PRIu64, node->name,
            health_state(node), health_word(node->reason), since_s);
        if (left_s > 0)
            add(body, " left_s=%" PRIu64, left_s);
        add(body, " why=\"%s\"\n", health_text(&why, false, text));
    }
}

static struct page
page_health(const struct loop *loop, struct buffer *body)
{
    (void)loop; /* the loop turns: that is the answer */
    add(body, "ok\n");
    return (struct page){200, plain};
}

static struct page
page_ready(const struct loop *loop, struct buffer *body)
{
    bool ready = is_ready(loop);

    if (ready)
        add(body, "ready\n");
    else if (is_stopping(loop))
        add(body, "stopping\n");
    else
        unready_lines(health_of(loop), body);
    return (struct page){ready ? 200 : 503, plain};
}

static void
family(struct buffer *body, const char *name, const char *help,
    const char *suffix, const char *type)
{
    add(body, "# HELP holdfast_%s%s %s\n", name, suffix, help);
    add(body, "# TYPE holdfast_%s%s %s\n", name, suffix, type);
}

/* Gauges, by gauges.def. */
enum shown {
#define SHOWN(id, type, label, help) SHOWN_##id,
#include "daemon/io/gauges.def"
#undef SHOWN
    SHOWN_COUNT
};

static const struct {
    const char *name;
    const char *type;
    const char *help;
} shown_table[SHOWN_COUNT] = {

#define SHOWN(id, type, label, help) {#id, #type, help},
#include "daemon/io/gauges.def"
#undef SHOWN
};

static void
shown_family(struct buffer *body, enum shown shown)
{
    require(shown < SHOWN_COUNT);
    family(body, shown_table[shown].name, shown_table[shown].help, "",
        shown_table[shown].type);
}

static void
gauge(struct buffer *body, enum shown shown, uint64_t value)
{
    shown_family(body, shown);
    add(body, "holdfast_%s %" PRIu64 "\n", shown_table[shown].name, value);
}

/* Limits of the whole broker; their use is a gauge, too. */
static void
limits(const struct loop *loop, struct buffer *body)
{
    const struct {
        const char *name;
        uint64_t most;
    } table[] = {
        {"connections", loop->client_max},
        {"tickets", loop->settings.core.tickets_max},
        {"requests", loop->settings.core.requests_max},
        {"memory", loop->settings.memory_max},
    };

    shown_family(body, SHOWN_limit);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        add(body, "holdfast_limit{limit=\"%s\"} %" PRIu64 "\n", table[i].name,
            table[i].most);
}

static void
expiries(const struct loop *loop, struct buffer *body)
{
    const struct {
        const char *to;
        const struct tls *tls;
    } table[] = {
        {"clients", loop->settings.client_tls},
        {"redis", loop->settings.tls},
    };

    shown_family(body, SHOWN_tls_certificate_expiry_timestamp_seconds);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].tls != NULL && tls_expiry_s(table[i].tls) > 0)
            add(body, "holdfast_%s{shown_to=\"%s\"} %" PRIu64 "\n",
                shown_table[SHOWN_tls_certificate_expiry_timestamp_seconds]
                    .name,
                table[i].to, tls_expiry_s(table[i].tls));
}

static void
unready(const struct loop *loop, struct buffer *body)
{
    const char *reason = is_stopping(loop)
                             ? "draining"
                             : health_word(health_why(health_of(loop)).reason);

    shown_family(body, SHOWN_unready);
    if (!is_ready(loop))
        add(body, "holdfast_unready{reason=\"%s\"} 1\n", reason);
}

static void
gauges(const struct loop *loop, struct buffer *body)
{
    struct store_totals store;
    struct core_totals now;

    core_totals(loop->engine.core, &now);
    store_totals(loop->engine.store, &store);
    gauge(body, SHOWN_ready, is_ready(loop));
    unready(loop, body);
    gauge(body, SHOWN_draining, is_stopping(loop));
    gauge(body, SHOWN_connections, loop->client_count);
    gauge(body, SHOWN_tls_connections, loop->tls_count);
    expiries(loop, body);
    gauge(body, SHOWN_sessions, now.sessions);
    gauge(body, SHOWN_locks, now.locks);
    gauge(body, SHOWN_tickets, now.tickets);
    gauge(body, SHOWN_awaiting, now.awaiting);
    gauge(body, SHOWN_requests_unanswered, now.requests);
    gauge(body, SHOWN_operations_pending, now.ops);
    gauge(body, SHOWN_buffered_bytes, loop->memory);
    limits(loop, body);
    gauge(body, SHOWN_redis_nodes, store.nodes);
    gauge(body, SHOWN_redis_nodes_away, store.away);
    gauge(body, SHOWN_redis_nodes_unsettled, store.unsettled);
    gauge(body, SHOWN_redis_nodes_differing, store.differing);
    gauge(body, SHOWN_redis_slots_unserved, store.slots_unserved);
    gauge(body, SHOWN_start_time_seconds, loop->started_us / 1000000);
    gauge(body, SHOWN_last_reload_successful, !loop->reload_failed);
    gauge(body, SHOWN_last_reload_success_timestamp_seconds,
        loop->reloaded_us / 1000000);
}

/* The last audit that this broker has finished; zeros: none yet. */
static void
audit_gauges(const struct loop *loop, struct buffer *body)
{
    struct core_audit last;

    core_last_audit(loop->engine.core, &last);
    gauge(body, SHOWN_audit_interval_seconds,
        loop->settings.core.audit_interval_us / 1000000);
    gauge(body, SHOWN_audit_last_detached, last.detached);
    gauge(body, SHOWN_audit_last_findings, last.findings);
    gauge(body, SHOWN_audit_last_nodes, last.nodes);
    gauge(body, SHOWN_audit_last_records, last.records);
    shown_family(body, SHOWN_audit_last_seconds);
    add(body, "holdfast_audit_last_seconds %.15g\n",
        (double)last.took_us / 1e6);
}

static void
counters(const struct loop *loop, struct buffer *body)
{
    struct metric metric;

    for (enum counter i = 0; i < COUNTER_COUNT; i++) {
        if (!counter_metric(i, &metric))
            continue;
        const struct metric_family *of = metric.family;
        if (metric.first)
            family(body, of->name, of->help, "_total", "counter");
        add(body, "holdfast_%s_total", of->name);
        if (of->label != NULL)
            add(body, "{%s=\"%s\"}", of->label, metric.value);
        add(body, " %" PRIu64 "\n", loop->counters.value[i]);
    }
}

/* `labels`: the labels of all its series; or none. */
static void
histogram(struct buffer *body, enum shown shown, const char *labels,
    const struct histogram *histogram, const struct histogram_scale *scale)
{
    const char *name = shown_table[shown].name;
    bool labelled = labels[0] != '\0';
    const char *comma = labelled ? "," : "";
    const char *open = labelled ? "{" : "";
    const char *close = labelled ? "}" : "";
    uint64_t total = 0;

    for (uint32_t i = 0; i < scale->bounds; i++) {
        total += histogram->count[i];
        add(body, "holdfast_%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", name,
            labels, comma, (double)scale->bound[i] / scale->unit, total);
    }
    total += histogram->count[scale->bounds];
    add(body, "holdfast_%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels,
        comma, total);
    add(body, "holdfast_%s_sum%s%s%s %.6f\n", name, open, labels, close,
        (double)histogram->sum / scale->unit);
    add(body, "holdfast_%s_count%s%s%s %" PRIu64 "\n", name, open, labels,
        close, total);
}

static void
histograms(const struct loop *loop, struct buffer *body)
{
    shown_family(body, SHOWN_redis_call_seconds);
    histogram(body, SHOWN_redis_call_seconds, "", &loop->counters.redis_call,
        &histogram_calls);
    shown_family(body, SHOWN_loop_turn_seconds);
    histogram(body, SHOWN_loop_turn_seconds, "", &loop->counters.loop_turn,
        &histogram_calls);
}

/* --- namespaces ----------------------------------------------------------- */

struct view {
    struct core_namespace now;
    char label[sizeof("namespace=\"\"") + NAMESPACE_PREFIX_BYTES];
};

struct views {
    struct view namespace[NAMESPACES_MAX + 1];
    uint32_t count;
};

static void
views_take(struct views *views, const struct loop *loop)
{
    struct core_namespace now[NAMESPACES_MAX + 1];

    views->count = core_namespaces(loop->engine.core, clock_boot_us(), now);
    for (uint32_t i = 0; i < views->count; i++) {
        struct view *view = &views->namespace[i];
        struct text name = namespace_name(now[i].counted);
        int len = snprintf(view->label, sizeof(view->label),
            "namespace=\"%.*s\"", (int)name.len, name.at);
        require(len > 0 && (size_t)len < sizeof(view->label));
        view->now = now[i];
    }
}

typedef double gauge_of(const struct core_namespace *now);
typedef const struct histogram *histogram_of(const struct namespace *namespace);

static double
held(const struct core_namespace *now)
{
    return now->held;
}

static double
waiting(const struct core_namespace *now)
{
    return now->waiting;
}

static double
oldest_hold(const struct core_namespace *now)
{
    return (double)now->oldest_hold_us / 1e6;
}

static double
oldest_wait(const struct core_namespace *now)
{
    return (double)now->oldest_wait_us / 1e6;
}

static const struct histogram *
waits(const struct namespace *namespace)
{
    return &namespace->wait;
}

static const struct histogram *
holds(const struct namespace *namespace)
{
    return &namespace->hold;
}

static const struct histogram *
margins(const struct namespace *namespace)
{
    return &namespace->margin;
}

static void
namespace_gauge(const struct views *views, struct buffer *body,
    enum shown shown, gauge_of *of)
{
    shown_family(body, shown);
    for (uint32_t i = 0; i < views->count; i++)
        add(body, "holdfast_%s{%s} %.15g\n", shown_table[shown].name,
            views->namespace[i].label, of(&views->namespace[i].now));
}

static void
namespace_histogram(const struct views *views, struct buffer *body,
    enum shown shown, histogram_of *of, const struct histogram_scale *scale)
{
    shown_family(body, shown);
    for (uint32_t i = 0; i < views->count; i++)
        histogram(body, shown, views->namespace[i].label,
            of(views->namespace[i].now.counted), scale);
}

static void
namespace_counters(const struct views *views, struct buffer *body)
{
    for (enum namespace_counter i = 0; i < NAMESPACE_COUNTER_COUNT; i++) {
        struct metric metric = namespace_metric(i);
        const struct metric_family *of = metric.family;
        if (metric.first)
            family(body, of->name, of->help, "_total", "counter");
        for (uint32_t j = 0; j < views->count; j++)
            add(body, "holdfast_%s_total{%s,%s=\"%s\"} %" PRIu64 "\n", of->name,
                views->namespace[j].label, of->label, metric.value,
                views->namespace[j].now.counted->value[i]);
    }
}

static void
namespaces(const struct loop *loop, struct buffer *body)
{
    struct views views;

    views_take(&views, loop);
    namespace_gauge(&views, body, SHOWN_held, held);
    namespace_gauge(&views, body, SHOWN_waiting, waiting);
    namespace_gauge(&views, body, SHOWN_oldest_hold_seconds, oldest_hold);
    namespace_gauge(&views, body, SHOWN_oldest_wait_seconds, oldest_wait);
    namespace_counters(&views, body);
    namespace_histogram(
        &views, body, SHOWN_wait_seconds, waits, &histogram_waits);
    namespace_histogram(
        &views, body, SHOWN_hold_seconds, holds, &histogram_waits);
    namespace_histogram(
        &views, body, SHOWN_renewal_margin_ratio, margins, &histogram_shares);
}

static struct page
page_metrics(const struct loop *loop, struct buffer *body)
{
    const char *server = loop->settings.core.server;
    const char *slash = strchr(server, '/');

    shown_family(body, SHOWN_build_info);
    add(body, "holdfast_build_info{version=\"%s\"} 1\n",
        slash == NULL ? server : slash + 1);
    gauges(loop, body);
    audit_gauges(loop, body);
    namespaces(loop, body);
    counters(loop, body);
    histograms(loop, body);
    return (struct page){200, exposition};
}

static void
row(struct buffer *body, const char *name, uint64_t value)
{
    add(body, "<tr><td>%s<td>%" PRIu64 "\n", name, value);
}

/* Escapes any printable text. */
static void
add_escaped(struct buffer *body, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '<' || *text == '&')
            add(body, "&#%d;", *text);
        else
            add(body, "%c", *text);
}

/* The state of each Redis node that is needed. */
static void
node_table(const struct health *health, struct buffer *body)
{
    char text[HEALTH_TEXT_MAX];
    uint64_t since_s, left_s;

    add(body, "<table>\n<tr><th>Redis<th>state<th>since<th>reason<th>why\n");
    for (uint32_t i = 0; i < health->node_count; i++) {
        const struct health_node *node = &health->nodes[i];
        const struct health_why why = {node->reason, node};
        if (!node->needed)
            continue;
        node_times(node, &since_s, &left_s);
        add(body, "<tr><td>");
        add_escaped(body, node->name);
        add(body, "<td>%s<td>%" PRIu64 " s<td>%s<td>", health_state(node),
            since_s, health_word(node->reason));
        if (left_s > 0)
            add(body, "%" PRIu64 " s left: ", left_s);
        if (node->reason != HEALTH_FINE)
            add_escaped(body, health_text(&why, false, text));
        add(body, "\n");
    }
    add(body, "</table>\n");
}

static struct page
page_status(const struct loop *loop, struct buffer *body)
{
    const struct core_settings *settings = &loop->settings.core;
    const struct health_why why = health_why(health_of(loop));
    char text[HEALTH_TEXT_MAX];
    struct core_totals now;

    core_totals(loop->engine.core, &now);
    add(body, "<!DOCTYPE html>\n<html lang=\"en\">\n<title>Holdfast</title>\n"
              "<meta name=\"viewport\" content=\"width=device-width\">\n"
              "<h1>Holdfast</h1>\n");
    add(body, "<p>%s, broker %s: %s\n", settings->server, settings->broker_id,
        is_stopping(loop) ? "stopping"
        : is_ready(loop)  ? "ready"
                          : "not ready: ");
    if (!is_stopping(loop) && !is_ready(loop))
        add_escaped(body, health_text(&why, true, text));
    node_table(health_of(loop), body);
    add(body, "<table>\n");
    row(body, "sessions", now.sessions);
    row(body, "locks", now.locks);
    row(body, "held", now.held);
    row(body, "waiting", now.waiting);
    row(body, "granted since the start", loop->counters.value[COUNTER_grants]);
    add(body, "</table>\n<p><a href=\"/metrics\">/metrics</a>\n"
              "<a href=\"/readyz\">/readyz</a>\n"
              "<a href=\"/healthz\">/healthz</a>\n");
    return (struct page){200, html};
}

struct page
page_make(const struct loop *loop, struct text path, struct buffer *body)
{
    static const struct {
        const char *path;
        struct page (*make)(const struct loop *loop, struct buffer *body);
    } table[] = {
        {"/", page_status},
        {"/healthz", page_health},
        {"/metrics", page_metrics},
        {"/readyz", page_ready},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (text_equal(path, text_from(table[i].path)))
            return table[i].make(loop, body);
    add(body, "no such page: use /, /healthz, /metrics or /readyz\n");
    return (struct page){404, plain};
}
