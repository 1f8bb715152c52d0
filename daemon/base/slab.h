/*
 * A pool of equal objects behind handles.
 *
 * The address space is reserved once, at slab_init(). Pages are touched when
 * objects are first used. Freed objects are used again, last in, first out. A
 * full pool answers NULL, and never grows.
 *
 * The first member of an object must be `struct slab_node`. A handle is an
 * index and a generation. Each allocation and each free changes the generation,
 * so that a stale handle finds nothing.
 */
#ifndef HOLDFAST_BASE_SLAB_H
#define HOLDFAST_BASE_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct handle {
    uint32_t index;
    uint32_t generation; /* odd for the living; 0: refers to nothing */
};

#define HANDLE_NONE ((struct handle){0, 0})

static inline bool
handle_equal(struct handle a, struct handle b)
{
    return a.index == b.index && a.generation == b.generation;
}

static inline uint64_t
handle_pack(struct handle handle)
{
    return (uint64_t)handle.generation << 32 | handle.index;
}

static inline struct handle
handle_unpack(uint64_t packed)
{
    return (struct handle){(uint32_t)packed, (uint32_t)(packed >> 32)};
}

struct slab_node {
    uint32_t generation; /* odd: in use; even: free */
    uint32_t next_free;  /* free: index + 1 of the next free one, 0: none; in
                            use: the object's own index + 1 */
};

struct slab {
    char *memory; /* owned; reserved address space */
    size_t object_bytes;
    uint32_t capacity; /* objects */
    uint32_t used;     /* objects in use */
    uint32_t touched;  /* objects ever used; those above are untouched pages */
    uint32_t free_head;
};

/* False: the address space cannot be reserved; errno says why. */
bool slab_init(struct slab *slab, size_t object_bytes, uint32_t capacity);

/* Gives the memory back. The caller has freed what the objects own. */
void slab_fini(struct slab *slab);

/* A zeroed object (but for its node), or NULL: the slab is full. */
void *slab_alloc(struct slab *slab);

/* Frees an object that is in use. Its handles are stale from here on. */
void slab_free(struct slab *slab, void *object);

/* The object, or NULL: the handle is stale or HANDLE_NONE. */
void *slab_get(const struct slab *slab, struct handle handle);

/* The handle of an object of this slab that is in use. */
struct handle slab_handle(const struct slab *slab, const void *object);

/* Makes all handles to a living object stale; returns its new one. */
struct handle slab_renew_handle(struct slab *slab, void *object);

/* The living object at `index`, or NULL; for walks from 0 to slab->touched. */
void *slab_at(const struct slab *slab, uint32_t index);

#endif
