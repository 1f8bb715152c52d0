/*
 * Moves the wall clock of one process: preloaded, with CHAOS_CLOCK naming a
 * file of 8 bytes, the microseconds by which it is off. The file is mapped, so
 * that the runner moves the clock by writing to it. Clocks that cannot be set
 * (CLOCK_MONOTONIC, CLOCK_BOOTTIME) are left alone, as settimeofday() does.
 *
 * Knows nothing of Holdfast. Built by run.py, used for redis-server and
 * holdfastd.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define US_PER_S  1000000
#define NS_PER_US 1000

static const volatile int64_t *offset_us;

__attribute__((constructor)) static void
clock_shim_init(void)
{
    const char *path = getenv("CHAOS_CLOCK");
    if (path == NULL) {
        return;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    void *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) {
        offset_us = map;
    }
}

static void
clock_shift(struct timespec *at)
{
    if (offset_us == NULL) {
        return;
    }
    int64_t us =
        (int64_t)at->tv_sec * US_PER_S + at->tv_nsec / NS_PER_US + *offset_us;
    at->tv_sec = us / US_PER_S;
    at->tv_nsec = us % US_PER_S * NS_PER_US;
}

int
clock_gettime(clockid_t clock, struct timespec *at)
{
    int status = (int)syscall(SYS_clock_gettime, clock, at);
    if (status == 0 &&
        (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        clock_shift(at);
    }
    return status;
}

int clock_of_day(struct timeval *at, void *zone) __asm__("gettimeofday");

int
clock_of_day(struct timeval *at, void *zone)
{
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return -1;
    }
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / NS_PER_US;
    return 0;
}

time_t
time(time_t *out)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return (time_t)-1;
    }
    if (out != NULL) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}
