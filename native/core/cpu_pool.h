/* The CPU's thread pool. The programs of a launch are handed out to its threads in chunks. */
#ifndef SILO_CPU_POOL_H
#define SILO_CPU_POOL_H

#include "cpu_launch.h"
#include "cpu_pick.h"

/* Runs all programs of a launch. Returns 0, the first positive code that a program returned, or a
 * code of cpu_launch.h. `*cost` is the estimated time of a program (struct silo_function), which is
 * updated. May be called from any thread: if the pool is busy, the launch runs on the calling
 * thread. */
int silo_cpu_run(const struct silo_cpu_launch *launch, uint64_t *cost);

/* Returns the number of threads that a launch may use, including the calling one. */
int silo_cpu_threads(void);

/* Sets the number of threads that a launch may use (at least 1). Waits for a launch in progress.
 * Returns 0 or an errno: EINTR if a signal interrupts the wait. */
int silo_cpu_set_threads(int count);

/* Pins the calling thread and each of the pool's threads to a CPU of its own. Returns false if
 * there are not as many threads as usable CPUs. For processes that measure: on a busy machine the
 * system may run all threads on one CPU for seconds. */
bool silo_cpu_pin_threads(void);

/* Returns the number of launches in which at least one called thread ran no program, because it
 * came late or not at all. */
uint64_t silo_cpu_short_handed(void);

/* Returns the number of launches on several threads whose threads were picked for this reason. */
uint64_t silo_cpu_picked(enum silo_cpu_reason reason);

/* Sets the spin time: how long a thread of the pool spins for work before it sleeps, and how long a
 * launching thread spins for the end of its launch before it sleeps. Threads do not spin if there
 * are more threads than CPUs. Returns 0, or EINVAL if `microseconds` is not from 0 to 100000. */
int silo_cpu_set_spin(int microseconds);
#define SILO_CPU_SPIN 50 /* the default */

/* silo_cpu_spinning returns the spin time in nanoseconds. silo_cpu_looking returns how long the
 * pool's threads really spin after the last launch: less than the spin time if launches usually
 * come only after the threads have gone to sleep. */
uint64_t silo_cpu_spinning(void);
uint64_t silo_cpu_looking(void);

/* Sets which threads run launches from now on: the pool's own, or the threads of an OpenMP
 * runtime. */
void silo_cpu_use_pool(enum silo_cpu_pool_kind kind);

/* Registers the fork handlers. Call it once. Returns 0 or an errno. */
int silo_cpu_pool_init(void);

#endif
