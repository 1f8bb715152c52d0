/*
 * The commands show, locks, sessions, slow, status and audit: lists of the
 * broker. It sends some in parts, where each answer has the cursor of the next.
 */
#include "proto/holdfast/out.h"

#include "proto/holdfast/escape.h"
#include "proto/holdfast/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_MS  15000 /* without a line of the answer */
#define PART_LIMIT " limit=500"
#define LIMIT_MAX  500

static const struct out_column show_columns[] = {
    {"kind", "KIND", OUT_TYPE_TEXT},
    {"position", "POSITION", OUT_TYPE_NUMBER},
    {"session", "SESSION", OUT_TYPE_TEXT},
    {"broker", "BROKER", OUT_TYPE_TEXT},
    {"name", "NAME", OUT_TYPE_TEXT},
    {"owner", "OWNER", OUT_TYPE_TEXT},
    {"fence", "FENCE", OUT_TYPE_NUMBER},
    {"ttl_ms", "TTL", OUT_TYPE_MS},
    {"age_ms", "AGE", OUT_TYPE_MS},
    {"note", "NOTE", OUT_TYPE_TEXT},
    {"mode", "MODE", OUT_TYPE_TEXT},
    {"permits", "PERMITS", OUT_TYPE_NUMBER},
    {"detached", "DETACHED", OUT_TYPE_NUMBER},
    {"lease_ms", "LEASE", OUT_TYPE_MS},
};

static const struct out_column locks_columns[] = {
    {"name", "NAME", OUT_TYPE_TEXT},
    {"state", "STATE", OUT_TYPE_TEXT},
    {"holders", "HOLDERS", OUT_TYPE_NUMBER},
    {"waiters", "WAITERS", OUT_TYPE_NUMBER},
    {"session", "SESSION", OUT_TYPE_TEXT},
    {"client", "CLIENT", OUT_TYPE_TEXT},
    {"owner", "OWNER", OUT_TYPE_TEXT},
    {"fence", "FENCE", OUT_TYPE_NUMBER},
    {"age_ms", "AGE", OUT_TYPE_MS},
    {"note", "NOTE", OUT_TYPE_TEXT},
    {"mode", "MODE", OUT_TYPE_TEXT},
    {"permits", "PERMITS", OUT_TYPE_NUMBER},
};

static const struct out_column sessions_columns[] = {
    {"session", "SESSION", OUT_TYPE_TEXT},
    {"name", "NAME", OUT_TYPE_TEXT},
    {"peer", "PEER", OUT_TYPE_TEXT},
    {"age_ms", "AGE", OUT_TYPE_MS},
    {"idle_ms", "IDLE", OUT_TYPE_MS},
    {"holds", "HOLDS", OUT_TYPE_NUMBER},
    {"waits", "WAITS", OUT_TYPE_NUMBER},
};

/* The keys of all kinds, and the main keys of each kind. */
static const struct out_column slow_columns[] = {
    {"kind", "KIND", OUT_TYPE_TEXT},
    {"age_ms", "AGE", OUT_TYPE_MS},
    {"name", "NAME", OUT_TYPE_TEXT},
    {"session", "SESSION", OUT_TYPE_TEXT},
    {"client", "CLIENT", OUT_TYPE_TEXT},
    {"owner", "OWNER", OUT_TYPE_TEXT},
    {"op", "OP", OUT_TYPE_TEXT},
    {"result", "RESULT", OUT_TYPE_TEXT},
    {"total_us", "TOTAL", OUT_TYPE_US},
    {"queued_us", "QUEUED", OUT_TYPE_US},
    {"redis_us", "REDIS", OUT_TYPE_US},
    {"confirm_us", "CONFIRM", OUT_TYPE_US},
    {"reason", "REASON", OUT_TYPE_TEXT},
    {"fence", "FENCE", OUT_TYPE_NUMBER},
    {"late_us", "LATE", OUT_TYPE_US},
    {"cycle", "CYCLE", OUT_TYPE_TEXT},
};

