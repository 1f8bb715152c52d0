/*
 * fork(2): the child closes its copies of connections.
 *
 * A child's copy of a descriptor keeps the connection open after the parent was
 * killed, and the broker would keep the locks while the child lives. So all
 * connections are in one list, and the child closes its copies before fork()
 * returns. posix_spawn() and vfork() do not run this code; there the
 * descriptors are close-on-exec.
 *
 * The child changes only descriptors and plain fields, since a thread that does
 * not exist in the child may hold the memory's locks. The lock here prevents a
 * fork between the creation of a descriptor and the write of its field.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/client.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct holdfast *connections; /* refs, by next and prev */

void
holdfast_fork_lock(void)
{
    (void)pthread_mutex_lock(&lock);
}

void
holdfast_fork_unlock(void)
{
    (void)pthread_mutex_unlock(&lock);
}

static void
fork_in_child(void)
{
    static const char reason[] =
        "the connection is the parent's: a child of fork(2) needs its own";

    for (struct holdfast *h = connections; h != NULL; h = h->next) {
        if (h->fd >= 0)
            (void)close(h->fd);
        h->fd = -1;
        if (h->link == LINK_CLOSED)
            continue;
        h->link = LINK_CLOSED;
        memcpy(h->reason, reason, sizeof(reason));
    }
    holdfast_fork_unlock();
}

static void
fork_prepare(void)
{
    (void)pthread_atfork(
        holdfast_fork_lock, holdfast_fork_unlock, fork_in_child);
}

void
holdfast_fork_enter(struct holdfast *h)
{
    assert(h->fd < 0);
    (void)pthread_once(&once, fork_prepare);
    holdfast_fork_lock();
    h->next = connections;
    h->prev = NULL;
    if (connections != NULL)
        connections->prev = h;
    connections = h;
    holdfast_fork_unlock();
}

void
holdfast_fork_leave(struct holdfast *h)
{
    holdfast_fork_lock();
    if (h->next != NULL)
        h->next->prev = h->prev;
    if (h->prev != NULL)
        h->prev->next = h->next;
    else
        connections = h->next;
    assert(connections != h);
    holdfast_fork_unlock();
}
