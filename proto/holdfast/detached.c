/*
 * Detached holds: lock --detached takes one, unlock and renew end or prolong it
 * by its fence. Each is one request: the hold needs no process that keeps it.
 */
#include "proto/holdfast/detached.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES \
    (3 * (HOLDFAST_NAME_MAX + HOLDFAST_OWNER_MAX + HOLDFAST_NOTE_MAX) + 256)
#define ANSWER_MS 8000 /* for the final answer, after the wait */

struct line {
    char text[LINE_BYTES]; /* has room for all that options allow */
    size_t len;
};

static void
line_word(struct line *line, const char *key, const char *word)
{
    if (word == NULL)
        return;
    line->len += (size_t)snprintf(
        line->text + line->len, sizeof(line->text) - line->len, "%s", key);
    line->len += holdfast_encode(word, strlen(word), line->text + line->len,
        sizeof(line->text) - line->len);
}

static void
line_number(struct line *line, const char *key, uint64_t number)
{
    line->len += (size_t)snprintf(line->text + line->len,
        sizeof(line->text) - line->len, "%s%" PRIu64, key, number);
}

int
detached_lock(const struct settings *settings, const struct acquire *acquire)
{
    const struct holdfast_lock_options *asked = &acquire->options;
    struct line line = {.len = 0};
    struct holdfast_event event;
    struct holdfast *h;
    uint64_t fence = 0;
    uint64_t ttl_ms = 0;

    line_word(&line, "LOCK ", acquire->keys[0]);
    line_number(&line, " detached=1 lease=", asked->lease_ms);
    line_word(&line, " owner=", asked->owner);
    line_word(&line, " note=", asked->note);
    if (asked->wait_ms != HOLDFAST_FOREVER)
        line_number(&line, " wait=", asked->wait_ms);
    if (asked->shared)
        line_word(&line, " mode=", "shared");
    if (asked->limit > 0)
        line_number(&line, " limit=", asked->limit);
    if (asked->permits > 0)
        line_number(&line, " permits=", asked->permits);
    if (asked->delay_ms > 0)
        line_number(&line, " delay=", asked->delay_ms);
    int status = order_give(settings, "lock", line.text,
        asked->wait_ms != HOLDFAST_FOREVER ? asked->wait_ms + ANSWER_MS
                                           : HOLDFAST_FOREVER,
        &h, &event);
    if (status == STATUS_FINE &&
        (!holdfast_event_number(&event, "fence", &fence) ||
            !holdfast_event_number(&event, "ttl_ms", &ttl_ms))) {
        complain("lock: the broker's answer has no fence");
        status = STATUS_TROUBLE;
    } else if (status == STATUS_FINE) {
        (void)printf("fence=%" PRIu64 " ttl_ms=%" PRIu64 "\n", fence, ttl_ms);
    } else if (status == STATUS_REFUSED) {
        bool taken = strcmp(event.word, "BUSY") == 0 ||
                     strcmp(event.word, "TIMEOUT") == 0;
        status = taken ? STATUS_NOT_ACQUIRED : STATUS_TROUBLE;
    }
    holdfast_destroy(&h);
    return status;
}

int
command_unlock(struct settings *settings, char **argv)
{
    uint64_t fence = 0;
    uint64_t delay_ms = 0;
    const struct option options[] = {
        {.name = "fence", .max = FENCE_MAX, .number = &fence},
        {.name = "delay", .duration_ms = &delay_ms}};
    struct line line = {.len = 0};
    struct holdfast_event event;
    struct holdfast *h;
    struct words words;

    if (!words_take(settings, "unlock", options, COUNT(options), argv, &words))
        return words.status;
    if (!key_check("unlock", words.word[0]) ||
        !option_given("unlock", "fence", fence > 0))
        return STATUS_USAGE;
    line_word(&line, "UNLOCK ", words.word[0]);
    line_number(&line, " detached=1 fence=", fence);
    if (delay_ms > 0)
        line_number(&line, " delay=", delay_ms);
    int status =
        order_give(settings, "unlock", line.text, ORDER_MS, &h, &event);
    holdfast_destroy(&h);
    return status;
}

int
command_renew(struct settings *settings, char **argv)
{
    uint64_t fence = 0;
    uint64_t lease_ms = UINT64_MAX;
    const struct option options[] = {
        {.name = "fence", .max = FENCE_MAX, .number = &fence},
        {.name = "lease", .duration_ms = &lease_ms}};
    struct line line = {.len = 0};
    struct holdfast_event event;
    struct holdfast *h;
    struct words words;
    uint64_t ttl_ms = 0;

    if (!words_take(settings, "renew", options, COUNT(options), argv, &words))
        return words.status;
    if (!key_check("renew", words.word[0]) ||
        !option_given("renew", "fence", fence > 0) ||
        !option_given("renew", "lease", lease_ms != UINT64_MAX) ||
        !lease_check(lease_ms, true))
        return STATUS_USAGE;
    line_word(&line, "RENEW ", words.word[0]);
    line_number(&line, " detached=1 fence=", fence);
    line_number(&line, " lease=", lease_ms);
    int status = order_give(settings, "renew", line.text, ORDER_MS, &h, &event);
    if (status == STATUS_FINE) {
        (void)holdfast_event_number(&event, "ttl_ms", &ttl_ms);
        (void)printf("ttl_ms=%" PRIu64 "\n", ttl_ms);
    }
    holdfast_destroy(&h);
    return status;
}
