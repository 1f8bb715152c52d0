/*
 * Lines of the broker to what they do.
 */
#ifndef HOLDFAST_CLIENT_DISPATCH_H
#define HOLDFAST_CLIENT_DISPATCH_H

#include "proto/client/client.h"

/*
 * One line without its LF; it is copied. Afterwards the connection may be
 * closed, or another one: see h->connection.
 */
void holdfast_dispatch(struct holdfast *h, const char *line, size_t len);

#endif
