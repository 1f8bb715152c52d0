/*
 * The commands about locks, waits and watches: each begins a request, or looks
 * at a hold. tell.c has the answers.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/driver/driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driver_item *
item_create(char **words, enum driver_kind kind)
{
    struct driver_item *item = calloc(1, sizeof(*item));
    const char *owner = driver_key(words, "owner");

    if (item == NULL)
        abort();
    (void)snprintf(item->id, sizeof(item->id), "%s", words[1]);
    if (owner == NULL)
        holdfast_new_owner(driver_h, item->owner);
    else
        (void)snprintf(item->owner, sizeof(item->owner), "%s", owner);
    for (char **word = words + 2; *word != NULL && strchr(*word, '=') == NULL &&
                                  item->name_count < HOLDFAST_NAMES_MAX;
         word++) {
        (void)holdfast_decode(*word, strlen(*word));
        (void)snprintf(item->names[item->name_count++], sizeof(item->names[0]),
            "%s", *word);
    }
    item->kind = kind;
    item->waits = true;
    item->next = driver_items;
    driver_items = item;
    return item;
}

static struct driver_item *
item_find(const char *id)
{
    struct driver_item *item = driver_items;

    while (item != NULL && strcmp(item->id, id) != 0)
        item = item->next;
    return item;
}

/* A request that could not be made. */
static void
item_refuse(struct driver_item *item, enum holdfast_status status)
{
    if (status == HOLDFAST_SUCCESS)
        return;
    item->waits = false;
    printf("%s err %s\n", item->id,
        status == HOLDFAST_NOT_CONNECTED ? "GONE" : "USAGE");
}

/* --- detached holds, by holdfast_submit() --------------------------------- */

static enum holdfast_status
detached_submit(struct driver_item *item, const char *verb, const char *rest,
    uint64_t *request)
{
    char name[3 * HOLDFAST_NAME_MAX + 1];
    char text[4096];

    if (holdfast_encode(
            item->names[0], strlen(item->names[0]), name, sizeof(name)) == 0)
        return HOLDFAST_BAD_ARGUMENT;
    (void)snprintf(text, sizeof(text), "%s %s detached=1%s", verb, name, rest);
    item->asked_ms = holdfast_now_ms(driver_h);
    return holdfast_submit(driver_h, text, request);
}

static enum holdfast_status
detached_lock(struct driver_item *item, char **words)
{
    static const char *const keys[] = {
        "wait", "lease", "mode", "limit", "permits", "note", "delay"};
    char rest[2048];
    char word[3 * HOLDFAST_NOTE_MAX + 1];
    int len = snprintf(rest, sizeof(rest), " owner=%s", item->owner);

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *value = driver_key(words, keys[i]);
        if (value != NULL &&
            holdfast_encode(value, strlen(value), word, sizeof(word)) > 0)
            len += snprintf(rest + len, sizeof(rest) - (size_t)len, " %s=%s",
                keys[i], word);
    }
    item->detached = true;
    return detached_submit(item, "LOCK", rest, &item->request);
}

/* --- holds ---------------------------------------------------------------- */

static void
act_lock(char **words)
{
    struct driver_item *item = item_create(words, DRIVER_LOCK);
    struct holdfast_lock_options options = HOLDFAST_LOCK_DEFAULTS;
    const char *mode = driver_key(words, "mode");
    const char *names[HOLDFAST_NAMES_MAX];
    const char *owner = driver_key(words, "owner");

    /* Those are of holdfast_new_owner(). */
    if (owner != NULL && owner[0] == '~') {
        item_refuse(item, HOLDFAST_BAD_ARGUMENT);
        return;
    }
    for (size_t i = 0; i < item->name_count; i++)
        names[i] = item->names[i];
    options.owner = item->owner;
    options.wait_ms =
        driver_duration(driver_key(words, "wait"), HOLDFAST_FOREVER);
    options.lease_ms = driver_duration(driver_key(words, "lease"), 0);
    options.delay_ms = driver_duration(driver_key(words, "delay"), 0);
    options.limit = driver_duration(driver_key(words, "limit"), 0);
    options.permits = driver_duration(driver_key(words, "permits"), 0);
    options.note = driver_key(words, "note");
    options.shared = mode != NULL && strcmp(mode, "shared") == 0;
    options.upgradable = mode != NULL && strcmp(mode, "upgradable") == 0;
    options.wanted = item->wanted = driver_key(words, "wanted") != NULL;
    options.tree = driver_key(words, "tree") != NULL;
    item_refuse(item, driver_key(words, "detached") != NULL
                          ? detached_lock(item, words)
                          : holdfast_submit_lock_all(driver_h, names,
                                item->name_count, &options, &item->request));
}

