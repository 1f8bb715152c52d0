/*
 * All of a terminal for a while, and what was there put back: the alternate
 * screen, drawn anew each time, by what every terminal of today knows of ANSI.
 */
#ifndef HOLDFAST_COMMAND_SCREEN_H
#define HOLDFAST_COMMAND_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

struct screen {
    int fd;               /* owned; stdout's terminal, which never blocks */
    bool on;              /* it shows what is ours */
    bool keys;            /* stdin is a terminal, whose modes we have changed */
    struct termios modes; /* of stdin before, if so */
    size_t rows;
    size_t columns;
    /* The picture that is made, or on its way. */
    char *bytes; /* owned */
    size_t len;
    size_t max;
    size_t sent;
    bool lacking; /* there was no memory for all of it */
};

/* stdout is a terminal. False after a complaint. */
bool screen_init(struct screen *screen);

/* Leaves it, and frees. */
void screen_fini(struct screen *screen);

/* Takes the terminal, unless this process is in its background, or has it. */
void screen_enter(struct screen *screen);

/* Puts the terminal back as it was; nothing happens where it is not taken. */
void screen_leave(struct screen *screen);

/* Looks how large it is. */
void screen_measure(struct screen *screen);

/* Begins a picture. False: there is no room for it now, as the terminal has not
 * taken the one before. */
bool screen_begin(struct screen *screen);

/* Adds a line to the picture, cut to the columns; a title is in reverse. */
void screen_line(struct screen *screen, const char *text, bool title);

/* Ends the picture, and sends as much of it as the terminal takes. */
void screen_show(struct screen *screen);

/* Whether a part of the picture is still to be sent. */
bool screen_waits(const struct screen *screen);

/* Sends more of it, as much as the terminal takes; never blocks. */
void screen_send(struct screen *screen);

/* The next key, 0: none; -1: the terminal is gone. stdin is readable. */
int screen_key(struct screen *screen);

#endif
