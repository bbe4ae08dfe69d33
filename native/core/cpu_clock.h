/* The clock for CPU launches, and the pause instruction for loops that spin. */
#ifndef SILO_CPU_CLOCK_H
#define SILO_CPU_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns nanoseconds of the monotonic clock. */
static inline uint64_t silo_cpu_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static inline void silo_cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
