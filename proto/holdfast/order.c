/*
 * break, kill, drain: orders to a broker, one request each.
 */
#include "proto/holdfast/escape.h"
#include "proto/holdfast/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_MS  15000
#define FENCE_MAX  9007199254740991u
#define WORD_CHARS 64 /* of a session */

/* Sends `line` and waits; the exit status, after a complaint if it is none. */
static int
order_give(const struct settings *settings, const char *what, const char *line,
    struct holdfast **h, struct holdfast_event *event)
{
    uint64_t request;
    char why[256];

    *h = connect_broker(settings);
    if (*h == NULL)
        return STATUS_TROUBLE;
    enum holdfast_status status = holdfast_submit(*h, line, &request);
    if (status == HOLDFAST_SUCCESS)
        status = holdfast_wait(*h, request, ANSWER_MS, event);
    if (status == HOLDFAST_SUCCESS)
        return STATUS_FINE;
    if (status == HOLDFAST_REFUSED) {
        complain_refused(what, event, "");
        return STATUS_REFUSED;
    }
    complain("%s: %s", what, broker_trouble(*h, status, why, sizeof(why)));
    return STATUS_TROUBLE;
}

/* Options and exactly `count` words; false: *status is the exit status. */
static bool
order_parse(struct settings *settings, const char *command, char **argv,
    const struct option *options, size_t option_count, size_t count,
    const char *takes, struct words *words, int *status)
{
    *status = STATUS_USAGE;
    if (!options_parse(
            settings, options, option_count, STOP_NEVER, argv, words))
        return false;
    if (words->help) {
        (void)help_print(command);
        *status = STATUS_FINE;
        return false;
    }
    if (words->count != count || words->rest != NULL) {
        complain("%s: takes %s", command, takes);
        return false;
    }
    return true;
}

int
command_break(struct settings *settings, int argc, char **argv)
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
    int status;

    (void)argc;
    if (!order_parse(
            settings, "break", argv, options, 1, 1, "one KEY", &words, &status))
        return status;
    if (!key_encode("break", words.word[0], word, sizeof(word)))
        return STATUS_USAGE;
    int len = snprintf(line, sizeof(line), "BREAK %s", word);
    if (fence > 0)
        (void)snprintf(
            line + len, sizeof(line) - (size_t)len, " fence=%" PRIu64, fence);
    status = order_give(settings, "break", line, &h, &event);
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
command_kill(struct settings *settings, int argc, char **argv)
{
    char word[3 * WORD_CHARS + 1];
    char line[sizeof(word) + 16];
    struct holdfast_event event;
    struct holdfast *h;
    struct words words;
    int status;

    (void)argc;
    if (!order_parse(settings, "kill", argv, NULL, 0, 1,
            "one SESSION, as `holdfast sessions` names it", &words, &status))
        return status;
    size_t len = strlen(words.word[0]);
    if (len > WORD_CHARS ||
        holdfast_encode(words.word[0], len, word, sizeof(word)) == 0) {
        complain("kill: '%s' is no session", words.word[0]);
        return STATUS_USAGE;
    }
    (void)snprintf(line, sizeof(line), "KILL %s", word);
    status = order_give(settings, "kill", line, &h, &event);
    holdfast_destroy(&h);
    return status;
}

int
command_drain(struct settings *settings, int argc, char **argv)
{
    struct holdfast_event event;
    struct holdfast *h;
    struct words words;
    int status;

    (void)argc;
    if (!order_parse(
            settings, "drain", argv, NULL, 0, 0, "no words", &words, &status))
        return status;
    if (strchr(connect_address(settings), ',') != NULL) {
        complain("drain: give one address, of the broker that stops");
        return STATUS_USAGE;
    }
    status = order_give(settings, "drain", "DRAIN", &h, &event);
    holdfast_destroy(&h);
    return status;
}
