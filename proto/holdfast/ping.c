/*
 * The command ping: the time of a round trip to a broker.
 */
#include "proto/holdfast/escape.h"
#include "proto/holdfast/options.h"

#include <inttypes.h>
#include <stdio.h>

#define PING_MS 5000

static int
ping_print(const struct settings *settings, struct holdfast *h)
{
    const char *address = connect_address(settings);
    uint64_t microseconds = 0;
    char text[256];

    enum holdfast_status status = holdfast_ping(h, PING_MS, &microseconds);
    if (status != HOLDFAST_SUCCESS) {
        complain(
            "%s: %s", address, broker_trouble(h, status, text, sizeof(text)));
        return STATUS_TROUBLE;
    }
    (void)printf("%s %s time_ms=%" PRIu64 ".%03" PRIu64 "\n", address,
        escape_text(holdfast_server(h), text, sizeof(text)),
        microseconds / 1000, microseconds % 1000);
    return STATUS_FINE;
}

int
command_ping(struct settings *settings, char **argv)
{
    struct words words;

    if (!words_take(settings, "ping", NULL, 0, argv, &words))
        return words.status;
    struct holdfast *h = connect_broker(settings);
    if (h == NULL)
        return STATUS_TROUBLE;
    int status = ping_print(settings, h);
    holdfast_destroy(&h);
    return status;
}
