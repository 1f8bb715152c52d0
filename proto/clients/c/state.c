/*
 * Functions for every file of the library: the time, random numbers, and the
 * state of the session. They call no other file.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

uint64_t
holdfast_clock(void *context)
{
    struct timespec now;

    (void)context;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t
holdfast_now_ms(const struct holdfast *h)
{
    return h->clock(h->clock_context);
}

/* splitmix64. */
uint64_t
holdfast_random(struct holdfast *h, uint64_t below)
{
    uint64_t value = h->random += 0x9e3779b97f4a7c15u;

    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return below == 0 ? 0 : (value ^ (value >> 31)) % below;
}

bool
holdfast_session_known(const struct holdfast *h)
{
    return h->keep_ms > 0 && !h->final && h->session[0] != '\0';
}

bool
holdfast_session_serves(const struct holdfast *h)
{
    if (h->unknown)
        return false;
    if (h->link == LINK_OPEN)
        return true;
    return !holdfast_session_known(h) &&
           (h->link == LINK_CONNECTING || h->link == LINK_SHAKING ||
               h->link == LINK_GREETING);
}

void
holdfast_new_owner(struct holdfast *h, char owner[HOLDFAST_OWNER_MAX + 1])
{
    (void)snprintf(owner, HOLDFAST_OWNER_MAX + 1, "~%" PRIu64, ++h->owner_last);
}