static const struct out_column status_columns[] = {
    {"node", "NODE", OUT_TYPE_TEXT},
    {"role", "ROLE", OUT_TYPE_TEXT},
    {"state", "STATE", OUT_TYPE_TEXT},
    {"reason", "REASON", OUT_TYPE_TEXT},
    {"since_ms", "SINCE", OUT_TYPE_MS},
    {"after_ms", "LEFT", OUT_TYPE_MS},
    {OUT_TEXT, "WHY", OUT_TYPE_TEXT},
};

static const struct out_column audit_columns[] = {
    {"kind", "KIND", OUT_TYPE_TEXT},
    {"name", "NAME", OUT_TYPE_TEXT},
    {"age_ms", "AGE", OUT_TYPE_MS},
    {"session", "SESSION", OUT_TYPE_TEXT},
    {"broker", "BROKER", OUT_TYPE_TEXT},
    {"client", "CLIENT", OUT_TYPE_TEXT},
    {"owner", "OWNER", OUT_TYPE_TEXT},
    {"fence", "FENCE", OUT_TYPE_NUMBER},
    {"ttl_ms", "TTL", OUT_TYPE_MS},
    {"waiters", "WAITERS", OUT_TYPE_NUMBER},
    {"note", "NOTE", OUT_TYPE_TEXT},
    {"why", "WHY", OUT_TYPE_TEXT},
};

/* Sends a PING to a broker that was silent. False: it has not answered the PING
 * before. */
static bool
list_ping(struct holdfast *h, uint64_t *ping)
{
    if (*ping != 0)
        return false;
    return holdfast_submit(h, "PING", ping) == HOLDFAST_SUCCESS;
}

/* Sends one request and prints its ITEMs; *event is its OK. Returns the exit
 * status; complains unless it is STATUS_FINE. */
static int
list_part(struct holdfast *h, const struct list *list, const char *line,
    struct out *out, struct holdfast_event *event)
{
    const char *what = list->what;
    uint64_t request;
    uint64_t ping = 0;
    char why[256];

    enum holdfast_status status = holdfast_submit(h, line, &request);
    if (status != HOLDFAST_SUCCESS) {
        complain("%s: %s", what, broker_trouble(h, status, why, sizeof(why)));
        return STATUS_TROUBLE;
    }
    uint64_t end = holdfast_now_ms(h) + ANSWER_MS;
    for (;;) {
        if (!holdfast_next(h, event)) {
            uint64_t now = holdfast_now_ms(h);

            if (now >= end && list->patient && list_ping(h, &ping)) {
                end = now + ANSWER_MS;
                continue;
            }
            if (now >= end) {
                complain("%s: the broker does not answer", what);
                return STATUS_TROUBLE;
            }
            holdfast_poll(h, (int)(end - now));
            continue;
        }
        if (event->kind == HOLDFAST_CLOSED) {
            complain(
                "%s: %s", what, escape_text(event->text, why, sizeof(why)));
            return STATUS_TROUBLE;
        }
        if (event->request != request) {
            if (ping != 0 && event->request == ping) {
                ping = 0;
                end = holdfast_now_ms(h) + ANSWER_MS;
            }
            continue;
        }
        if (event->kind == HOLDFAST_OK)
            return STATUS_FINE;
        if (event->kind == HOLDFAST_ERR) {
            complain_refused(what, event, "");
            return STATUS_REFUSED;
        }
        if (event->kind == HOLDFAST_ITEM && !out_row(out, event)) {
            complain("%s", ferror(stdout) ? "cannot write" : "out of memory");
            return STATUS_TROUBLE;
        }
        end = holdfast_now_ms(h) + ANSWER_MS;
    }
}

/* All parts of the list; `event` is the OK of the last one. */
static int
list_parts(struct holdfast *h, const struct list *list, const char *line,
    struct out *out, struct holdfast_event *event)
{
    char next[KEY_WORD_BYTES + 96];
    uint64_t cursor;
    int status = list_part(h, list, line, out, event);

    while (status == STATUS_FINE &&
           holdfast_event_number(event, "cursor", &cursor)) {
        (void)snprintf(next, sizeof(next), "%s cursor=%" PRIu64, line, cursor);
        status = list_part(h, list, next, out, event);
    }
    return status;
}

