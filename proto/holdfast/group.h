/*
 * A process group that is not our own, and its end.
 */
#ifndef HOLDFAST_COMMAND_GROUP_H
#define HOLDFAST_COMMAND_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Kills the group and waits until nothing of it runs, for some seconds at most.
 * False: something may run still.
 */
bool group_bury(pid_t group);

#endif
