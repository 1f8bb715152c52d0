/*
 * Scripts of a talk between a client and its broker: a line of short steps in
 * place of calls and assertions. test_client.h lists the steps.
 */
#define _GNU_SOURCE 1

#include "tests/unit/test_client.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define WORDS      6
#define STEP_BYTES 512
#define TEXT_BYTES 4096

/* The place in a script, for the messages of failures. */
static struct {
    const char *script;
    size_t step;
    char text[STEP_BYTES];
} place;

static void
expect(const char *got, const char *wanted)
{
    ck_assert_msg(strcmp(got, wanted) == 0,
        "%s, step %zu, before \"%s\":\n%swas expected, not\n%s", place.script,
        place.step, place.text, wanted, got);
}

static void
number_expect(int64_t got, int64_t wanted)
{
    ck_assert_msg(got == wanted,
        "%s, step %zu, \"%s\": %" PRId64 " is not %" PRId64, place.script,
        place.step, place.text, got, wanted);
}

void
talk_check(bool good)
{
    ck_assert_msg(good, "%s, step %zu, \"%s\": this is not so", place.script,
        place.step, place.text);
}

uint64_t
talk_number(const char *word)
{
    char *end;

    if (strcmp(word, "FOREVER") == 0)
        return UINT64_MAX;
    uint64_t number = strtoull(word, &end, 10);
    if (end == word || *end != '\0')
        ck_abort_msg("%s, step %zu, \"%s\": \"%s\" is no number", place.script,
            place.step, place.text, word);
    return number;
}

/* `>~ TEXT` and `=~ TEXT`: the text is a part of `got`. */
static void
part_expect(const char *got)
{
    const char *part = place.text + 2;

    talk_check(part[0] == ' ' && part[1] != '\0');
    ck_assert_msg(strstr(got, part + 1) != NULL,
        "%s, step %zu, \"%s\": there is only\n%s", place.script, place.step,
        place.text, got);
}

/* Sends or checks the lines of one kind. */
static void
lines_do(struct talk *talk, char kind, const char *lines)
{
    if (kind == '<')
        talk_say(talk, lines);
    else if (kind == '>')
        expect(talk_sent(talk), lines);
    else if (kind == '=')
        expect(talk_told(talk), lines);
}

static void
lock_do(struct talk *talk, char **word)
{
    struct holdfast_lock_options options = HOLDFAST_LOCK_DEFAULTS;
    const char *names[HOLDFAST_NAMES_MAX];
    size_t count = 0;
    uint64_t request;

    for (size_t i = 2; word[i][0] != '\0'; i++) {
        char *value = strchr(word[i], '=');

        talk_check(value != NULL);
        *value++ = '\0';
        if (strcmp(word[i], "wait") == 0)
            options.wait_ms = talk_number(value);
        else if (strcmp(word[i], "lease") == 0)
            options.lease_ms = talk_number(value);
        else if (strcmp(word[i], "owner") == 0)
            options.owner = value;
        else if (strcmp(word[i], "wanted") == 0)
            options.wanted = true;
        else
            talk_check(false);
    }
    for (char *rest = word[1], *name; (name = strsep(&rest, ",")) != NULL;)
        names[count++] = name;
    number_expect(
        holdfast_submit_lock_all(talk->h, names, count, &options, &request), 0);
}

/* Cuts "NAME/OWNER"; NULL: the default owner. */
static const char *
owner_cut(char *name)
{
    char *slash = strchr(name, '/');

    if (slash != NULL)
        *slash++ = '\0';
    return slash;
}

static uint64_t
deadline_of(struct talk *talk, char *name, uint64_t fence)
{
    const char *owner = owner_cut(name);
    struct holdfast_hold hold = {.fence = fence};

    (void)snprintf(hold.name, sizeof(hold.name), "%s", name);
    (void)snprintf(
        hold.owner, sizeof(hold.owner), "%s", owner != NULL ? owner : "");
    return holdfast_deadline_ms(talk->h, &hold);
}

