/* Finds out whether the threads of the calling thread's OpenMP team are awake (on CPUs) at the
 * moment. */
#ifndef SILO_CPU_WATCH_H
#define SILO_CPU_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the calling thread's team of `size` threads is awake, for a launch at `now` (of
 * silo_cpu_now) that is estimated to take `about` nanoseconds and comes `gap` nanoseconds after the
 * one before. Checks the threads if the launch is so long that the time of the check does not
 * matter, otherwise every few milliseconds, and remembers the result. Returns false on systems
 * other than Linux.
 *
 * The calling thread must not be in a parallel region. To learn the tids of the team's threads, an
 * empty region is run once on the team, but only while other threads of the process are on CPUs, so
 * that a thread that never used the runtime usually gets no team. */
bool silo_cpu_watch_awake(int size, uint64_t about, uint64_t gap, uint64_t now);

/* Lets all threads of the calling thread's team sleep for an instant. When a thread wakes, the
 * system gives it a free CPU, while it seldom moves a thread that spins. Returns whether each
 * thread then has a CPU of its own. */
bool silo_cpu_watch_spread(void);

/* Forgets all results, in a child made by fork(). */
void silo_cpu_watch_forget(void);

#endif
