/*
 * Equal objects from address space that is reserved once.
 *
 * Invariants: the generation of an object is odd while it is in use, and even
 * while it is free. Free objects below `touched` are linked by `next_free`.
 * Objects from `touched` on are zero, as the system gave them.
 *
 * Under AddressSanitizer a free object is poisoned behind its node. So use
 * after free is found although the memory never goes back to the system.
 *
 * Called by the core and the store for all objects behind handles.
 */
#include "daemon/base/slab.h"

#include "daemon/base/assert.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB_POISON 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SLAB_POISON 1
#endif

#ifdef SLAB_POISON
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, len)   ((void)(at), (void)(len))
#define ASAN_UNPOISON_MEMORY_REGION(at, len) ((void)(at), (void)(len))
#endif

#define OBJECT_ALIGN 16u

static struct slab_node *
node_at(const struct slab *slab, uint32_t index)
{
    void *object = slab->memory + (size_t)index * slab->object_bytes;

    return object;
}

/* The body follows the node. */
static char *
body_of(struct slab_node *node)
{
    return (char *)(node + 1);
}

static size_t
body_bytes(const struct slab *slab)
{
    return slab->object_bytes - sizeof(struct slab_node);
}

bool
slab_init(struct slab *slab, size_t object_bytes, uint32_t capacity)
{
    size_t rounded = (object_bytes + OBJECT_ALIGN - 1) & ~(OBJECT_ALIGN - 1);
    size_t bytes;
    void *memory;

    require(object_bytes >= sizeof(struct slab_node));
    require(capacity > 0 && capacity < UINT32_MAX);
    memset(slab, 0, sizeof(*slab));
    if (__builtin_mul_overflow(rounded, (size_t)capacity, &bytes)) {
        errno = ENOMEM;
        return false;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    slab->memory = memory;
    slab->object_bytes = rounded;
    slab->capacity = capacity;
    return true;
}

void
slab_fini(struct slab *slab)
{
    if (slab->memory != NULL) {
        size_t bytes = slab->object_bytes * slab->capacity;

        /* The next mapping at this place must not inherit the poison. */
        ASAN_UNPOISON_MEMORY_REGION(
            slab->memory, slab->object_bytes * slab->touched);
        munmap(slab->memory, bytes);
    }
    memset(slab, 0, sizeof(*slab));
}

void *
slab_alloc(struct slab *slab)
{
    struct slab_node *node;
    uint32_t index;

    if (slab->free_head != 0) {
        index = slab->free_head - 1;
        node = node_at(slab, index);
        slab->free_head = node->next_free;
        ASAN_UNPOISON_MEMORY_REGION(body_of(node), body_bytes(slab));
        memset(body_of(node), 0, body_bytes(slab));
    } else if (slab->touched < slab->capacity) {
        index = slab->touched++;
        node = node_at(slab, index);
    } else {
        return NULL;
    }
    require((node->generation & 1) == 0);
    node->generation++;
    node->next_free = index + 1;
    slab->used++;
    require(slab->used <= slab->touched);
    return node;
}

void
slab_free(struct slab *slab, void *object)
{
    struct slab_node *node = object;
    uint32_t link = node->next_free;

    require((node->generation & 1) == 1);
    require(link > 0 && link <= slab->touched);
    require(node_at(slab, link - 1) == node && slab->used > 0);
    node->generation++;
    node->next_free = slab->free_head;
    slab->free_head = link;
    slab->used--;
    ASAN_POISON_MEMORY_REGION(body_of(node), body_bytes(slab));
}

void *
slab_get(const struct slab *slab, struct handle handle)
{
    struct slab_node *node;

    if ((handle.generation & 1) == 0 || handle.index >= slab->touched)
        return NULL;
    node = node_at(slab, handle.index);
    return node->generation == handle.generation ? node : NULL;
}

struct handle
slab_handle(const struct slab *slab, const void *object)
{
    const struct slab_node *node = object;
    uint32_t link = node->next_free;

    require((node->generation & 1) == 1);
    require(link > 0 && node_at(slab, link - 1) == node);
    return (struct handle){link - 1, node->generation};
}

struct handle
slab_renew_handle(struct slab *slab, void *object)
{
    struct slab_node *node = object;

    require((node->generation & 1) == 1);
    node->generation += 2;
    return slab_handle(slab, object);
}

void *
slab_at(const struct slab *slab, uint32_t index)
{
    struct slab_node *node;

    if (index >= slab->touched)
        return NULL;
    node = node_at(slab, index);
    return (node->generation & 1) == 1 ? node : NULL;
}
