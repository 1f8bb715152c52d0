/*
 * The terminal is opened again, to write without blocking: a stopped terminal
 * (Ctrl-S, a line that hangs) must not delay signals. A flag on stdout itself
 * would be the shell's too. loop_init() has blocked SIGTTOU.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/screen.h"

#include "daemon/base/assert.h"
#include "proto/holdfast/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ROWS_USUAL    24
#define COLUMNS_USUAL 80
#define SIZE_MAX_CELL 1000
#define LEAVE_MS      200 /* for the last output to the terminal */

/* The alternate screen, no cursor, no line wrap. */
#define ENTER "\033[?1049h\033[?25l\033[?7l\033[2J"
#define LEAVE "\033[0m\033[?7h\033[?25h\033[?1049l"

bool
screen_init(struct screen *screen)
{
    *screen = (struct screen){.fd = -1};
    screen->fd =
        open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (screen->fd < 0) /* it is another user's */
        screen->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (screen->fd < 0) {
        complain("cannot write to the terminal: %s", strerror(errno));
        return false;
    }
    screen_measure(screen);
    return true;
}

void
screen_fini(struct screen *screen)
{
    screen_leave(screen);
    (void)close(screen->fd);
    free(screen->bytes);
}

void
screen_measure(struct screen *screen)
{
    struct winsize size;

    screen->rows = ROWS_USUAL;
    screen->columns = COLUMNS_USUAL;
    if (ioctl(screen->fd, TIOCGWINSZ, &size) != 0)
        return;
    if (size.ws_row > 0)
        screen->rows =
            size.ws_row < SIZE_MAX_CELL ? size.ws_row : SIZE_MAX_CELL;
    if (size.ws_col > 0)
        screen->columns =
            size.ws_col < SIZE_MAX_CELL ? size.ws_col : SIZE_MAX_CELL;
}

/* --- bytes ---------------------------------------------------------------- */

static void
bytes_add(struct screen *screen, const char *bytes, size_t len)
{
    if (screen->len + len > screen->max) {
        size_t max = 2 * (screen->len + len) + 4096;
        char *grown = realloc(screen->bytes, max);

        if (grown == NULL) {
            screen->lacking = true;
            return;
        }
        screen->bytes = grown;
        screen->max = max;
    }
    memcpy(screen->bytes + screen->len, bytes, len);
    screen->len += len;
}

static void
text_add(struct screen *screen, const char *text)
{
    bytes_add(screen, text, strlen(text));
}

bool
screen_waits(const struct screen *screen)
{
    return screen->sent < screen->len;
}

void
screen_send(struct screen *screen)
{
    require(screen->sent <= screen->len && screen->len <= screen->max);
    while (screen_waits(screen)) {
        ssize_t done = write(screen->fd, screen->bytes + screen->sent,
            screen->len - screen->sent);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return;
        screen->sent += (size_t)done;
    }
}

/* Sends the whole picture, unless the terminal takes none for LEAVE_MS. */
static void
send_all(struct screen *screen)
{
    struct pollfd entry = {.fd = screen->fd, .events = POLLOUT};

    screen_send(screen);
    while (screen_waits(screen) && poll(&entry, 1, LEAVE_MS) > 0 &&
           (entry.revents & POLLOUT) != 0)
        screen_send(screen);
}

/* --- enter and leave ------------------------------------------------------ */

static void
keys_take(struct screen *screen)
{
    struct termios modes;

    if (tcgetpgrp(STDIN_FILENO) != getpgrp() ||
        tcgetattr(STDIN_FILENO, &screen->modes) != 0)
        return;
    modes = screen->modes;
    modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    modes.c_cc[VMIN] = 1;
    modes.c_cc[VTIME] = 0;
    /* Not TCSADRAIN, which waits for output that may be stopped. */
    screen->keys = tcsetattr(STDIN_FILENO, TCSANOW, &modes) == 0;
}

void
screen_enter(struct screen *screen)
{
    pid_t foreground = tcgetpgrp(screen->fd);

    if (screen->on || (foreground >= 0 && foreground != getpgrp()))
        return;
    screen->on = true;
    screen->len = screen->sent = 0;
    keys_take(screen);
    screen_measure(screen);
    text_add(screen, ENTER);
    screen_send(screen);
}

void
screen_leave(struct screen *screen)
{
    if (!screen->on)
        return;
    screen->on = false;
    send_all(screen); /* half a sequence would break the next one */
    screen->len = screen->sent = 0;
    text_add(screen, LEAVE);
    send_all(screen);
    screen->len = screen->sent = 0;
    if (screen->keys && tcgetpgrp(STDIN_FILENO) == getpgrp())
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &screen->modes);
    screen->keys = false;
}

/* --- pictures ------------------------------------------------------------- */

bool
screen_begin(struct screen *screen)
{
    screen_send(screen);
    if (!screen->on || screen_waits(screen))
        return false;
    screen->len = screen->sent = 0;
    screen->lacking = false;
    text_add(screen, "\033[H");
    return true;
}

size_t
screen_cut(const char *text, size_t *columns)
{
    size_t at = 0;

    for (; text[at] != '\0'; at++) {
        if (((unsigned char)text[at] & 0xc0) == 0x80)
            continue;
        if (*columns == 0)
            break;
        (*columns)--;
    }
    return at;
}

void
screen_line(struct screen *screen, const char *text, bool title)
{
    size_t columns = screen->columns;
    size_t len = screen_cut(text, &columns);
    bool cut = text[len] != '\0';

    columns = screen->columns - 1;
    if (cut)
        len = screen_cut(text, &columns);
    if (screen->len > strlen("\033[H"))
        text_add(screen, "\r\n");
    text_add(screen, title ? "\033[K\033[7m" : "\033[K");
    bytes_add(screen, text, len);
    text_add(screen, cut ? "~" : "");
    text_add(screen, title ? "\033[0m" : "");
}

void
screen_show(struct screen *screen)
{
    text_add(screen, "\033[J");
    if (screen->lacking)
        screen->len = 0;
    screen_send(screen);
}

int
screen_key(struct screen *screen)
{
    unsigned char key;

    if (!screen->keys)
        return 0;
    ssize_t done = read(STDIN_FILENO, &key, 1);
    if (done < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    return done == 1 ? key : -1;
}
