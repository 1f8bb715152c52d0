/*
 * Intrusive doubly linked list with a sentinel. No memory of its own.
 *
 * A node that is on no list points at itself, so that list_remove() may be
 * called twice.
 */
#ifndef HOLDFAST_BASE_LIST_H
#define HOLDFAST_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next;
    struct list *prev;
};

static inline void
list_init(struct list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool
list_empty(const struct list *list)
{
    return list->next == list;
}

static inline void
list_push_back(struct list *list, struct list *node)
{
    node->prev = list->prev;
    node->next = list;
    list->prev->next = node;
    list->prev = node;
}

static inline void
list_push_front(struct list *list, struct list *node)
{
    node->next = list->next;
    node->prev = list;
    list->next->prev = node;
    list->next = node;
}

static inline void
list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Removes the first node. NULL: the list is empty. */
static inline struct list *
list_pop_front(struct list *list)
{
    struct list *node = list->next;

    if (node == list)
        return NULL;
    list->next = node->next;
    node->next->prev = list;
    list_init(node);
    return node;
}

/* Moves all of `from` to the end of `to`; `from` is empty afterwards. */
static inline void
list_splice_back(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

/* `node` must not be removed or freed by the body; see LIST_EACH_SAFE. */
#define LIST_EACH(node, head) \
    for (struct list *node = (head)->next; node != (head); node = node->next)

/* The body may remove or free `node`, but no other node of the list. */
#define LIST_EACH_SAFE(node, head)                                    \
    for (struct list *node = (head)->next, *node##_next = node->next; \
         node != (head); node = node##_next, node##_next = node->next)

#endif
