/*
 * loop_init() has blocked SIGTTOU. So tcsetpgrp() and tcsetattr() work from the
 * background too.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/child.h"

#include <fcntl.h>
#include <unistd.h>

void
terminal_init(struct terminal *terminal)
{
    *terminal = (struct terminal){.present = false};
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return;
    (void)close(fd);
    terminal->present = true;
    /* It fails if stdin is not this terminal. */
    terminal->input = tcgetpgrp(STDIN_FILENO) >= 0;
    if (terminal->input)
        (void)tcgetattr(STDIN_FILENO, &terminal->modes);
}

static bool
foreground_pass(const struct terminal *terminal, pid_t from, pid_t to)
{
    return terminal->input && tcgetpgrp(STDIN_FILENO) == from &&
           tcsetpgrp(STDIN_FILENO, to) == 0;
}

void
terminal_give(const struct terminal *terminal, pid_t group)
{
    (void)foreground_pass(terminal, getpgrp(), group);
}

bool
terminal_take(const struct terminal *terminal, pid_t group)
{
    return foreground_pass(terminal, group, getpgrp());
}

void
terminal_restore(const struct terminal *terminal)
{
    if (terminal->input && tcgetpgrp(STDIN_FILENO) == getpgrp())
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal->modes);
}
