/* Launches whose programs wait for each other: adds threads until all programs run. */
#ifndef SILO_CPU_WAITING_H
#define SILO_CPU_WAITING_H

#include "cpu_job.h"

/* Called by kernels in each iteration of a loop that waits. */
void silo_cpu_wait(void *context);

/* A thread calls silo_cpu_join before it runs programs of a job, and silo_cpu_leave when it is
 * done. silo_cpu_join returns false if no more threads may join. Threads are counted only for jobs
 * whose programs may wait for each other. */
bool silo_cpu_join(struct silo_cpu_job *job);
void silo_cpu_leave(struct silo_cpu_job *job);

/* Starts a thread for each program. Returns 0, or SILO_CPU_REFUSED with the fault's text. */
int silo_cpu_gather(struct silo_cpu_job *job);

/* Waits for the threads that were added. */
void silo_cpu_disperse(struct silo_cpu_job *job);

/* Initializes the lock of this file again. Call this in a child made by fork(), because a thread of
 * the parent may have held the lock. */
void silo_cpu_waiting_renew(void);

#endif
