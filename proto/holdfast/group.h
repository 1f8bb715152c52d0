/*
 * Killing a process group of which the caller is no parent.
 */
#ifndef HOLDFAST_COMMAND_GROUP_H
#define HOLDFAST_COMMAND_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

/* Kills the group and waits some seconds until it is dead. False: a process of
 * it may still run. */
bool group_bury(pid_t group);

#endif