int
list_print(struct settings *settings, const struct list *list, const char *line)
{
    struct holdfast *h = connect_broker(settings);
    struct holdfast_event event;
    int status = STATUS_TROUBLE;

    if (h == NULL)
        return status;
    struct out *out =
        out_create(settings->format, list->columns, list->column_count);
    if (out != NULL)
        status = list_parts(h, list, line, out, &event);
    if (list->judge != NULL)
        status = status == STATUS_FINE ? list->judge(&event) : STATUS_TROUBLE;
    if (!out_destroy(&out) && status != STATUS_TROUBLE) {
        complain("cannot write");
        status = STATUS_TROUBLE;
    }
    holdfast_destroy(&h);
    return status;
}

/* A command without options or words. */
static int
list_command(struct settings *settings, char **argv, const char *name,
    const struct list *list, const char *line)
{
    struct words words;

    if (!words_take(settings, name, NULL, 0, argv, &words))
        return words.status;
    return list_print(settings, list, line);
}

int
command_locks(struct settings *settings, char **argv)
{
    static const struct list list = {
        "LOCKS", locks_columns, COUNT(locks_columns), false, NULL};
    const char *prefix = NULL;
    const struct option options[] = {
        {.name = "prefix", .max = HOLDFAST_NAME_MAX, .text = &prefix},
    };
    struct words words;
    char word[KEY_WORD_BYTES];
    char line[KEY_WORD_BYTES + 32];

    if (!words_take(settings, "locks", options, COUNT(options), argv, &words))
        return words.status;
    if (prefix != NULL && !key_encode("locks", prefix, word))
        return STATUS_USAGE;
    (void)snprintf(line, sizeof(line), "LOCKS" PART_LIMIT "%s%s",
        prefix != NULL ? " prefix=" : "", prefix != NULL ? word : "");
    return list_print(settings, &list, line);
}

int
command_sessions(struct settings *settings, char **argv)
{
    static const struct list list = {
        "SESSIONS", sessions_columns, COUNT(sessions_columns), false, NULL};

    return list_command(
        settings, argv, "sessions", &list, "SESSIONS" PART_LIMIT);
}

int
command_slow(struct settings *settings, char **argv)
{
    static const struct list list = {
        "SLOW", slow_columns, COUNT(slow_columns), true, NULL};
    static const char *const kinds[] = {"slow", "lost", "deadlock"};
    const char *kind = NULL;
    uint64_t limit = LIMIT_MAX;
    const struct option options[] = {
        {.name = "kind", .max = 16, .text = &kind},
        {.name = "limit", .max = LIMIT_MAX, .number = &limit},
    };
    struct words words;
    char line[64];
    size_t i = 0;

    if (!words_take(settings, "slow", options, COUNT(options), argv, &words))
        return words.status;
    while (kind != NULL && i < COUNT(kinds) && strcmp(kind, kinds[i]) != 0)
        i++;
    if (i == COUNT(kinds)) {
        complain("--kind: '%s' is not slow, lost or deadlock", kind);
        return STATUS_USAGE;
    }
    (void)snprintf(line, sizeof(line), "SLOW limit=%" PRIu64 "%s%s", limit,
        kind != NULL ? " kind=" : "", kind != NULL ? kind : "");
    return list_print(settings, &list, line);
}

/* The exit status by the OK of STATUS. */
static int
status_judge(const struct holdfast_event *event)
{
    uint64_t ready = 0;
    uint64_t draining = 0;
    char why[1024];

    (void)holdfast_event_number(event, "ready", &ready);
    (void)holdfast_event_number(event, "draining", &draining);
    if (ready == 1)
        return STATUS_FINE;
    complain("status: the broker is not ready: %s",
        draining == 1 ? "it stops"
                      : escape_text(event->text, why, sizeof(why)));
    return STATUS_REFUSED;
}

int
command_status(struct settings *settings, char **argv)
{
    static const struct list list = {
        "STATUS", status_columns, COUNT(status_columns), true, status_judge};

    return list_command(settings, argv, "status", &list, "STATUS");
}

