/*
 * Scripts at a node. See script.c.
 */
#ifndef HOLDFAST_STORE_NODE_SCRIPT_H
#define HOLDFAST_STORE_NODE_SCRIPT_H

#include "daemon/store/model/state.h"

/* The header of a script's call that is sent now. */
struct record_header script_header(
    const struct store *store, const struct conn *conn, uint64_t now_us);

/* Sends SCRIPT LOAD for that script. Without room it sends nothing. */
void script_load(
    struct store *store, struct conn *conn, enum script_id id, uint64_t now_us);

/* Loads the scripts that locks need, unless that is under way. */
void scripts_load(struct store *store, struct conn *conn, uint64_t now_us);

/* Asks the node for each command that scripts use, with a key of the probe's
 * own. Without a slot or room it sends nothing. */
void script_probe(struct store *store, struct conn *conn, uint64_t now_us);

/* Takes the next answer to script_probe(). After the last one, missing commands
 * are a fault. */
void script_probed(struct store *store, struct conn *conn, uint64_t now_us,
    const struct resp *reply);

/* The node refuses what grants, with that error. It is a fault of the
 * connection, and is logged. */
void node_refuses(
    struct store *store, struct conn *conn, uint64_t now_us, struct text error);

#endif
