/*
 * The effects of a line of the broker.
 */
#ifndef HOLDFAST_CLIENT_DISPATCH_H
#define HOLDFAST_CLIENT_DISPATCH_H

#include "proto/client/client.h"

/* Handles one line without its LF, which is copied. It may close or replace the
 * connection: see h->connection. */
void holdfast_dispatch(struct holdfast *h, const char *line, size_t len);

#endif
