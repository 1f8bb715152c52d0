/*
 * The command raw: copies the input to the broker and the replies to the
 * output, as `nc -N` does. Address and exit status are as for other commands.
 *
 * The end of the input is sent on as a FIN. The broker then answers what is
 * outstanding, and says BYE. Without BYE the connection was lost.
 *
 * This command handles no signal, so no call fails with EINTR.
 */
#define _GNU_SOURCE 1

#include "daemon/base/assert.h"
#include "proto/clients/c/client.h"
#include "proto/clients/c/link.h"
#include "proto/holdfast/options.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS 5000

struct raw {
    struct holdfast *h; /* ref */
    char out[16384];
    size_t start; /* out[start .. end] is to be sent */
    size_t end;
    bool input_over;
    bool fin_sent;
    bool masked;    /* stdout is a terminal: control characters become '?' */
    size_t line_at; /* bytes of the present line so far */
    bool line_bye;  /* the present line begins like BYE, so far */
    bool bye;       /* the last whole line was BYE */
};

/* Connects, up to the end of the handshake. False after a complaint. */
static bool
raw_connect(const struct settings *settings, struct holdfast *h)
{
    uint64_t end = holdfast_now_ms(h) + CONNECT_MS;
    struct holdfast_options options = {.transport = NULL};

    const char *address = connect_address(settings);
    if (!tls_take(settings, &options))
        return false;
    h->transport = options.transport;
    enum holdfast_status status = holdfast_link_resolve(h, address);
    if (status != HOLDFAST_SUCCESS) {
        complain("%s: %s", address, holdfast_status_text(status));
        return false;
    }
    holdfast_link_connect(h);
    while (h->link == LINK_CONNECTING || h->link == LINK_SHAKING) {
        struct pollfd entry = {.fd = h->fd, .events = holdfast_events(h)};
        uint64_t now = holdfast_now_ms(h);

        if (now >= end) {
            holdfast_link_close(h, strerror(ETIMEDOUT));
            break;
        }
        int left_ms = holdfast_timeout_ms(h); /* of this address */
        if ((uint64_t)left_ms > end - now)
            left_ms = (int)(end - now);
        if (poll(&entry, 1, left_ms) > 0)
            holdfast_link_connected(h, entry.revents);
        holdfast_link_expire(h, holdfast_now_ms(h));
    }
    if (h->link == LINK_CLOSED) {
        complain("no broker at %s: %s", address, holdfast_reason(h));
        return false;
    }
    h->link = LINK_OPEN; /* the greeting goes to the output as it is */
    return true;
}

/* Notes whether the last line is BYE, and masks control characters. */
static void
raw_follow(struct raw *raw, char *bytes, size_t len)
{
    static const char bye[] = "* BYE";

    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n') {
            raw->bye = raw->line_bye && raw->line_at >= sizeof(bye) - 1;
            raw->line_at = 0;
            continue;
        }
        if (raw->line_at == 0)
            raw->line_bye = true;
        if (raw->line_at < sizeof(bye) - 1 && bytes[i] != bye[raw->line_at])
            raw->line_bye = false;
        raw->line_at++;
        if (raw->masked && ((unsigned char)bytes[i] < 0x20 || bytes[i] == 0x7f))
            bytes[i] = '?';
    }
}

/* False after a complaint. */
static bool
output_write(const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t written = write(STDOUT_FILENO, bytes, len);

        if (written < 0) {
            complain("cannot write: %s", strerror(errno));
            return false;
        }
        bytes += written;
        len -= (size_t)written;
    }
    return true;
}

/* False: the command ends with *status. */
static bool
raw_receive(struct raw *raw, int *status)
{
    char bytes[16384];
    char why[CLIENT_WHY_BYTES];
    size_t got = 0;

    *status = STATUS_TROUBLE;
    switch (holdfast_link_receive(raw->h, bytes, sizeof(bytes), &got, why)) {
    case HOLDFAST_MOVED_DONE:
        raw_follow(raw, bytes, got);
        return output_write(bytes, got);
    case HOLDFAST_MOVED_WANTS_READ:
    case HOLDFAST_MOVED_WANTS_WRITE:
        return true;
    case HOLDFAST_MOVED_BROKEN:
        complain("the connection broke: %s", why);
        return false;
    case HOLDFAST_MOVED_END:
        break;
    }
    if (raw->bye)
        *status = STATUS_FINE;
    else
        complain("the broker closed without BYE");
    return false;
}

static void
raw_send(struct raw *raw)
{
    char why[CLIENT_WHY_BYTES];

    while (raw->start < raw->end) {
        size_t sent = 0;
        enum holdfast_moved moved = holdfast_link_send(
            raw->h, raw->out + raw->start, raw->end - raw->start, &sent, why);

        if (moved == HOLDFAST_MOVED_BROKEN) {
            /* Lines that the broker sent before are still to be read. */
            raw->input_over = true;
            raw->fin_sent = true;
            raw->end = raw->start;
        }
        if (moved != HOLDFAST_MOVED_DONE)
            return;
        raw->start += sent;
    }
    raw->start = 0;
    raw->end = 0;
    if (raw->input_over && !raw->fin_sent) {
        enum holdfast_moved moved = holdfast_link_finish(raw->h);

        raw->fin_sent =
            moved == HOLDFAST_MOVED_DONE || moved == HOLDFAST_MOVED_BROKEN;
    }
}

static void
raw_read_input(struct raw *raw)
{
    require(raw->start == 0 && raw->end == 0); /* all output is sent */
    ssize_t got = read(STDIN_FILENO, raw->out, sizeof(raw->out));
    if (got > 0)
        raw->end = (size_t)got;
    else if (got == 0 || errno != EAGAIN)
        raw->input_over = true;
}

/* Copies both ways until the broker closes; the exit status. */
static int
raw_copy(struct raw *raw)
{
    int status = STATUS_TROUBLE;

    for (;;) {
        bool sending = raw->start < raw->end;
        bool output = sending || (raw->input_over && !raw->fin_sent);
        bool pending = holdfast_link_pending(raw->h);
        struct pollfd entries[2] = {
            {.fd = holdfast_fd(raw->h),
                .events = holdfast_link_events(raw->h, true, output)},
            {.fd = sending || raw->input_over ? -1 : STDIN_FILENO,
                .events = POLLIN},
        };

        (void)poll(entries, 2, pending ? 0 : -1);
        if ((pending || entries[0].revents != 0) && !raw_receive(raw, &status))
            return status;
        if (entries[1].revents != 0)
            raw_read_input(raw);
        if (raw->start < raw->end || raw->input_over)
            raw_send(raw);
    }
}

int
command_raw(struct settings *settings, char **argv)
{
    struct raw raw = {.masked = isatty(STDOUT_FILENO) != 0};
    struct words words;
    int status = STATUS_TROUBLE;

    if (!words_take(settings, "raw", NULL, 0, argv, &words))
        return words.status;
    struct holdfast *h = holdfast_make();
    if (h == NULL) {
        complain("out of memory");
        return STATUS_TROUBLE;
    }
    if (raw_connect(settings, h)) {
        raw.h = h;
        status = raw_copy(&raw);
    }
    holdfast_destroy(&h);
    return status;
}
