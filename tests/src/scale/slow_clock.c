// Puts a process on a slower clock: what it asks the C library for the time is answered in slowed time, and what it waits for lasts longer by
// the machine's. Owns nothing else; loaded with LD_PRELOAD into the collector where the machine is too small for a fleet in real time.
// CPU clocks stay those of the machine.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t times = 1;
static int64_t wall_from, mono_from;
static long (*real_syscall)(long, ...);
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_epoll_wait)(int, struct epoll_event *, int, int);
static int (*real_clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);

static int64_t ns(const struct timespec *t) { return t->tv_sec * 1000000000LL + t->tv_nsec; }

static struct timespec spec(int64_t at)
{
    struct timespec t = { at / 1000000000LL, at % 1000000000LL };
    return t;
}

__attribute__((constructor)) static void begin(void)
{
    real_syscall = dlsym(RTLD_NEXT, "syscall");
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_epoll_wait = dlsym(RTLD_NEXT, "epoll_wait");
    real_clock_nanosleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    const char *slower = getenv("TAILWATER_SLOW_TIMES"), *from = getenv("TAILWATER_SLOW_FROM_NS");
    struct timespec now;
    real_clock_gettime(CLOCK_MONOTONIC, &now);
    mono_from = ns(&now);
    if (slower && from && atoll(slower) > 1) {
        wall_from = atoll(from);
        times = atoll(slower);
    }
}

// The origin of a clock that is slowed; 0: this one is left alone.
static int64_t origin(clockid_t clock)
{
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return wall_from;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        return mono_from;
    default:
        return 0;
    }
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!real_clock_gettime)
        begin();
    int rc = real_clock_gettime(clock, t);
    int64_t from = origin(clock);
    if (rc == 0 && times > 1 && from)
        *t = spec(from + (ns(t) - from) / times);
    return rc;
}

// A moment of the slowed clock by the machine's.
static struct timespec by_machine(clockid_t clock, const struct timespec *t)
{
    int64_t from = origin(clock);
    return from && times > 1 ? spec(from + (ns(t) - from) * times) : *t;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    return real_epoll_wait(fd, events, most, timeout > 0 ? (int)(timeout * times) : timeout);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *left)
{
    struct timespec longer = flags & TIMER_ABSTIME ? by_machine(clock, t) : spec(ns(t) * times);
    return real_clock_nanosleep(clock, flags, &longer, left);
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
    int rc = clock_nanosleep(CLOCK_MONOTONIC, 0, t, left);
    if (rc)
        errno = rc;
    return rc ? -1 : 0;
}

// Threads that wait for each other call the kernel by its number, with an absolute time.
long syscall(long number, ...)
{
    va_list rest;
    va_start(rest, number);
    long a[6];
    for (int n = 0; n < 6; n++)
        a[n] = va_arg(rest, long);
    va_end(rest);
    if (!real_syscall)
        begin();
    struct timespec longer;
    if (number == SYS_futex && a[3] && times > 1) {
        int what = (int)a[1] & FUTEX_CMD_MASK;
        const struct timespec *t = (const struct timespec *)a[3];
        if (what == FUTEX_WAIT_BITSET) {
            longer = by_machine(a[1] & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC, t);
            a[3] = (long)&longer;
        } else if (what == FUTEX_WAIT) {
            longer = spec(ns(t) * times);
            a[3] = (long)&longer;
        }
    }
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
