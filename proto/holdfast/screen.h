/*
 * The alternate screen of a terminal, by ANSI sequences that every terminal
 * knows. Leaving it restores the terminal.
 */
#ifndef HOLDFAST_COMMAND_SCREEN_H
#define HOLDFAST_COMMAND_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

struct screen {
    int fd;               /* owned; stdout's terminal, without blocking */
    bool on;              /* the terminal shows the alternate screen */
    bool keys;            /* stdin is a terminal with changed modes */
    struct termios modes; /* of stdin before the change */
    size_t rows;
    size_t columns;
    /* The bytes of the picture. */
    char *bytes; /* owned */
    size_t len;
    size_t max;
    size_t sent;
    bool lacking; /* there was no memory for the whole picture */
};

/* Opens stdout, which is a terminal. False after a complaint. */
bool screen_init(struct screen *screen);

/* Leaves the alternate screen, and frees. */
void screen_fini(struct screen *screen);

/* Enters the alternate screen, unless this process is in the background. A
 * second call does nothing. */
void screen_enter(struct screen *screen);

/* Restores the terminal. A second call does nothing. */
void screen_leave(struct screen *screen);

/* Reads the size of the terminal. */
void screen_measure(struct screen *screen);

/* Begins a picture. False: the terminal has not taken the last one yet. */
bool screen_begin(struct screen *screen);

/* The bytes of the characters of UTF-8 that fit; *columns loses as many. */
size_t screen_cut(const char *text, size_t *columns);

/* Adds a line, cut to the columns of the screen. A title is in reverse. */
void screen_line(struct screen *screen, const char *text, bool title);

/* Ends the picture, and sends as much of it as the terminal takes. */
void screen_show(struct screen *screen);

/* Whether a part of the picture is not sent yet. */
bool screen_waits(const struct screen *screen);

/* Sends as much of the picture as the terminal takes; never blocks. */
void screen_send(struct screen *screen);

/* The next key of the readable stdin; 0: none; -1: the terminal is gone. */
int screen_key(struct screen *screen);

#endif
