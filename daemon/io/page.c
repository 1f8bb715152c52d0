/*
 * Health, readiness, metrics and the status page.
 *
 * Nothing that a client sent gets into a page (no name, owner or note), so no
 * page has anything to escape, and none is longer than PAGE_BYTES.
 */
#include "daemon/io/page.h"

#include "daemon/base/assert.h"
#include "daemon/io/state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const char plain[] = "text/plain; charset=utf-8";
static const char html[] = "text/html; charset=utf-8";
/* Version 0.0.4 of Prometheus' text format. */
static const char exposition[] = "text/plain; version=0.0.4; charset=utf-8";

/* What is added is a line or a few, and all of them fit in PAGE_BYTES. */
static void __attribute__((format(printf, 2, 3)))
add(struct buffer *body, const char *format, ...)
{
    char line[512];
    va_list arguments;

    va_start(arguments, format);
    int len = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    require(len >= 0 && (size_t)len < sizeof(line));
    require(buffer_append(body, line, (size_t)len));
}

/* Why no lock can be granted at the moment; NULL: they can. */
static const char *
unready(const struct loop *loop)
{
    if (loop_stopping(loop))
        return "stopping";
    if (!loop_ready(loop))
        return "redis: not every node that is needed can be asked, or, where "
               "redis.safety is strict, has its replicas";
    return NULL;
}

static struct page
page_health(const struct loop *loop, struct buffer *body)
{
    (void)loop; /* that it answers is the answer: the loop turns */
    add(body, "ok\n");
    return (struct page){200, plain};
}

static struct page
page_ready(const struct loop *loop, struct buffer *body)
{
    const char *why = unready(loop);

    add(body, "%s\n", why == NULL ? "ready" : why);
    return (struct page){why == NULL ? 200 : 503, plain};
}

static void
gauge(struct buffer *body, const char *name, const char *help, uint64_t value)
{
    add(body, "# HELP holdfast_%s %s\n", name, help);
    add(body, "# TYPE holdfast_%s gauge\n", name);
    add(body, "holdfast_%s %" PRIu64 "\n", name, value);
}

static void
gauges(const struct loop *loop, struct buffer *body)
{
    struct core_totals now;

    core_totals(loop->engine.core, &now);
    gauge(body, "ready", "1 where /readyz answers 200", unready(loop) == NULL);
    gauge(body, "sessions", "sessions of clients", now.sessions);
    gauge(body, "locks", "locks held, waited for or asked about", now.locks);
    gauge(body, "held", "holds of clients of this broker", now.held);
    gauge(body, "waiting", "waiting requests, one an owner and lock",
        now.waiting);
    gauge(body, "tickets", "places in queues, granted or not", now.tickets);
    gauge(
        body, "requests_unanswered", "requests not answered yet", now.requests);
    gauge(body, "operations_pending", "operations Redis has not answered yet",
        now.ops);
    gauge(body, "buffered_bytes", "unread and unparsed bytes of all sessions",
        loop->memory);
    gauge(body, "start_time_seconds", "start, in seconds since 1970",
        loop->started_us / 1000000);
}

static struct page
page_metrics(const struct loop *loop, struct buffer *body)
{
    const char *server = loop->settings.core.server;
    const char *slash = strchr(server, '/');

    add(body, "# HELP holdfast_build_info the version that runs\n"
              "# TYPE holdfast_build_info gauge\n");
    add(body, "holdfast_build_info{version=\"%s\"} 1\n",
        slash == NULL ? server : slash + 1);
    gauges(loop, body);
    for (enum counter i = 0; i < COUNTER_COUNT; i++) {
        const char *name = counter_name(i);
        add(body, "# HELP holdfast_%s_total %s\n", name, counter_help(i));
        add(body, "# TYPE holdfast_%s_total counter\n", name);
        add(body, "holdfast_%s_total %" PRIu64 "\n", name,
            loop->counters.value[i]);
    }
    return (struct page){200, exposition};
}

static void
row(struct buffer *body, const char *name, uint64_t value)
{
    add(body, "<tr><td>%s<td>%" PRIu64 "\n", name, value);
}

static struct page
page_status(const struct loop *loop, struct buffer *body)
{
    const struct core_settings *settings = &loop->settings.core;
    const char *why = unready(loop);
    struct core_totals now;

    core_totals(loop->engine.core, &now);
    add(body, "<!DOCTYPE html>\n<html lang=\"en\">\n<title>Holdfast</title>\n"
              "<h1>Holdfast</h1>\n");
    add(body, "<p>%s, broker %s: %s\n<table>\n", settings->server,
        settings->broker_id, why == NULL ? "ready" : why);
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
    add(body, "no such page; there are /, /healthz, /metrics and /readyz\n");
    return (struct page){404, plain};
}
