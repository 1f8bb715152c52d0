/*
 * The driver of the C library for the conformance suite, which says in its
 * README.md what the commands and results are. One thread serves stdin and the
 * connection; the calls that do not block are used throughout.
 *
 *     main.c     the loop, connect, close
 *     act.c      the other commands
 *     tell.c     events to results
 *     words.c    keys and durations of a command
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/driver/driver.h"
#include "proto/tls/holdfast_tls.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS 30000
#define LINE_BYTES 8192

static struct holdfast_tls *tls;

/* Decodes values in place; names stay encoded, since they may have a '='. The
 * library takes no NUL. */
static bool
words_decode(char **words)
{
    for (; *words != NULL; words++) {
        char *equals = strchr(*words, '=');
        if (strstr(*words, "%00") != NULL)
            return false;
        if (equals != NULL)
            (void)holdfast_decode(equals + 1, strlen(equals + 1));
    }
    return true;
}

static const struct holdfast_transport *
transport(char **words)
{
    struct holdfast_tls_options how = {
        .ca = driver_key(words, "ca"),
        .cert = driver_key(words, "cert"),
        .key = driver_key(words, "key"),
        .server_name = driver_key(words, "server_name"),
    };
    char why[256];

    if (how.ca == NULL)
        return NULL;
    tls = holdfast_tls_create(&how, why, sizeof(why));
    if (tls == NULL) {
        (void)fprintf(stderr, "driver: %s\n", why);
        exit(1);
    }
    return holdfast_tls_transport(tls);
}

static void
act_connect(char **words)
{
    struct holdfast_options options = {
        .address = words[1],
        .name = driver_key(words, "name"),
        .keep_ms = driver_duration(driver_key(words, "keep"), 0),
        .heartbeat_ms = driver_duration(
            driver_key(words, "heartbeat"), HOLDFAST_HEARTBEAT_MS),
        .user = driver_key(words, "user"),
        .secret = driver_key(words, "secret"),
        .transport = transport(words),
    };

    if (holdfast_create_with(&options, &driver_h) != HOLDFAST_SUCCESS) {
        puts("err USAGE");
        return;
    }
    enum holdfast_status status = holdfast_connect_wait(driver_h, CONNECT_MS);
    if (status == HOLDFAST_SUCCESS) {
        puts("connected");
        return;
    }
    (void)fprintf(stderr, "driver: %s\n", holdfast_reason(driver_h));
    const char *code = options.transport != NULL ? "TLS" : "GONE";
    printf("err %s\n", holdfast_is_refused(driver_h) ? "AUTH" : code);
}

static void
act_close(void)
{
    driver_over("CLOSED");
    holdfast_destroy(&driver_h);
    puts("closed");
}

static void
act(char *line)
{
    char *words[DRIVER_WORDS + 1];
    char *place;
    size_t count = 0;

    for (char *word = strtok_r(line, " ", &place);
         word != NULL && count < DRIVER_WORDS;
         word = strtok_r(NULL, " ", &place))
        words[count++] = word;
    words[count] = NULL;
    if (count == 0)
        return;
    if (!words_decode(words))
        printf("%s unsupported zero=1\n", count > 1 ? words[1] : "-");
    else if (strcmp(words[0], "connect") == 0 && count > 1)
        act_connect(words);
    else if (strcmp(words[0], "close") == 0)
        act_close();
    else if (count < 2 || !driver_act(words, count))
        printf("%s unsupported\n", count > 1 ? words[1] : "-");
}

/* Acts by the whole lines of stdin. False: its end. */
static bool
input_read(void)
{
    static char input[LINE_BYTES];
    static size_t input_len;
    char *end;

    ssize_t got =
        read(STDIN_FILENO, input + input_len, sizeof(input) - input_len);
    if (got <= 0)
        return false;
    input_len += (size_t)got;
    while ((end = memchr(input, '\n', input_len)) != NULL) {
        size_t len = (size_t)(end - input) + 1;
        *end = '\0';
        act(input);
        input_len -= len;
        memmove(input, input + len, input_len);
    }
    return true;
}

int
main(void)
{
    struct holdfast_event event;
    bool going = true;

    setvbuf(stdout, NULL, _IOLBF, 0);
    while (going) {
        struct pollfd entries[2] = {
            {.fd = STDIN_FILENO, .events = POLLIN}, {.fd = -1}};
        int timeout = -1;

        if (driver_h != NULL) {
            entries[1].fd = holdfast_fd(driver_h);
            entries[1].events = holdfast_events(driver_h);
            timeout = holdfast_timeout_ms(driver_h);
        }
        if (poll(entries, 2, timeout) <= 0)
            entries[0].revents = entries[1].revents = 0;
        if (driver_h != NULL)
            holdfast_process(driver_h, entries[1].revents);
        while (driver_h != NULL && holdfast_next(driver_h, &event))
            driver_tell(&event);
        if (entries[0].revents != 0)
            going = input_read();
    }
    holdfast_destroy(&driver_h);
    holdfast_tls_destroy(&tls);
    return 0;
}
