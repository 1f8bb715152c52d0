/*
 * The command top: the most contended locks of a broker, the oldest holds and
 * the oldest waits. On a terminal it draws them at each interval, else once.
 *
 * A picture shows one whole answer, until the next answer is whole. The rates
 * come from STATS. They are left out if the user has no right to it.
 */
#include "daemon/base/assert.h"
#include "proto/holdfast/escape.h"
#include "proto/holdfast/loop.h"
#include "proto/holdfast/options.h"
#include "proto/holdfast/out.h"
#include "proto/holdfast/screen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MS       15000 /* for a whole answer */
#define INTERVAL_MS     1000
#define INTERVAL_MIN_MS 100
#define RETRY_MS        50 /* while the terminal does not take a picture */
#define LIMIT_MAX       100
#define LINE_BYTES      4096

static const struct out_column top_columns[] = {
    {"kind", "KIND", OUT_TYPE_TEXT},
    {"name", "NAME", OUT_TYPE_TEXT},
    {"waits", "WAITS", OUT_TYPE_NUMBER},
    {"waited_ms", "WAITED", OUT_TYPE_MS},
    {"waiters", "WAITERS", OUT_TYPE_NUMBER},
    {"age_ms", "AGE", OUT_TYPE_MS},
    {"session", "SESSION", OUT_TYPE_TEXT},
    {"client", "CLIENT", OUT_TYPE_TEXT},
    {"owner", "OWNER", OUT_TYPE_TEXT},
    {"fence", "FENCE", OUT_TYPE_NUMBER},
    {"note", "NOTE", OUT_TYPE_TEXT},
    {"mode", "MODE", OUT_TYPE_TEXT},
    {"permits", "PERMITS", OUT_TYPE_NUMBER},
};

enum list_kind {
    LIST_CONTENDED,
    LIST_HOLDER,
    LIST_WAITER,
    LISTS
};

static const char *const list_words[LISTS] = {"contended", "holder", "waiter"};

/* The words of an ITEM, in the order of a line. */
enum row_word {
    WORD_SESSION,
    WORD_NAME,
    WORD_CLIENT,
    WORD_OWNER,
    WORD_NOTE,
    WORDS
};

static const char *const word_keys[WORDS] = {
    "session", "name", "client", "owner", "note"};

struct row {
    char *word[WORDS]; /* owned; escaped; NULL: not told */
    uint64_t waits;
    uint64_t waited_ms;
    uint64_t waiters;
    uint64_t age_ms;
};

enum total {
    TOTAL_RELEASES,
    TOTAL_GRANTS,
    TOTAL_WAITS,
    TOTAL_SESSIONS,
    TOTAL_HELD,
    TOTAL_WAITING,
    TOTALS
};

static const char *const total_names[TOTALS] = {"releases", "grants",
    "waits_begun", "sessions_now", "held_now", "waiting_now"};

/* The contents of one answer. */
struct answer {
    size_t count[LISTS];
    struct row row[LISTS][LIMIT_MAX];
    uint64_t at_ms;
    bool totals_known;
    uint64_t total[TOTALS];
};

struct top {
    const char *address; /* ref */
    struct holdfast *h;  /* ref */
    struct loop loop;
    struct screen screen;
    uint64_t interval_ms;
    uint64_t limit;
    struct answer *shown;  /* owned; the last whole answer */
    struct answer *coming; /* owned; the next one */
    double rate[3];        /* a second, of the first TOTALs */
    bool rates_known;
    bool stats;         /* no STATS was refused so far */
    bool any;           /* `shown` is an answer */
    uint64_t top_sent;  /* the outstanding TOP; 0: none */
    uint64_t stat_sent; /* the outstanding STATS; 0: none */
    uint64_t asked_ms;
};

/* --- answers -------------------------------------------------------------- */

static void
answer_clear(struct answer *answer)
{
    for (size_t list = 0; list < LISTS; list++)
        for (size_t i = 0; i < answer->count[list]; i++)
            for (size_t word = 0; word < WORDS; word++)
                free(answer->row[list][i].word[word]);
    memset(answer, 0, sizeof(*answer));
}

static size_t
list_of(const struct holdfast_event *event)
{
    const char *kind = holdfast_event_value(event, "kind");
    size_t list = 0;

    while (
        list < LISTS && (kind == NULL || strcmp(kind, list_words[list]) != 0))
        list++;
    return list;
}

