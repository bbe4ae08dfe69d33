/* The threads of the pool (workers). They are numbered, and a launch calls those with the lowest
 * numbers, so that small launches use threads that are still awake while the others sleep. */
#ifndef SILO_CPU_WORKERS_H
#define SILO_CPU_WORKERS_H

#include "cpu_job.h"

#define SILO_CPU_MOST_THREADS 1024

/* From here to silo_cpu_workers_keep, functions may be called only by the thread that holds the
 * pool, for a launch or a change of the pool's size. */

/* Runs a job on the calling thread, which runs `lead`, and on `helpers` workers; returns when all
 * have left the job. `lead` may itself run the job on several threads, numbered from 0 to `first` -
 * 1; the workers' numbers begin at `first`. If fewer workers can be started, the launch runs with
 * these. */
void silo_cpu_workers_run(struct silo_cpu_job *job, int helpers, uint32_t first,
                          void (*lead)(struct silo_cpu_job *job));

/* Pins the calling thread to the first CPU that it may use, and each worker to another CPU. Returns
 * whether the calling thread could be pinned. */
bool silo_cpu_workers_pin(void);

/* Ends all workers except the first `count`. */
void silo_cpu_workers_keep(int count);

/* Set and return the spin time in nanoseconds: how long a worker spins for a call before it sleeps,
 * and how long a launching thread spins for the end of its launch. */
void silo_cpu_workers_spin(uint64_t nanoseconds);
uint64_t silo_cpu_workers_spinning(void);

/* Set and return how long workers spin after this launch and later ones, in nanoseconds: at most
 * the spin time. */
void silo_cpu_workers_look(uint64_t nanoseconds);
uint64_t silo_cpu_workers_looking(void);

/* Whether the thread with this tid belongs to the pool. May be called from any thread. */
bool silo_cpu_workers_has(int thread);

/* Whether a worker is inside a job. */
bool silo_cpu_workers_inside(void);

/* Handlers for pthread_atfork. The child has no workers. */
void silo_cpu_workers_before_fork(void);
void silo_cpu_workers_after_fork(bool in_child);

#endif
