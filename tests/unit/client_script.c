/*
 * Scripts of a talk between a client and its broker: a line of short steps in
 * place of calls and assertions. test_client.h lists the steps.
 */
#define _GNU_SOURCE 1

#include "tests/unit/test_client.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define WORDS      6
#define STEP_BYTES 512
#define TEXT_BYTES 4096

/* The place in a script, for the messages of failures. */
struct place {
    const char *script;
    size_t step;
    char text[STEP_BYTES];
};

static void
expect(const struct place *place, const char *got, const char *wanted)
{
    ck_assert_msg(strcmp(got, wanted) == 0,
        "%s, step %zu, before \"%s\":\n%swas expected, not\n%s", place->script,
        place->step, place->text, wanted, got);
}

static uint64_t
number_of(const char *word)
{
    return word[0] == '\0' || strcmp(word, "FOREVER") == 0
               ? UINT64_MAX
               : strtoull(word, NULL, 10);
}

/* Sends or checks the lines of one kind. */
static void
lines_do(
    struct talk *talk, const struct place *place, char kind, const char *lines)
{
    if (kind == '<')
        talk_say(talk, lines);
    else if (kind == '>')
        expect(place, talk_sent(talk), lines);
    else if (kind == '=')
        expect(place, talk_told(talk), lines);
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

        ck_assert_ptr_nonnull(value);
        *value++ = '\0';
        if (strcmp(word[i], "wait") == 0)
            options.wait_ms = number_of(value);
        else if (strcmp(word[i], "lease") == 0)
            options.lease_ms = number_of(value);
        else
            options.owner = value;
    }
    for (char *rest = word[1], *name; (name = strsep(&rest, ",")) != NULL;)
        names[count++] = name;
    ck_assert_int_eq(
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
            h, word[1], owner, number_of(word[2]), &request);
    else if (strcmp(verb, "renew") == 0)
        status = holdfast_submit_renew(h, word[1], owner, number_of(word[2]),
            number_of(word[3]), &request);
    else if (strcmp(verb, "cancel") == 0)
        status = holdfast_submit_cancel(h, number_of(word[1]), &request);
    else if (strcmp(verb, "submit") == 0)
        status = holdfast_submit(h, word[1], &request);
    else if (strcmp(verb, "watch") == 0)
        status = holdfast_submit_watch(h, word[1], &request);
    else if (strcmp(verb, "unwatch") == 0)
        status = holdfast_submit_unwatch(h, word[1], &request);
    else
        return false;
    ck_assert_int_eq(status, HOLDFAST_SUCCESS);
    return true;
}

/* Time and deadlines; false: there is no such word. */
static bool
time_do(struct talk *talk, char **word)
{
    const char *verb = word[0];

    if (verb[0] == '+') {
        talk_pass(talk, number_of(verb + 1));
    } else if (verb[0] == '@') {
        talk->now_ms += number_of(verb + 1);
    } else if (strcmp(verb, "clock") == 0) {
        talk->now_ms = TALK_START + number_of(word[1]);
    } else if (strcmp(verb, "pass") == 0) {
        while (talk->now_ms < TALK_START + number_of(word[1]))
            talk_pass(talk, 500);
    } else if (strcmp(verb, "until") == 0) {
        uint64_t deadline = deadline_of(talk, word[1], number_of(word[2]));
        uint64_t ms = number_of(word[3]);

        if (strcmp(word[3], "some") == 0)
            ck_assert_uint_gt(deadline, 0);
        else
            ck_assert_uint_eq(deadline, ms == 0 ? 0 : TALK_START + ms);
    } else if (strcmp(verb, "timeout") == 0) {
        ck_assert_int_eq(
            holdfast_timeout_ms(talk->h), strtol(word[1], NULL, 10));
    } else if (strcmp(verb, "margin") == 0) {
        holdfast_set_margin(talk->h, number_of(word[1]));
    } else {
        return false;
    }
    return true;
}

static void
step_do(struct talk *talk, struct place *place, talk_step *more)
{
    char copy[STEP_BYTES];
    char none[] = "";
    char *word[WORDS + 1];
    char *rest = copy;

    (void)snprintf(copy, sizeof(copy), "%s", place->text);
    for (size_t i = 0; i <= WORDS; i++)
        word[i] = i < WORDS && rest != NULL ? strsep(&rest, " ") : none;
    const char *text = place->text + 3;
    if (strcmp(word[0], ">*") == 0)
        (void)talk_sent(talk);
    else if (strcmp(word[0], "=*") == 0)
        (void)talk_told(talk);
    else if (strcmp(word[0], ">~") == 0)
        ck_assert_ptr_nonnull(strstr(talk_sent(talk), text));
    else if (strcmp(word[0], "=~") == 0)
        ck_assert_ptr_nonnull(strstr(talk_told(talk), text));
    else if (strcmp(word[0], "shutdown") == 0)
        ck_assert_int_eq(shutdown(talk->broker, SHUT_RDWR), 0);
    else if (strcmp(word[0], "lock") == 0)
        lock_do(talk, word);
    else if (strcmp(word[0], ".") != 0 && !time_do(talk, word) &&
             (more == NULL || !more(word)) && !request_do(talk, word))
        ck_abort_msg("%s: no step \"%s\"", place->script, place->text);
}

void
talk_run(struct talk *talk, const struct talk_script *script, talk_step *more)
{
    struct place place = {.script = script->name};
    char lines[TEXT_BYTES] = "";
    char kind = '\0';

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
            lines_do(talk, &place, kind, lines);
            lines[0] = '\0';
            kind = line ? place.text[0] : '\0';
        }
        if (!line)
            step_do(talk, &place, more);
        else if (place.text[1] == ' ')
            (void)snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines),
                "%s\n", place.text + 2);
    }
    lines_do(talk, &place, kind, lines);
}