/* An ITEM of TOP. False: no memory. */
static bool
row_take(struct answer *answer, const struct holdfast_event *event)
{
    size_t list = list_of(event);

    if (list == LISTS || answer->count[list] == LIMIT_MAX)
        return true; /* a newer broker may send more */
    struct row *row = &answer->row[list][answer->count[list]++];
    (void)holdfast_event_number(event, "waits", &row->waits);
    (void)holdfast_event_number(event, "waited_ms", &row->waited_ms);
    (void)holdfast_event_number(event, "waiters", &row->waiters);
    (void)holdfast_event_number(event, "age_ms", &row->age_ms);
    for (size_t word = 0; word < WORDS; word++) {
        for (size_t i = 0; i < event->pair_count; i++) {
            const struct holdfast_pair *pair = &event->pairs[i];
            if (strcmp(pair->key, word_keys[word]) != 0 ||
                row->word[word] != NULL)
                continue;
            row->word[word] = escape_make(pair->value, pair->len, NULL);
            if (row->word[word] == NULL)
                return false;
        }
    }
    return true;
}

/* An ITEM of STATS. */
static void
total_take(struct answer *answer, const struct holdfast_event *event)
{
    const char *name = holdfast_event_value(event, "name");

    for (size_t i = 0; name != NULL && i < TOTALS; i++)
        if (strcmp(name, total_names[i]) == 0)
            (void)holdfast_event_number(event, "value", &answer->total[i]);
}

static void
top_rates(struct top *top)
{
    const struct answer *now = top->coming;
    const struct answer *before = top->shown;

    top->rates_known = top->any && now->totals_known && before->totals_known &&
                       now->at_ms > before->at_ms;
    for (size_t i = 0; top->rates_known && i < COUNT(top->rate); i++)
        top->rate[i] = now->total[i] < before->total[i]
                           ? 0.0
                           : (double)(now->total[i] - before->total[i]) *
                                 1000.0 / (double)(now->at_ms - before->at_ms);
}

/* --- the picture ---------------------------------------------------------- */

/* Writes a word of `width` characters: blanks fill a shorter one, a longer one
 * is cut. Returns the number of bytes. */
static size_t
word_put(char *line, size_t room, const char *text, size_t width)
{
    size_t left = width;

    require(room > 2 && width > 0);
    if (text == NULL)
        text = "-";
    size_t at = screen_cut(text, &left);
    bool cut = text[at] != '\0';
    if (cut) {
        left = width - 1;
        at = screen_cut(text, &left);
    }
    at = at < room - 2 ? at : room - 2;
    memcpy(line, text, at);
    if (cut)
        line[at++] = '~';
    for (; left > 0 && at + 1 < room; left--)
        line[at++] = ' ';
    line[at] = '\0';
    return at;
}

static void
words_put(char *line, size_t at, const char *const *word, const size_t *width,
    size_t count)
{
    for (size_t i = 0; i < count && at + 2 < LINE_BYTES; i++) {
        at += word_put(line + at, LINE_BYTES - at, word[i], width[i]);
        if (i + 1 < count && at + 1 < LINE_BYTES)
            line[at++] = ' ';
        line[at] = '\0';
    }
    while (at > 0 && line[at - 1] == ' ')
        line[--at] = '\0';
}

/* The widths of session, name, client, owner and note. */
static void
words_widths(const struct top *top, size_t width[WORDS])
{
    size_t fixed = 7 + 1 + 8 + 1 + 3; /* age, session, blanks between */
    size_t rest = top->screen.columns > fixed ? top->screen.columns - fixed : 0;

    if (rest < 40)
        rest = 40;
    width[WORD_SESSION] = 8;
    width[WORD_NAME] = rest * 2 / 5;
    width[WORD_CLIENT] = rest / 5;
    width[WORD_OWNER] = rest / 10 + 1;
    width[WORD_NOTE] =
        rest - width[WORD_NAME] - width[WORD_CLIENT] - width[WORD_OWNER];
}

static void
row_draw(struct top *top, size_t list, const struct row *row)
{
    char line[LINE_BYTES];
    char time[32];
    size_t width[WORDS];

    words_widths(top, width);
    if (list == LIST_CONTENDED) {
        const char *name = row->word[WORD_NAME];

        out_duration(row->waited_ms, time, sizeof(time));
        (void)snprintf(line, sizeof(line), "%7" PRIu64 " %7s %7" PRIu64 " %s",
            row->waits, time, row->waiters, name != NULL ? name : "-");
    } else {
        out_duration(row->age_ms, time, sizeof(time));
        int len = snprintf(line, sizeof(line), "%7s ", time);
        words_put(
            line, (size_t)len, (const char *const *)row->word, width, WORDS);
    }
    screen_line(&top->screen, line, false);
}

static void
list_title(struct top *top, size_t list)
{
    static const char *const titles[WORDS] = {
        "SESSION", "NAME", "CLIENT", "OWNER", "NOTE"};
    char line[LINE_BYTES];
    size_t width[WORDS];

    if (list == LIST_CONTENDED) {
        screen_line(
            &top->screen, "  WAITS  WAITED WAITERS MOST WAITED FOR", true);
        return;
    }
    words_widths(top, width);
    int len = snprintf(
        line, sizeof(line), list == LIST_HOLDER ? "   HELD " : " WAITED ");
    words_put(line, (size_t)len, titles, width, WORDS);
    screen_line(&top->screen, line, true);
}

