/*
 * Sockets from the service manager, by LISTEN_PID, LISTEN_FDS and
 * LISTEN_FDNAMES; see sd_listen_fds(3).
 */
#ifndef HOLDFAST_ACTIVATION_H
#define HOLDFAST_ACTIVATION_H

#include "daemon/io/loop.h"

#define ACTIVATION_MAX 64

struct activation {
    struct loop_socket sockets[ACTIVATION_MAX];
    uint32_t count;
    char names[ACTIVATION_MAX][256]; /* by FileDescriptorName= */
};

/*
 * Takes the passed sockets. Children get neither sockets nor variables. False:
 * `error` has a line about the variables.
 */
bool activation_take(
    struct activation *activation, char *error, size_t error_bytes);

#endif