static void
act_adopt(char **words)
{
    struct driver_item *item = item_create(words, DRIVER_LOCK);

    item->waits = false;
    item->held = item->detached = true;
    item->name_count = 1;
    item->fences[0] = strtoull(words[3], NULL, 10);
    item->deadline_ms = UINT64_MAX;
    printf("%s adopted\n", item->id);
}

/* Begins one request for each name. */
static void
operation_begin(struct driver_item *item, const char *done,
    enum holdfast_status (*ask)(struct driver_item *item, size_t i, void *how),
    void *how)
{
    item->done = done;
    item->open = 0;
    item->lease_ms = 0;
    item->error[0] = '\0';
    for (size_t i = 0; i < item->name_count; i++) {
        enum holdfast_status status = ask(item, i, how);
        if (status == HOLDFAST_SUCCESS)
            item->open++;
        else
            (void)snprintf(item->error, sizeof(item->error), "%s",
                status == HOLDFAST_NOT_CONNECTED ? "GONE" : "USAGE");
    }
    if (item->open > 0)
        return;
    if (done != NULL)
        printf("%s err %s\n", item->id, item->error);
    item->done = NULL;
}

static enum holdfast_status
ask_unlock(struct driver_item *item, size_t i, void *how)
{
    const char *delay = how;
    char rest[96];

    if (!item->detached)
        return holdfast_submit_unlock_delayed(driver_h, item->names[i],
            item->owner, item->fences[i], driver_duration(delay, 0),
            &item->asked[i]);
    int len = snprintf(rest, sizeof(rest), " fence=%" PRIu64, item->fences[i]);
    if (driver_duration(delay, 0) > 0)
        (void)snprintf(rest + len, sizeof(rest) - (size_t)len,
            " delay=%" PRIu64, driver_duration(delay, 0));
    return detached_submit(item, "UNLOCK", rest, &item->asked[i]);
}

void
driver_release(struct driver_item *item, const char *done, const char *delay)
{
    char how[32];

    item->held = false;
    (void)snprintf(how, sizeof(how), "%s", delay != NULL ? delay : "0");
    operation_begin(item, done, ask_unlock, how);
}

static enum holdfast_status
ask_renew(struct driver_item *item, size_t i, void *how)
{
    const char *lease = how;
    char rest[96];

    if (!item->detached)
        return holdfast_submit_renew(driver_h, item->names[i], item->owner,
            item->fences[i], driver_duration(lease, 0), &item->asked[i]);
    item->lease_ms = driver_duration(lease, 0);
    (void)snprintf(rest, sizeof(rest), " fence=%" PRIu64 " lease=%.20s",
        item->fences[i], lease);
    return detached_submit(item, "RENEW", rest, &item->asked[i]);
}

static enum holdfast_status
ask_note(struct driver_item *item, size_t i, void *how)
{
    return holdfast_submit_note(driver_h, item->names[i], item->owner,
        item->fences[i], how, &item->asked[i]);
}

static void
act_cancel(struct driver_item *item)
{
    uint64_t request;

    item->cancelled = true;
    if (holdfast_submit_cancel(driver_h, item->request, &request) !=
        HOLDFAST_SUCCESS)
        printf("%s err GONE\n", item->id);
}

/* Until the answer to a RENEW, the end is the sooner one (PROTOCOL.md 6.5). */
static uint64_t
detached_deadline_ms(const struct driver_item *item)
{
    uint64_t end = driver_renew_end_ms(item);

    if (item->lease_ms > 0 && item->open > 0 && end < item->deadline_ms)
        return end;
    return item->deadline_ms;
}

