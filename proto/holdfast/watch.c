/*
 * The command watch: a line for each change of a lock, held or free, or of its
 * holders, until a signal comes. It continues at another broker, or when the
 * broker is back.
 *
 * The lines are printed as they come, so they have no columns on a terminal.
 */
#include "proto/holdfast/acquire.h"
#include "proto/holdfast/escape.h"
#include "proto/holdfast/options.h"
#include "proto/holdfast/out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_MS   30000 /* makes the library connect again */
#define PAIRS_MAX 40

static const struct out_column watch_columns[] = {
    {"event", "EVENT", OUT_TYPE_TEXT},
    {"lock", "LOCK", OUT_TYPE_TEXT},
    {"fence", "FENCE", OUT_TYPE_NUMBER},
    {"holders", "HOLDERS", OUT_TYPE_NUMBER},
    {"name", "NAME", OUT_TYPE_TEXT},
    {"owner", "OWNER", OUT_TYPE_TEXT},
    {"note", "NOTE", OUT_TYPE_TEXT},
};

static const struct out_column member_columns[] = {
    {"event", "EVENT", OUT_TYPE_TEXT},
    {"lock", "LOCK", OUT_TYPE_TEXT},
    {"begin", "BEGIN", OUT_TYPE_NUMBER},
    {"members", "MEMBERS", OUT_TYPE_NUMBER},
    {"fence", "FENCE", OUT_TYPE_NUMBER},
    {"session", "SESSION", OUT_TYPE_TEXT},
    {"permits", "PERMITS", OUT_TYPE_NUMBER},
    {"detached", "DETACHED", OUT_TYPE_NUMBER},
    {"name", "NAME", OUT_TYPE_TEXT},
    {"owner", "OWNER", OUT_TYPE_TEXT},
    {"note", "NOTE", OUT_TYPE_TEXT},
};

/* The word of an event of a watch, or NULL. */
static const char *
watch_word(const struct holdfast_event *event)
{
    static const struct {
        enum holdfast_kind kind;
        const char *word;
    } words[] = {{HOLDFAST_HELD, "held"}, {HOLDFAST_FREE, "free"},
        {HOLDFAST_MEMBERS, "members"}, {HOLDFAST_JOINED, "joined"},
        {HOLDFAST_CHANGED, "changed"}, {HOLDFAST_LEFT, "left"}};

    for (size_t i = 0; i < COUNT(words); i++)
        if (words[i].kind == event->kind)
            return words[i].word;
    return NULL;
}

/* Prints "held KEY fence=F name=N". False: stdout is gone, or no memory. */
static bool
watch_print(const struct holdfast_event *event)
{
    for (size_t i = 0; i < event->pair_count; i++) {
        const struct holdfast_pair *pair = &event->pairs[i];
        char *text = escape_make(pair->value, pair->len, NULL);

        if (text == NULL)
            return false;
        /* The first two are the event and the lock. */
        if (i < 2)
            (void)printf("%s%s", i > 0 ? " " : "", text);
        else
            (void)printf(" %s=%s", pair->key, text);
        free(text);
    }
    return putchar('\n') != EOF;
}

/* Prints one event. False: stdout is gone, or no memory. */
static bool
watch_row(struct out *out, const struct holdfast_event *event)
{
    struct holdfast_pair pairs[PAIRS_MAX];
    const char *what = watch_word(event);
    struct holdfast_event row = *event;
    size_t count = 2;

    pairs[0] = (struct holdfast_pair){"event", what, strlen(what)};
    pairs[1] = (struct holdfast_pair){"lock", event->word, event->word_len};
    for (size_t i = 0; i < event->pair_count && count < PAIRS_MAX; i++)
        pairs[count++] = event->pairs[i];
    row.pairs = pairs;
    row.pair_count = count;
    bool good =
        out_format(out) == OUT_COLUMNS ? watch_print(&row) : out_row(out, &row);
    return fflush(stdout) == 0 && good;
}

/* False: the command ends with *status. */
static bool
watch_event(struct out *out, const struct holdfast_event *event, int *status)
{
    char text[256];

    *status = STATUS_TROUBLE;
    if (watch_word(event) != NULL) {
        if (watch_row(out, event))
            return true;
        complain("cannot write");
        return false;
    }
    if (event->kind == HOLDFAST_AWAY || event->kind == HOLDFAST_BACK)
        acquire_complain_away(event);
    if (event->kind == HOLDFAST_ERR) {
        complain_refused("watch", event, "");
        *status = STATUS_REFUSED;
        return false;
    }
    if (event->kind != HOLDFAST_CLOSED)
        return true;
    complain("%s", escape_text(event->text, text, sizeof(text)));
    return false;
}

/* Prints events until one ends the command; the exit status. */
static int
watch_run(struct holdfast *h, struct out *out)
{
    struct holdfast_event event;
    int status;

    for (;;) {
        while (holdfast_next(h, &event))
            if (!watch_event(out, &event, &status))
                return status;
        holdfast_poll(h, -1);
    }
}

/* Sends the WATCHes. False after a complaint. */
static bool
watch_ask(struct holdfast *h, const struct words *words, bool members)
{
    uint64_t request;

    for (size_t i = 0; i < words->count; i++) {
        enum holdfast_status status =
            members ? holdfast_submit_watch_members(h, words->word[i], &request)
                    : holdfast_submit_watch(h, words->word[i], &request);

        if (status != HOLDFAST_SUCCESS) {
            complain("watch: %s", holdfast_status_text(status));
            return false;
        }
    }
    return true;
}

int
command_watch(struct settings *settings, char **argv)
{
    bool members = false;
    const struct option options[] = {{.name = "members", .flag = &members}};
    struct words words;

    if (!words_take(settings, "watch", options, 1, argv, &words))
        return words.status;
    for (size_t i = 0; i < words.count; i++)
        if (!key_check("watch", words.word[i]))
            return STATUS_USAGE;
    struct holdfast *h = connect_kept(settings, KEEP_MS);
    if (h == NULL)
        return STATUS_TROUBLE;
    struct out *out = members ? out_create(settings->format, member_columns,
                                    COUNT(member_columns))
                              : out_create(settings->format, watch_columns,
                                    COUNT(watch_columns));
    int status = STATUS_TROUBLE;
    if (out != NULL && watch_ask(h, &words, members))
        status = watch_run(h, out);
    (void)out_destroy(&out);
    holdfast_destroy(&h);
    return status;
}
