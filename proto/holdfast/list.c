/*
 * show, locks, sessions: lists that the broker gives in parts, each naming the
 * cursor of the next.
 */
#include "proto/holdfast/escape.h"
#include "proto/holdfast/options.h"
#include "proto/holdfast/out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_MS  15000 /* without a line of the answer */
#define PART_LIMIT 500

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

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

/*
 * Sends one request and prints its ITEMs; *event is its OK. Returns the exit
 * status, after a complaint where it is not STATUS_FINE.
 */
static int
list_part(struct holdfast *h, const char *what, const char *line,
    struct out *out, struct holdfast_event *event)
{
    uint64_t request;
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
        if (event->request != request)
            continue;
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

/* All parts of LOCKS or SESSIONS. */
static int
list_all(struct settings *settings, const char *verb,
    const struct out_column *columns, size_t column_count)
{
    struct holdfast *h = connect_broker(settings);
    struct holdfast_event event;
    char line[64];
    uint64_t cursor;
    int status = STATUS_TROUBLE;

    if (h == NULL)
        return status;
    struct out *out = out_create(settings->format, columns, column_count);
    (void)snprintf(line, sizeof(line), "%s limit=%d", verb, PART_LIMIT);
    while (out != NULL) {
        status = list_part(h, verb, line, out, &event);
        if (status != STATUS_FINE ||
            !holdfast_event_number(&event, "cursor", &cursor))
            break;
        (void)snprintf(line, sizeof(line), "%s limit=%d cursor=%" PRIu64, verb,
            PART_LIMIT, cursor);
    }
    if (!out_destroy(&out) && status == STATUS_FINE) {
        complain("cannot write");
        status = STATUS_TROUBLE;
    }
    holdfast_destroy(&h);
    return status;
}

/* Options of a command without any of its own. */
static bool
words_take(struct settings *settings, char **argv, const char *command,
    size_t word_count, struct words *words, int *status)
{
    *status = STATUS_USAGE;
    if (!options_parse(settings, NULL, 0, STOP_NEVER, argv, words))
        return false;
    if (words->help) {
        (void)help_print(command);
        *status = STATUS_FINE;
        return false;
    }
    if (words->count != word_count || words->rest != NULL) {
        complain("%s: %s", command,
            word_count == 0 ? "takes no words" : "takes one KEY");
        return false;
    }
    return true;
}

int
command_locks(struct settings *settings, int argc, char **argv)
{
    struct words words;
    int status;

    (void)argc;
    if (!words_take(settings, argv, "locks", 0, &words, &status))
        return status;
    return list_all(settings, "LOCKS", locks_columns, COUNT(locks_columns));
}

int
command_sessions(struct settings *settings, int argc, char **argv)
{
    struct words words;
    int status;

    (void)argc;
    if (!words_take(settings, argv, "sessions", 0, &words, &status))
        return status;
    return list_all(
        settings, "SESSIONS", sessions_columns, COUNT(sessions_columns));
}

/* ", shared" or ", 2 of 3 permits" or "": what kind of lock it is. */
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
    else if (mode != NULL && strcmp(mode, "shared") == 0)
        (void)snprintf(text, text_bytes, ", shared");
}

/* The line under the columns: what the lock is as a whole. */
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
    struct out *out =
        out_create(settings->format, show_columns, COUNT(show_columns));
    if (out == NULL)
        return STATUS_TROUBLE;
    enum out_format format = out_format(out);
    int status = list_part(h, "SHOW", line, out, &event);
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
command_show(struct settings *settings, int argc, char **argv)
{
    char word[KEY_WORD_BYTES];
    char line[KEY_WORD_BYTES + 32];
    struct words words;
    int status;

    (void)argc;
    if (!words_take(settings, argv, "show", 1, &words, &status))
        return status;
    const char *key = words.word[0];
    if (!key_encode("show", key, word, sizeof(word)))
        return STATUS_USAGE;
    (void)snprintf(line, sizeof(line), "SHOW %s limit=%d", word, PART_LIMIT);
    struct holdfast *h = connect_broker(settings);
    if (h == NULL)
        return STATUS_TROUBLE;
    status = show_print(settings, h, key, line);
    holdfast_destroy(&h);
    return status;
}