/* Shares `rows` among the lists. A short list leaves its room to the others. */
static void
lists_share(const struct top *top, size_t rows, size_t share[LISTS])
{
    bool given = true;

    memset(share, 0, LISTS * sizeof(share[0]));
    while (given) {
        given = false;
        for (size_t list = 0; list < LISTS; list++) {
            require(share[list] <= top->shown->count[list]);
            if (rows == 0 || share[list] == top->shown->count[list])
                continue;
            share[list]++;
            rows--;
            given = true;
        }
    }
}

/* Draws the address, the broker's version, and the rates. */
static void
head_draw(struct top *top)
{
    const struct answer *shown = top->shown;
    char server[128];
    char line[512];

    (void)snprintf(line, sizeof(line), "holdfast top  %s  %s  (q: quit)",
        top->address,
        escape_text(holdfast_server(top->h), server, sizeof(server)));
    screen_line(&top->screen, line, false);
    line[0] = '\0';
    if (top->rates_known)
        (void)snprintf(line, sizeof(line),
            "pairs/s %.1f  grants/s %.1f  waits/s %.1f  ",
            top->rate[TOTAL_RELEASES], top->rate[TOTAL_GRANTS],
            top->rate[TOTAL_WAITS]);
    size_t len = strlen(line);
    if (shown->totals_known)
        (void)snprintf(line + len, sizeof(line) - len,
            "sessions %" PRIu64 "  held %" PRIu64 "  waiting %" PRIu64,
            shown->total[TOTAL_SESSIONS], shown->total[TOTAL_HELD],
            shown->total[TOTAL_WAITING]);
    screen_line(&top->screen, line, false);
}

static void
top_draw(struct top *top)
{
    const size_t others = 2 + LISTS;
    size_t share[LISTS];

    if (!top->any || !screen_begin(&top->screen))
        return;
    size_t rows = top->screen.rows;
    lists_share(top, rows > others ? rows - others : 0, share);
    head_draw(top);
    for (size_t list = 0; list < LISTS && 2 + list < rows; list++) {
        list_title(top, list);
        for (size_t i = 0; i < share[list]; i++)
            row_draw(top, list, &top->shown->row[list][i]);
    }
    screen_show(&top->screen);
}

/* --- requests ------------------------------------------------------------- */

/* Sends TOP and STATS. False after a complaint. */
static bool
top_ask(struct top *top)
{
    char line[40];
    char why[256];

    answer_clear(top->coming);
    top->asked_ms = loop_now_ms();
    (void)snprintf(line, sizeof(line), "TOP limit=%" PRIu64, top->limit);
    enum holdfast_status status = holdfast_submit(top->h, line, &top->top_sent);
    if (status == HOLDFAST_SUCCESS && top->stats)
        status = holdfast_submit(top->h, "STATS", &top->stat_sent);
    if (status == HOLDFAST_SUCCESS)
        return true;
    screen_leave(&top->screen);
    complain("TOP: %s", broker_trouble(top->h, status, why, sizeof(why)));
    return false;
}

/* The answer is whole: shows it. */
static void
top_answered(struct top *top)
{
    struct answer *before = top->shown;

    top->coming->at_ms = loop_now_ms();
    top_rates(top);
    top->shown = top->coming;
    top->coming = before;
    top->any = true;
    top_draw(top);
}

/* An event of the STATS. After an ERR the command goes on without it. */
static void
stats_event(struct top *top, const struct holdfast_event *event)
{
    if (event->kind == HOLDFAST_ITEM)
        total_take(top->coming, event);
    if (event->kind != HOLDFAST_OK && event->kind != HOLDFAST_ERR)
        return;
    top->stat_sent = 0;
    top->coming->totals_known = event->kind == HOLDFAST_OK;
    top->stats = top->coming->totals_known;
}

/* Any status but STATUS_FINE ends the command, after a complaint. */
static int
top_event(struct top *top, const struct holdfast_event *event)
{
    char why[256];

    if (event->kind == HOLDFAST_CLOSED) {
        screen_leave(&top->screen);
        complain("%s", escape_text(event->text, why, sizeof(why)));
        return STATUS_TROUBLE;
    }
    if (event->request == 0 ||
        (event->request != top->top_sent && event->request != top->stat_sent))
        return STATUS_FINE;
    if (event->request == top->stat_sent) {
        stats_event(top, event);
    } else if (event->kind == HOLDFAST_ERR) {
        screen_leave(&top->screen);
        complain_refused("TOP", event, "");
        return STATUS_REFUSED;
    } else if (event->kind == HOLDFAST_OK) {
        top->top_sent = 0;
    } else if (event->kind == HOLDFAST_ITEM && !row_take(top->coming, event)) {
        screen_leave(&top->screen);
        complain("out of memory");
        return STATUS_TROUBLE;
    }
    if (top->top_sent == 0 && top->stat_sent == 0)
        top_answered(top);
    return STATUS_FINE;
}

