/* Whether the threads of the calling thread's OpenMP team are on CPUs at this moment. */
#ifndef SILO_CPU_WATCH_H
#define SILO_CPU_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* For a launch at `now` (of silo_cpu_now) that is thought to take `about` nanoseconds and comes
 * `gap` nanoseconds after the one before: whether this thread's team of `size` threads is awake.
 * Checks if the launch is long enough to pay for it, else every few milliseconds, and remembers the
 * result. False on systems other than Linux.
 *
 * The calling thread has no region open. Its team is used for one empty region once, to learn the
 * numbers of its threads, and only while other threads of the process are on CPUs: a thread that
 * never called the runtime gets no team by it. */
bool silo_cpu_watch_awake(int size, uint64_t about, uint64_t gap, uint64_t now);

/* Have all threads of the calling thread's team sleep for an instant and wake: the system gives
 * each that wakes a CPU that is free, while it seldom moves a thread that spins. Returns whether
 * each is on a CPU of its own. */
bool silo_cpu_watch_spread(void);

/* In a child made by fork: all results are forgotten. */
void silo_cpu_watch_forget(void);

#endif
