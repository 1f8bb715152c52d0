/*
 * A connection for the commands that ask one thing and end. No second try: who
 * asks wants to know now.
 */
#include "proto/holdfast/command.h"
#include "proto/holdfast/escape.h"

#include <stdio.h>

#define CONNECT_MS 5000

struct holdfast *
connect_broker(const struct settings *settings)
{
    struct holdfast *h;
    char why[256];

    enum holdfast_status status = holdfast_create(settings->address, &h);
    if (status != HOLDFAST_SUCCESS) {
        complain("%s: %s", settings->address, holdfast_status_text(status));
        return NULL;
    }
    status = holdfast_connect_wait(h, CONNECT_MS);
    if (status == HOLDFAST_SUCCESS)
        return h;
    complain("no broker at %s: %s", settings->address,
        status == HOLDFAST_NOT_CONNECTED
            ? escape_text(holdfast_reason(h), why, sizeof(why))
            : holdfast_status_text(status));
    holdfast_destroy(&h);
    return NULL;
}

void
complain_refused(const char *what, const struct holdfast_event *event)
{
    char code[64];
    char text[512];

    complain("%s: %s%s%s", what, escape_text(event->word, code, sizeof(code)),
        event->text[0] != '\0' ? ": " : "",
        escape_text(event->text, text, sizeof(text)));
}
