/* The CPU's threads: programs of one launch are handed out in order, in chunks. */
#ifndef SILO_CPU_POOL_H
#define SILO_CPU_POOL_H

#include "cpu_launch.h"
#include "cpu_pick.h"

/* Run every program. Returns 0, the first positive code of the kernel, or one of the codes of
 * cpu_launch.h. `cost` is the hint of struct silo_function. Safe from any thread: a launch that
 * finds the pool busy runs on the calling thread. */
int silo_cpu_run(const struct silo_cpu_launch *launch, uint64_t *cost);

/* Threads a launch may use, the calling one included. */
int silo_cpu_threads(void);

/* Change that number (at least 1). Waits for a launch in progress; EINTR if that wait is
 * interrupted. 0, or an errno. */
int silo_cpu_set_threads(int count);

/* Pin the calling thread and the pool's threads to a processor each, if there are as many threads
 * as processors that this process may use; whether they are. For processes that measure: on a busy
 * machine the system may have all of them on one processor for seconds. */
bool silo_cpu_pin_threads(void);

/* How many launches so far had fewer threads at work than they called. */
uint64_t silo_cpu_short_handed(void);

/* The number of launches of several threads that were run there for that reason. */
uint64_t silo_cpu_picked(enum silo_cpu_reason reason);

/* How long a thread of the pool looks for work, and a launch for its end, before it sleeps; not at
 * all if there are more threads than processors. EINVAL: not 0 to 100000. */
int silo_cpu_set_spin(int microseconds);
#define SILO_CPU_SPIN 50 /* until it is set */

/* That time in nanoseconds; and the time for which threads of the pool look after the last launch,
 * which is less if launches come too late for it. */
uint64_t silo_cpu_spinning(void);
uint64_t silo_cpu_looking(void);

/* Whose threads run launches from now on. */
void silo_cpu_use_pool(enum silo_cpu_pool_kind kind);

/* Register the fork handlers; once. 0, or an errno. */
int silo_cpu_pool_init(void);

#endif
