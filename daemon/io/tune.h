/*
 * Changes of what finds out about silent clients.
 */
#ifndef HOLDFAST_IO_TUNE_H
#define HOLDFAST_IO_TUNE_H

#include "daemon/io/state.h"

/* Takes the values of new settings, for clients of now and of later. */
void tune_configure(struct loop *loop, const struct loop_settings *settings);

/* loop->tune_timer: changes some of the clients' sockets. */
void tune_timer(evutil_socket_t fd, short what, void *arg);

#endif
