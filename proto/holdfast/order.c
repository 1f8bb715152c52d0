/*
 * The commands await, break, resize, kill and drain: one request each.
 */
#include "proto/holdfast/escape.h"
#include "proto/holdfast/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KEEP_MS 30000 /* makes the library connect again */

/* Of a session. */
#define SHORT_CHARS 8
#define ID_CHARS    32

int
order_give(const struct settings *settings, const char *what, const char *line,
    uint64_t timeout_ms, struct holdfast **h, struct holdfast_event *event)
{
    uint64_t request;
    char why[256];

    *h = connect_broker(settings);
    if (*h == NULL)
        return STATUS_TROUBLE;
    enum holdfast_status status = holdfast_submit(*h, line, &request);
    if (status == HOLDFAST_SUCCESS)
        status = holdfast_wait(*h, request, timeout_ms, event);
    if (status == HOLDFAST_SUCCESS)
        return STATUS_FINE;
    if (status == HOLDFAST_REFUSED) {
        complain_refused(what, event, "");
        return STATUS_REFUSED;
    }
    complain("%s: %s", what, broker_trouble(*h, status, why, sizeof(why)));
    return STATUS_TROUBLE;
}

/* Prints what is known of the last hold. False: stdout is gone. */
static bool
await_print(const struct holdfast_event *event)
{
    char text[256];
    const char *note = holdfast_event_value(event, "note");

    if (event->fence == 0)
        return true;
    (void)printf("fence=%" PRIu64, event->fence);
    if (note != NULL)
        (void)printf(" note=%s", escape_text(note, text, sizeof(text)));
    return putchar('\n') != EOF;
}

int
command_await(struct settings *settings, char **argv)
{
    uint64_t wait_ms = HOLDFAST_FOREVER;
    const struct option options[] = {{.name = "wait", .duration_ms = &wait_ms}};
    struct holdfast_event event = {.word = ""};
    struct words words;
    uint64_t request;
    char why[256];

    if (!words_take(settings, "await", options, 1, argv, &words))
        return words.status;
    if (!key_check("await", words.word[0]))
        return STATUS_USAGE;
    struct holdfast *h = connect_kept(settings, KEEP_MS);
    if (h == NULL)
        return STATUS_TROUBLE;
    int result = STATUS_TROUBLE;
    enum holdfast_status status =
        holdfast_submit_await(h, words.word[0], wait_ms, &request);
    if (status == HOLDFAST_SUCCESS)
        status = holdfast_wait(h, request, HOLDFAST_FOREVER, &event);
    if (status == HOLDFAST_SUCCESS) {
        result = await_print(&event) ? STATUS_FINE : STATUS_TROUBLE;
    } else if (status == HOLDFAST_REFUSED) {
        bool held = strcmp(event.word, "TIMEOUT") == 0 ||
                    strcmp(event.word, "BUSY") == 0;
        complain_refused("await", &event, "");
        result = held ? STATUS_NOT_ACQUIRED : STATUS_REFUSED;
    } else {
        complain("await: %s", broker_trouble(h, status, why, sizeof(why)));
    }
    holdfast_destroy(&h);
    return result;
}

int
command_break(struct settings *settings, char **argv)
{
    uint64_t fence = 0;
    const struct option options[] = {
        {.name = "fence", .max = FENCE_MAX, .number = &fence}};
    char word[KEY_WORD_BYTES];
    char line[KEY_WORD_BYTES + 64];
    struct holdfast_event event;
    struct holdfast *h;
    struct words words;
    uint64_t holders = 0;
    uint64_t left;

    if (!words_take(settings, "break", options, 1, argv, &words))
        return words.status;
    if (!key_encode("break", words.word[0], word))
        return STATUS_USAGE;
    int len = snprintf(line, sizeof(line), "BREAK %s", word);
    if (fence > 0)
        (void)snprintf(
            line + len, sizeof(line) - (size_t)len, " fence=%" PRIu64, fence);
    int status = order_give(settings, "break", line, ORDER_MS, &h, &event);
    if (status == STATUS_FINE) {
        (void)holdfast_event_number(&event, "holders", &holders);
        (void)printf("holders=%" PRIu64 "%s\n", holders,
            holdfast_event_number(&event, "pending", &left) ? " pending=1"
                                                            : "");
    }
    holdfast_destroy(&h);
    return status;
}

int
command_resize(struct settings *settings, char **argv)
{
    uint64_t limit = 0;
    const struct option options[] = {
        {.name = "limit", .max = UINT32_MAX, .number = &limit}};
    char word[KEY_WORD_BYTES];
    char line[KEY_WORD_BYTES + 64];
    struct holdfast_event event;
    struct holdfast *h;
    struct words words;
    uint64_t permits = 0;

    if (!words_take(settings, "resize", options, 1, argv, &words))
        return words.status;
    if (!key_encode("resize", words.word[0], word))
        return STATUS_USAGE;
    if (!option_given("resize", "limit", limit > 0))
        return STATUS_USAGE;
    (void)snprintf(line, sizeof(line), "RESIZE %s limit=%" PRIu64, word, limit);
    int status = order_give(settings, "resize", line, ORDER_MS, &h, &event);
    if (status == STATUS_FINE) {
        (void)holdfast_event_number(&event, "permits", &permits);
        (void)printf("limit=%" PRIu64 " permits=%" PRIu64 "\n", limit, permits);
    }
    holdfast_destroy(&h);
    return status;
}

int
command_kill(struct settings *settings, char **argv)
{
    char line[ID_CHARS + 16];
    char text[256];
    struct holdfast_event event;
    struct holdfast *h;
    struct words words;

    if (!words_take(settings, "kill", NULL, 0, argv, &words))
        return words.status;
    const char *word = words.word[0];
    size_t len = strlen(word);
    if ((len != SHORT_CHARS && len != ID_CHARS) ||
        strspn(word, "0123456789abcdefABCDEF") != len) {
        complain("kill: '%s' is not a session of 8 or 32 hex digits; `holdfast "
                 "sessions` lists them",
            escape_text(word, text, sizeof(text)));
        return STATUS_USAGE;
    }
    (void)snprintf(line, sizeof(line), "KILL %s", word);
    int status = order_give(settings, "kill", line, ORDER_MS, &h, &event);
    holdfast_destroy(&h);
    return status;
}

int
command_drain(struct settings *settings, char **argv)
{
    struct holdfast_event event;
    struct holdfast *h;
    struct words words;

    if (!words_take(settings, "drain", NULL, 0, argv, &words))
        return words.status;
    if (strchr(connect_address(settings), ',') != NULL) {
        complain("drain: '%s' has several addresses; name the one broker that "
                 "is to stop",
            connect_address(settings));
        return STATUS_USAGE;
    }
    int status = order_give(settings, "drain", "DRAIN", ORDER_MS, &h, &event);
    holdfast_destroy(&h);
    return status;
}