/* --- the loop ------------------------------------------------------------- */

/* Whether an answer is outstanding. */
static bool
top_is_asking(const struct top *top)
{
    return top->top_sent != 0 || top->stat_sent != 0;
}

/* False: a signal ends the command. */
static bool
top_signals(struct top *top)
{
    int signal;

    while ((signal = loop_signal(&top->loop)) != 0) {
        if (loop_signal_ends(&top->loop, signal))
            return false;
        if (signal == SIGTSTP) {
            screen_leave(&top->screen);
            loop_stop_self();
        }
        if (signal == SIGTSTP || signal == SIGCONT)
            screen_enter(&top->screen);
        if (signal == SIGWINCH)
            screen_measure(&top->screen);
        if (signal == SIGTSTP || signal == SIGCONT || signal == SIGWINCH)
            top_draw(top);
    }
    return true;
}

/* Draws until a key or a signal ends the command; the exit status. */
static int
top_run(struct top *top)
{
    struct holdfast_event event;
    bool readable = false;
    int key = 0;

    while (key != 'q' && key != 'Q' && key >= 0) {
        int status = STATUS_FINE;
        while (status == STATUS_FINE && holdfast_next(top->h, &event))
            status = top_event(top, &event);
        if (status != STATUS_FINE)
            return status;
        uint64_t now = loop_now_ms();
        uint64_t due =
            top->asked_ms + (top_is_asking(top) ? ANSWER_MS : top->interval_ms);
        if (now >= due && top_is_asking(top)) {
            screen_leave(&top->screen);
            complain("TOP: the broker does not answer");
            return STATUS_TROUBLE;
        }
        if (now >= due && !top_ask(top))
            return STATUS_TROUBLE;
        if (now >= due)
            due = now; /* the loop sends the request */
        if (screen_waits(&top->screen) && due > now + RETRY_MS)
            due = now + RETRY_MS;
        short revents = loop_wait(&top->loop, top->h, due,
            top->screen.keys ? STDIN_FILENO : -1, &readable);
        holdfast_process(top->h, revents);
        if (!top_signals(top))
            break;
        key = readable ? screen_key(&top->screen) : 0;
        screen_send(&top->screen);
    }
    return STATUS_FINE;
}

static int
top_live(struct settings *settings, struct top *top)
{
    int status = STATUS_TROUBLE;

    top->h = connect_broker(settings);
    if (top->h == NULL)
        return STATUS_TROUBLE;
    top->address = connect_address(settings);
    top->stats = true;
    top->shown = calloc(1, sizeof(*top->shown));
    top->coming = calloc(1, sizeof(*top->coming));
    if (top->shown == NULL || top->coming == NULL) {
        complain("out of memory");
    } else if (loop_init(&top->loop)) {
        if (screen_init(&top->screen)) {
            screen_enter(&top->screen);
            status = top_run(top);
            screen_fini(&top->screen);
        }
        loop_fini(&top->loop);
        answer_clear(top->shown);
        answer_clear(top->coming);
    }
    free(top->shown);
    free(top->coming);
    holdfast_destroy(&top->h);
    return status;
}

int
command_top(struct settings *settings, char **argv)
{
    static const struct list list = {
        "TOP", top_columns, COUNT(top_columns), true, NULL};
    uint64_t limit = 0;
    uint64_t interval_ms = UINT64_MAX;
    const struct option options[] = {
        {.name = "n", .max = LIMIT_MAX, .number = &limit},
        {.name = "interval", .duration_ms = &interval_ms},
    };
    struct words words;
    char line[40];

    if (!words_take(settings, "top", options, COUNT(options), argv, &words))
        return words.status;
    if (interval_ms < INTERVAL_MIN_MS) {
        complain("--interval: %" PRIu64 "ms is less than %dms", interval_ms,
            INTERVAL_MIN_MS);
        return STATUS_USAGE;
    }
    if (settings->format == OUT_AUTOMATIC && isatty(STDOUT_FILENO)) {
        struct top top = {.interval_ms = interval_ms != UINT64_MAX
                                             ? interval_ms
                                             : INTERVAL_MS,
            .limit = limit > 0 ? limit : LIMIT_MAX};
        return top_live(settings, &top);
    }
    if (interval_ms != UINT64_MAX) {
        complain("--interval: with -o, or without a terminal, the list is "
                 "printed once");
        return STATUS_USAGE;
    }
    (void)snprintf(
        line, sizeof(line), "TOP limit=%" PRIu64, limit > 0 ? limit : 10);
    return list_print(settings, &list, line);
}
