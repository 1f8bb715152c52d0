/*
 * The events of the library to results on stdout.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/driver/driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORD_BYTES (3 * HOLDFAST_NAME_MAX * HOLDFAST_NAMES_MAX)

/* ` KEY=VALUE`, if the event has the key. */
static void
pair_tell(const struct holdfast_event *event, const char *key)
{
    const char *value = holdfast_event_value(event, key);
    static char word[WORD_BYTES];

    if (value != NULL &&
        holdfast_encode(value, strlen(value), word, sizeof(word)) > 0)
        printf(" %s=%s", key, word);
}

/* In a cycle '%' and ',' of a name are encoded already. */
static void
cycle_tell(const char *cycle)
{
    char word[8];

    printf(" cycle=");
    for (; *cycle != '\0'; cycle++) {
        if (*cycle == '%' || *cycle == ':')
            putchar(*cycle);
        else if (holdfast_encode(cycle, 1, word, sizeof(word)) > 0)
            printf("%s", word);
    }
}

static void
error_tell(const struct driver_item *item, const struct holdfast_event *event)
{
    const char *cycle = holdfast_event_value(event, "cycle");

    printf("%s err %s", item->id, event->word);
    if (cycle != NULL)
        cycle_tell(cycle);
    putchar('\n');
}

static void
lost_tell(struct driver_item *item, const char *why)
{
    if (!item->held || item->lost[0] != '\0')
        return;
    (void)snprintf(item->lost, sizeof(item->lost), "%s", why);
    printf("%s lost %s\n", item->id, item->lost);
}

static void
granted_tell(struct driver_item *item, const struct holdfast_event *event)
{
    size_t count =
        holdfast_event_fences(event, item->fences, HOLDFAST_NAMES_MAX);

    if (item->detached)
        item->deadline_ms = item->asked_ms + event->ttl_ms;
    item->held = true;
    if (item->cancelled) {
        driver_release(item, NULL, NULL);
        printf("%s err CANCELLED\n", item->id);
        return;
    }
    printf("%s held ", item->id);
    for (size_t i = 0; i < count; i++)
        printf("%s%" PRIu64, i > 0 ? "," : "", item->fences[i]);
    putchar('\n');
}

/* The final answer to the LOCK, AWAIT or WATCH of the item. */
static void
answer_tell(struct driver_item *item, const struct holdfast_event *event)
{
    item->waits = false;
    if (event->kind == HOLDFAST_ERR) {
        error_tell(item, event);
    } else if (item->kind == DRIVER_LOCK) {
        granted_tell(item, event);
    } else if (item->kind == DRIVER_AWAIT) {
        printf("%s free", item->id);
        pair_tell(event, "fence");
        pair_tell(event, "note");
        putchar('\n');
    }
}

/* A detached RENEW failed: the hold may have the new end, if that is sooner. */
static void
sooner_end(struct driver_item *item, const char *code)
{
    uint64_t end = driver_renew_end_ms(item);

    if ((strcmp(code, "UNAVAILABLE") == 0 || strcmp(code, "INDOUBT") == 0 ||
            strcmp(code, "INTERNAL") == 0) &&
        end < item->deadline_ms)
        item->deadline_ms = end;
}

/* The answer to one request of the present operation. */
static void
operation_tell(struct driver_item *item, const struct holdfast_event *event)
{
    if (event->kind == HOLDFAST_ERR && item->error[0] == '\0')
        (void)snprintf(item->error, sizeof(item->error), "%s", event->word);
    if (event->ttl_ms > 0 && item->detached)
        item->deadline_ms = item->asked_ms + event->ttl_ms;
    if (event->kind == HOLDFAST_ERR && item->lease_ms > 0)
        sooner_end(item, event->word);
    if (--item->open > 0)
        return;
    if (item->done != NULL && item->error[0] != '\0')
        printf("%s err %s\n", item->id, item->error);
    else if (item->done != NULL)
        printf("%s %s\n", item->id, item->done);
    item->done = NULL;
}

static void
reply_tell(const struct holdfast_event *event)
{
    for (struct driver_item *item = driver_items; item != NULL;
         item = item->next) {
        if (item->request == event->request && item->waits) {
            answer_tell(item, event);
            return;
        }
        for (size_t i = 0; i < HOLDFAST_NAMES_MAX && item->open > 0; i++)
            if (item->asked[i] == event->request) {
                operation_tell(item, event);
                return;
            }
    }
}

/* The hold of LOST or DEADLINE. After its deadline the broker may still renew
 * it: it is given back. */
