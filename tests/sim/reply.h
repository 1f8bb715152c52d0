/*
 * Replies of a Redis, from bytes to the tree that the store reads: what hiredis
 * does for io.
 */
#ifndef HOLDFAST_TESTS_SIM_REPLY_H
#define HOLDFAST_TESTS_SIM_REPLY_H

#include "daemon/op/resp.h"

/*
 * The first reply in `bytes`: how long it is, and its tree in *reply, valid
 * until the next call; 0: not all of it is there. Aborts where it is no RESP2.
 */
size_t reply_parse(const char *bytes, size_t len, const struct resp **reply);

#endif
