/*
 * A connection for the commands that send one request. They do not try again:
 * the user wants to know at once.
 */
#include "proto/holdfast/command.h"
#include "proto/holdfast/escape.h"

#include <stdio.h>
#include <string.h>

#define CONNECT_MS 5000

#define ADDRESS_USUAL     "127.0.0.1:4653"
#define ADDRESS_USUAL_TLS "127.0.0.1:4655"

const char *
connect_address(const struct settings *settings)
{
    struct holdfast_options options = {.transport = NULL};

    if (settings->address != NULL)
        return settings->address;
    return tls_take(settings, &options) && options.transport != NULL
               ? ADDRESS_USUAL_TLS
               : ADDRESS_USUAL;
}

bool
connect_options(
    const struct settings *settings, struct holdfast_options *options)
{
    if (!secret_take(settings, options) || !tls_take(settings, options))
        return false;
    options->address = connect_address(settings);
    return true;
}

struct holdfast *
connect_kept(const struct settings *settings, uint64_t keep_ms)
{
    struct holdfast_options options = {.keep_ms = keep_ms};
    struct holdfast *h;
    char why[256];

    if (!connect_options(settings, &options))
        return NULL;
    enum holdfast_status status = holdfast_create_with(&options, &h);
    if (status != HOLDFAST_SUCCESS) {
        complain("%s: %s", options.address, holdfast_status_text(status));
        return NULL;
    }
    status = holdfast_connect_wait(h, CONNECT_MS);
    if (status == HOLDFAST_SUCCESS)
        return h;
    complain("%s%s: %s%s", holdfast_is_refused(h) ? "" : "no broker at ",
        options.address, broker_trouble(h, status, why, sizeof(why)),
        status == HOLDFAST_TIMED_OUT ? tls_hint(settings) : "");
    holdfast_destroy(&h);
    return NULL;
}

struct holdfast *
connect_broker(const struct settings *settings)
{
    return connect_kept(settings, 0);
}

const char *
broker_trouble(const struct holdfast *h, enum holdfast_status status,
    char *text, size_t text_bytes)
{
    return escape_text(status == HOLDFAST_NOT_CONNECTED
                           ? holdfast_reason(h)
                           : holdfast_status_text(status),
        text, text_bytes);
}

void
complain_refused(
    const char *what, const struct holdfast_event *event, const char *more)
{
    char code[64];
    char text[1024];

    complain("%s: %s%s%s%s", what, escape_text(event->word, code, sizeof(code)),
        event->text[0] != '\0' ? ": " : "",
        escape_text(event->text, text, sizeof(text)), more);
}

bool
key_check(const char *command, const char *key)
{
    size_t len = strlen(key);

    if (len > 0 && len <= HOLDFAST_NAME_MAX)
        return true;
    complain("%s: a KEY of %zu bytes; it must have 1 to %d", command, len,
        HOLDFAST_NAME_MAX);
    return false;
}

bool
key_encode(const char *command, const char *key, char word[KEY_WORD_BYTES])
{
    return key_check(command, key) &&
           holdfast_encode(key, strlen(key), word, KEY_WORD_BYTES) > 0;
}
