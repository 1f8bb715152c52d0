/*
 * Assertions that stay on in production.
 *
 * They are for invariants of the program. Bad input from the wire or from Redis
 * is an error with a counter instead.
 */
#ifndef HOLDFAST_BASE_ASSERT_H
#define HOLDFAST_BASE_ASSERT_H

#include <stddef.h>

/* Writes place and condition to stderr, then aborts. Does not return. */
_Noreturn void assert_failed(
    const char *expression, const char *file, int line);

#define require(expression) \
    ((expression) ? (void)0 : assert_failed(#expression, __FILE__, __LINE__))

#define container_of(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