static void
hold_tell(const struct holdfast_event *event)
{
    const char *why = holdfast_event_value(event, "reason");
    uint64_t request;

    for (struct driver_item *item = driver_items; item != NULL;
         item = item->next)
        for (size_t i = 0; i < item->name_count; i++) {
            if (item->fences[i] != event->fence || item->detached ||
                strcmp(item->names[i], event->word) != 0)
                continue;
            if (event->kind == HOLDFAST_DEADLINE && item->held)
                (void)holdfast_submit_unlock(driver_h, item->names[i],
                    item->owner, item->fences[i], &request);
            lost_tell(item, event->kind == HOLDFAST_DEADLINE ? "deadline"
                            : why != NULL                    ? why
                                                             : "gone");
        }
}

static void
wanted_tell(const struct holdfast_event *event)
{
    const char *waiters = holdfast_event_value(event, "waiters");

    for (struct driver_item *item = driver_items; item != NULL;
         item = item->next)
        if (item->held && item->wanted &&
            strcmp(item->names[0], event->word) == 0)
            printf("%s wanted %s\n", item->id, waiters);
}

static void
members_change(struct driver_item *item, const struct holdfast_event *event)
{
    struct driver_member *at = item->members;
    struct driver_member *end = at + item->member_count;
    const char *note = holdfast_event_value(event, "note");

    while (at < end && at->fence < event->fence)
        at++;
    if (at == end || at->fence != event->fence) {
        if (event->kind == HOLDFAST_LEFT ||
            item->member_count == DRIVER_MEMBERS)
            return;
        memmove(at + 1, at, (size_t)(end - at) * sizeof(*at));
        item->member_count++;
    } else if (event->kind == HOLDFAST_LEFT) {
        item->member_count--;
        memmove(at, at + 1, (size_t)(end - at - 1) * sizeof(*at));
        return;
    }
    at->fence = event->fence;
    at->note[0] = '\0';
    if (note != NULL)
        (void)holdfast_encode(note, strlen(note), at->note, sizeof(at->note));
}

static void
members_tell(struct driver_item *item, const struct holdfast_event *event)
{
    if (event->kind != HOLDFAST_MEMBERS) {
        members_change(item, event);
    } else {
        item->listing = holdfast_event_value(event, "begin") != NULL;
        if (item->listing)
            item->member_count = 0;
    }
    if (item->listing)
        return;
    printf("%s members", item->id);
    for (size_t i = 0; i < item->member_count; i++) {
        const struct driver_member *member = &item->members[i];
        printf(" %" PRIu64 "%s%s", member->fence,
            member->note[0] != '\0' ? "=" : "", member->note);
    }
    putchar('\n');
}

static void
watch_tell(const struct holdfast_event *event)
{
    bool members = event->kind != HOLDFAST_HELD && event->kind != HOLDFAST_FREE;

    for (struct driver_item *item = driver_items; item != NULL;
         item = item->next) {
        if (strcmp(item->names[0], event->word) != 0 ||
            item->kind != (members ? DRIVER_MEMBERS_WATCH : DRIVER_WATCH))
            continue;
        if (members) {
            members_tell(item, event);
        } else if (event->kind == HOLDFAST_HELD) {
            printf("%s held %" PRIu64, item->id, event->fence);
            pair_tell(event, "note");
            putchar('\n');
        } else {
            printf("%s free\n", item->id);
        }
    }
}

void
driver_over(const char *code)
{
    for (struct driver_item *item = driver_items; item != NULL;
         item = item->next) {
        if (item->waits && item->kind <= DRIVER_AWAIT)
            printf("%s err %s\n", item->id, code);
        item->waits = false;
        if (item->open > 0 && item->done != NULL)
            printf("%s err %s\n", item->id, code);
        item->open = 0;
        if (strcmp(code, "GONE") == 0 && !item->detached)
            lost_tell(item, "session");
    }
}

void
driver_tell(const struct holdfast_event *event)
{
    switch (event->kind) {
    case HOLDFAST_OK:
    case HOLDFAST_ERR:
        reply_tell(event);
        return;
    case HOLDFAST_LOST:
    case HOLDFAST_DEADLINE:
        hold_tell(event);
        return;
    case HOLDFAST_WANTED:
        wanted_tell(event);
        return;
    case HOLDFAST_HELD:
    case HOLDFAST_FREE:
    case HOLDFAST_MEMBERS:
    case HOLDFAST_JOINED:
    case HOLDFAST_CHANGED:
    case HOLDFAST_LEFT:
        watch_tell(event);
        return;
    case HOLDFAST_BACK:
        puts("moved");
        return;
    case HOLDFAST_CLOSED:
        (void)fprintf(stderr, "driver: %s\n", holdfast_reason(driver_h));
        driver_over("GONE");
        return;
    case HOLDFAST_HELLO:
    case HOLDFAST_ITEM:
    case HOLDFAST_QUEUED:
    case HOLDFAST_JEOPARDY:
    case HOLDFAST_SAFE:
    case HOLDFAST_DRAIN:
    case HOLDFAST_BYE:
    case HOLDFAST_AWAY:
        return;
    }
}