/* A request of the program; false: there is no such word. */
static bool
request_do(struct talk *talk, char **word)
{
    struct holdfast *h = talk->h;
    enum holdfast_status status = HOLDFAST_BAD_ARGUMENT;
    const char *verb = word[0];
    const char *owner = owner_cut(word[1]);
    uint64_t request;

    if (strcmp(verb, "unlock") == 0)
        status = holdfast_submit_unlock(
            h, word[1], owner, talk_number(word[2]), &request);
    else if (strcmp(verb, "part") == 0)
        status = holdfast_submit_unlock_part(h, word[1], owner,
            talk_number(word[2]), talk_number(word[3]), &request);
    else if (strcmp(verb, "renew") == 0)
        status = holdfast_submit_renew(h, word[1], owner, talk_number(word[2]),
            talk_number(word[3]), &request);
    else if (strcmp(verb, "note") == 0)
        status = holdfast_submit_note(
            h, word[1], owner, talk_number(word[2]), word[3], &request);
    else if (strcmp(verb, "cancel") == 0)
        status = holdfast_submit_cancel(h, talk_number(word[1]), &request);
    else if (strcmp(verb, "submit") == 0)
        status = holdfast_submit(h, word[1], &request);
    else if (strcmp(verb, "await") == 0)
        status =
            holdfast_submit_await(h, word[1], talk_number(word[2]), &request);
    else if (strcmp(verb, "watch") == 0)
        status = holdfast_submit_watch(h, word[1], &request);
    else if (strcmp(verb, "members") == 0)
        status = holdfast_submit_watch_members(h, word[1], &request);
    else if (strcmp(verb, "unwatch") == 0)
        status = holdfast_submit_unwatch(h, word[1], &request);
    else
        return false;
    number_expect(status, HOLDFAST_SUCCESS);
    return true;
}

/* Time and deadlines; false: there is no such word. */
static bool
time_do(struct talk *talk, char **word)
{
    const char *verb = word[0];

    if (verb[0] == '+') {
        talk_pass(talk, talk_number(verb + 1));
    } else if (verb[0] == '@') {
        talk->now_ms += talk_number(verb + 1);
    } else if (strcmp(verb, "clock") == 0) {
        talk->now_ms = TALK_START + talk_number(word[1]);
    } else if (strcmp(verb, "pass") == 0) {
        uint64_t end = TALK_START + talk_number(word[1]);

        talk_check(talk->now_ms < end);
        while (talk->now_ms < end)
            talk_pass(talk, 500);
    } else if (strcmp(verb, "until") == 0) {
        uint64_t deadline = deadline_of(talk, word[1], talk_number(word[2]));

        if (strcmp(word[3], "some") == 0)
            talk_check(deadline > 0);
        else
            number_expect(deadline > 0 ? (int64_t)(deadline - TALK_START) : 0,
                (int64_t)talk_number(word[3]));
    } else if (strcmp(verb, "timeout") == 0) {
        number_expect(
            holdfast_timeout_ms(talk->h), (int64_t)talk_number(word[1]));
    } else if (strcmp(verb, "margin") == 0) {
        holdfast_set_margin(talk->h, talk_number(word[1]));
    } else {
        return false;
    }
    return true;
}

static void
step_do(struct talk *talk, talk_step *more)
{
    char copy[STEP_BYTES];
    char none[] = "";
    char *word[WORDS + 1];
    char *rest = copy;

    (void)snprintf(copy, sizeof(copy), "%s", place.text);
    for (size_t i = 0; i <= WORDS; i++)
        word[i] = i < WORDS && rest != NULL ? strsep(&rest, " ") : none;
    talk_check(rest == NULL || place.text[1] == '~');
    if (strcmp(word[0], ">*") == 0)
        (void)talk_sent(talk);
    else if (strcmp(word[0], "=*") == 0)
        (void)talk_told(talk);
    else if (strcmp(word[0], ">~") == 0)
        part_expect(talk_sent(talk));
    else if (strcmp(word[0], "=~") == 0)
        part_expect(talk_told(talk));
    else if (strcmp(word[0], "shutdown") == 0)
        number_expect(shutdown(talk->broker, SHUT_RDWR), 0);
    else if (strcmp(word[0], "lock") == 0)
        lock_do(talk, word);
    else if (strcmp(word[0], ".") != 0 && !time_do(talk, word) &&
             (more == NULL || !more(word)) && !request_do(talk, word))
        ck_abort_msg("%s: no step \"%s\"", place.script, place.text);
}

void
talk_run(struct talk *talk, const struct talk_script *script, talk_step *more)
{
    char lines[TEXT_BYTES] = "";
    char kind = '\0';

    place.script = script->name;
    place.step = 0;
    for (const char *at = script->steps; *at != '\0'; place.step++) {
        const char *bar = strstr(at, " | ");
        size_t len = strcspn(at, "\n");
        bool last = bar == NULL || (size_t)(bar - at) > len;

        len = last ? len : (size_t)(bar - at);
        ck_assert_uint_lt(len, sizeof(place.text));
        memcpy(place.text, at, len);
        place.text[len] = '\0';
        at += len + (last ? 1 : 3);
        bool line = strchr("<>=", place.text[0]) != NULL &&
                    (place.text[1] == ' ' || place.text[1] == '\0');
        if (!line || place.text[0] != kind) {
            lines_do(talk, kind, lines);
            lines[0] = '\0';
            kind = line ? place.text[0] : '\0';
        }
        if (!line)
            step_do(talk, more);
        else if (place.text[1] == ' ')
            (void)snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines),
                "%s\n", place.text + 2);
    }
    lines_do(talk, kind, lines);
}
