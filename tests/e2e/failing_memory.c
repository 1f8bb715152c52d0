/*
 * A library to be preloaded: one allocation after the beginning of main()
 * fails, as where memory has run out.
 *
 *     HOLDFAST_FAIL_AT     which one, from 1; absent or 0: none
 *     HOLDFAST_FAIL_LOG    a file that gets a line when it failed, or, where
 *                          it has not, how many there were, at the end
 *
 * Counted are malloc, calloc, realloc and anonymous mmap, of the program and of
 * its libraries, not of its children. Built and used by test_memory.py;
 * with AddressSanitizer it is the sanitizer's functions that are called here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int main_function(int argc, char **argv, char **environment);
typedef int start_function(main_function *program_main, int argc, char **argv,
    void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
    void *stack_end);
typedef void *mmap_function(
    void *at, size_t len, int prot, int flags, int fd, off_t offset);

/* Memory for dlsym() itself, before the real functions are known. */
#define EARLY_BYTES 65536

static _Alignas(16) char early[EARLY_BYTES];
static size_t early_used;
static bool resolving;

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static mmap_function *real_mmap;
static main_function *real_main;

static bool active;
static pid_t program;
static unsigned long fail_at;
static unsigned long count;

static void
resolve(void)
{
    if (real_free != NULL || resolving)
        return;
    resolving = true;
    *(void **)&real_malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&real_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&real_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&real_mmap = dlsym(RTLD_NEXT, "mmap");
    *(void **)&real_free = dlsym(RTLD_NEXT, "free");
    resolving = false;
}

/* Zeroed, and never given back. */
static void *
early_take(size_t len)
{
    size_t rounded = (len + 15) / 16 * 16;

    if (rounded > EARLY_BYTES - early_used)
        abort();
    void *at = early + early_used;
    early_used += rounded;
    return at;
}

static bool
is_early(const void *at)
{
    return (const char *)at >= early && (const char *)at < early + EARLY_BYTES;
}

static void
report(const char *what)
{
    const char *path = getenv("HOLDFAST_FAIL_LOG");
    char line[64];
    int saved = errno;

    if (path == NULL)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        int len = snprintf(line, sizeof(line), "%s %lu\n", what, count);
        ssize_t written = write(fd, line, (size_t)len);
        (void)written;
        (void)close(fd);
    }
    errno = saved;
}

/* A place for a debugger to stop at. */
static __attribute__((noinline)) bool
allocation_fails(void)
{
    if (!active || getpid() != program || ++count != fail_at)
        return false;
    report("failed");
    errno = ENOMEM;
    return true;
}

/* libc's headers give the parameters names of their own.
 * NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

void *
malloc(size_t len)
{
    resolve();
    if (real_malloc == NULL)
        return early_take(len);
    return allocation_fails() ? NULL : real_malloc(len);
}

void *
calloc(size_t members, size_t len)
{
    resolve();
    if (real_calloc == NULL)
        return early_take(members * len);
    return allocation_fails() ? NULL : real_calloc(members, len);
}

void *
realloc(void *at, size_t len)
{
    resolve();
    if (real_realloc == NULL || is_early(at)) {
        void *moved = malloc(len);
        if (moved != NULL && at != NULL)
            memcpy(moved, at, len); /* within `early`, or what follows it */
        return moved;
    }
    return allocation_fails() ? NULL : real_realloc(at, len);
}

void
free(void *at)
{
    resolve();
    if (!is_early(at) && real_free != NULL)
        real_free(at);
}

void *
mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    resolve();
    if ((flags & MAP_ANONYMOUS) != 0 && allocation_fails())
        return MAP_FAILED;
    return real_mmap(at, len, prot, flags, fd, offset);
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

static void
at_end(void)
{
    active = false; /* this call is libc's own */
    if (getpid() == program && (count < fail_at || fail_at == 0))
        report("counted");
}

static int
counted_main(int argc, char **argv, char **environment)
{
    const char *number = getenv("HOLDFAST_FAIL_AT");

    if (number != NULL)
        fail_at = strtoul(number, NULL, 10);
    (void)unsetenv("LD_PRELOAD");
    (void)atexit(at_end);
    program = getpid();
    active = true;
    return real_main(argc, argv, environment);
}

int __libc_start_main(main_function *program_main, int argc, char **argv,
    void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
    void *stack_end);

int
__libc_start_main(main_function *program_main, int argc, char **argv,
    void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
    void *stack_end)
{
    start_function *start;

    *(void **)&start = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = program_main;
    return start(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
