/* The threads of the pool. They are numbered, and a launch calls the first of them, so that
 * launches of little work meet threads that are still awake, and the others sleep. */
#ifndef SILO_CPU_WORKERS_H
#define SILO_CPU_WORKERS_H

#include "cpu_job.h"

#define SILO_CPU_MOST_THREADS 1024

/* The first two are for the thread that has the pool for a launch or a change of size. */

/* Have `helpers` threads join the job, and work on it while the calling thread runs `lead`, whose
 * threads have the numbers below `first`; returns when all have left the job. Fewer than wanted is
 * not an error: the launch goes on with the existing ones. */
void silo_cpu_workers_run(struct silo_cpu_job *job, int helpers, uint32_t first,
                          void (*lead)(struct silo_cpu_job *job));

/* Pin the calling thread to the first processor that it may use, and workers to one of the others
 * each; whether the system lets them. */
bool silo_cpu_workers_pin(void);

/* End all threads beyond this number. */
void silo_cpu_workers_keep(int count);

/* How long, in nanoseconds, a thread looks for a call, and a launch for its end, before it sleeps.
 */
void silo_cpu_workers_spin(uint64_t nanoseconds);
uint64_t silo_cpu_workers_spinning(void);

/* How long a thread looks for a call after this launch and later ones, if it is less. */
void silo_cpu_workers_look(uint64_t nanoseconds);
uint64_t silo_cpu_workers_looking(void);

/* Whether the thread with this number of the system's belongs to the pool. From any thread. */
bool silo_cpu_workers_has(int thread);

/* Whether one is inside a job. */
bool silo_cpu_workers_inside(void);

/* For pthread_atfork; the child has no workers. */
void silo_cpu_workers_before_fork(void);
void silo_cpu_workers_after_fork(bool in_child);

#endif