/* The time left in ms; 0: the deadline is over, or the hold has ended. */
static uint64_t
item_left(const struct driver_item *item)
{
    uint64_t left = UINT64_MAX;

    if (driver_h == NULL || !item->held)
        return 0;
    uint64_t now = holdfast_now_ms(driver_h);
    for (size_t i = 0; i < item->name_count; i++) {
        struct holdfast_hold hold = {.fence = item->fences[i]};

        memcpy(hold.name, item->names[i], sizeof(hold.name));
        memcpy(hold.owner, item->owner, sizeof(hold.owner));
        uint64_t deadline = item->detached
                                ? detached_deadline_ms(item)
                                : holdfast_deadline_ms(driver_h, &hold);
        uint64_t own = deadline > now ? deadline - now : 0;
        if (own < left)
            left = own;
    }
    return left;
}

static void
check_tell(const struct driver_item *item, const char *between)
{
    if (item_left(item) > 0)
        printf("%s%s good\n", item->id, between);
    else
        printf("%s%s lost %s\n", item->id, between,
            item->lost[0] != '\0' ? item->lost : "deadline");
}

static void
act_fork(const struct driver_item *item)
{
    (void)fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        check_tell(item, " forked");
        (void)fflush(stdout);
        _exit(0);
    }
    (void)waitpid(child, NULL, 0);
}

/* --- all of them ---------------------------------------------------------- */

static void
act_wait(char **words)
{
    struct driver_item *item = item_create(words, DRIVER_AWAIT);

    item_refuse(
        item, holdfast_submit_await(driver_h, item->names[0],
                  driver_duration(driver_key(words, "wait"), HOLDFAST_FOREVER),
                  &item->request));
}

static void
act_watch(char **words)
{
    bool members = driver_key(words, "members") != NULL;
    struct driver_item *item =
        item_create(words, members ? DRIVER_MEMBERS_WATCH : DRIVER_WATCH);

    item_refuse(item, members ? holdfast_submit_watch_members(
                                    driver_h, item->names[0], &item->request)
                              : holdfast_submit_watch(
                                    driver_h, item->names[0], &item->request));
}

static void
act_unwatch(struct driver_item *item)
{
    item->done = "over";
    item->open = 1;
    item->error[0] = '\0';
    item_refuse(item,
        holdfast_submit_unwatch(driver_h, item->names[0], &item->asked[0]));
}

/* The commands about a known ID. False: there is none such. */
static bool
act_known(struct driver_item *item, char **words)
{
    const char *verb = words[0];

    if (strcmp(verb, "check") == 0)
        check_tell(item, "");
    else if (strcmp(verb, "left") == 0)
        printf("%s left %" PRIu64 "\n", item->id, item_left(item));
    else if (strcmp(verb, "fork") == 0)
        act_fork(item);
    else if (driver_h == NULL)
        printf("%s err CLOSED\n", item->id);
    else if (strcmp(verb, "unlock") == 0 && item->lost[0] != '\0')
        printf("%s err LOST\n", item->id);
    else if (strcmp(verb, "unlock") == 0)
        driver_release(item, "released", driver_key(words, "delay"));
    else if (strcmp(verb, "cancel") == 0)
        act_cancel(item);
    else if (strcmp(verb, "renew") == 0 && words[2] != NULL)
        operation_begin(item, "renewed", ask_renew, strchr(words[2], '=') + 1);
    else if (strcmp(verb, "note") == 0 &&
             (words[2] == NULL ||
                 holdfast_decode(words[2], strlen(words[2])) != SIZE_MAX))
        operation_begin(item, "noted", ask_note, words[2]);
    else if (strcmp(verb, "unwatch") == 0)
        act_unwatch(item);
    else
        return false;
    return true;
}

bool
driver_act(char **words, size_t count)
{
    struct driver_item *item = item_find(words[1]);

    if (item != NULL)
        return act_known(item, words);
    if (count < 3)
        return false;
    if (driver_h == NULL)
        printf("%s err CLOSED\n", words[1]);
    else if (strcmp(words[0], "lock") == 0)
        act_lock(words);
    else if (strcmp(words[0], "await") == 0)
        act_wait(words);
    else if (strcmp(words[0], "watch") == 0)
        act_watch(words);
    else if (strcmp(words[0], "adopt") == 0 && count == 4)
        act_adopt(words);
    else
        return false;
    return true;
}