/* The exit status by the OK of AUDIT. */
static int
audit_judge(const struct holdfast_event *event)
{
    uint64_t findings = 0;
    uint64_t untold = 0;
    uint64_t skipped = 0;

    (void)holdfast_event_number(event, "findings", &findings);
    if (holdfast_event_number(event, "untold", &untold))
        complain("audit: %" PRIu64 " findings more than are told", untold);
    if (holdfast_event_number(event, "skipped", &skipped)) {
        complain("audit: Redis nodes that did not answer: %" PRIu64, skipped);
        return STATUS_TROUBLE;
    }
    return findings > 0 ? STATUS_REFUSED : STATUS_FINE;
}

int
command_audit(struct settings *settings, char **argv)
{
    static const struct list list = {
        "AUDIT", audit_columns, COUNT(audit_columns), true, audit_judge};

    return list_command(settings, argv, "audit", &list, "AUDIT");
}

/* The kind of the lock: ", shared", ", upgradable", ", 2 of 3 permits", or
 * "". */
static void
show_kind(const struct holdfast_event *event, char *text, size_t text_bytes)
{
    const char *mode = holdfast_event_value(event, "mode");
    uint64_t limit;
    uint64_t permits;

    text[0] = '\0';
    if (holdfast_event_number(event, "limit", &limit) &&
        holdfast_event_number(event, "permits", &permits))
        (void)snprintf(text, text_bytes, ", %" PRIu64 " of %" PRIu64 " permits",
            permits, limit);
    else if (mode != NULL &&
             (strcmp(mode, "shared") == 0 || strcmp(mode, "upgradable") == 0))
        (void)snprintf(text, text_bytes, ", %s", mode);
}

/* Prints the line under the columns: the state of the lock as a whole. */
static void
show_state(const char *key, const struct holdfast_event *event)
{
    const char *state = holdfast_event_value(event, "state");
    uint64_t holders = 0;
    uint64_t waiters = 0;
    char name[4 * HOLDFAST_NAME_MAX + 1];
    char word[64];
    char kind[80];

    (void)holdfast_event_number(event, "holders", &holders);
    (void)holdfast_event_number(event, "waiters", &waiters);
    show_kind(event, kind, sizeof(kind));
    (void)printf("%s is %s%s (holders %" PRIu64 ", waiters %" PRIu64 ")\n",
        escape_text(key, name, sizeof(name)),
        escape_text(state != NULL ? state : "unknown", word, sizeof(word)),
        kind, holders, waiters);
}

static int
show_print(struct settings *settings, struct holdfast *h, const char *key,
    const char *line)
{
    struct holdfast_event event;
    static const struct list list = {
        "SHOW", show_columns, COUNT(show_columns), false, NULL};
    struct out *out =
        out_create(settings->format, list.columns, list.column_count);
    if (out == NULL)
        return STATUS_TROUBLE;
    enum out_format format = out_format(out);
    int status = list_parts(h, &list, line, out, &event);
    if (status == STATUS_FINE)
        out_summary(out, "name", key, &event);
    bool written = out_destroy(&out);
    if (status == STATUS_FINE && format == OUT_COLUMNS) {
        show_state(key, &event);
        written = fflush(stdout) == 0 && written;
    }
    if (status == STATUS_FINE && !written) {
        complain("cannot write");
        return STATUS_TROUBLE;
    }
    return status;
}

int
command_show(struct settings *settings, char **argv)
{
    char word[KEY_WORD_BYTES];
    char line[KEY_WORD_BYTES + 32];
    struct words words;

    if (!words_take(settings, "show", NULL, 0, argv, &words))
        return words.status;
    const char *key = words.word[0];
    if (!key_encode("show", key, word))
        return STATUS_USAGE;
    (void)snprintf(line, sizeof(line), "SHOW %s" PART_LIMIT, word);
    struct holdfast *h = connect_broker(settings);
    if (h == NULL)
        return STATUS_TROUBLE;
    int status = show_print(settings, h, key, line);
    holdfast_destroy(&h);
    return status;
}
