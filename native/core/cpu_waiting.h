/* Launches whose programs wait for each other: threads are added until all of them run. */
#ifndef SILO_CPU_WAITING_H
#define SILO_CPU_WAITING_H

#include "cpu_job.h"

/* Kernels call it at each turn of a loop that waits. */
void silo_cpu_wait(void *context);

/* A thread is about to run programs of the job: returns whether one more thread may, and counts it
 * if programs may wait. `silo_cpu_leave` is called when it is done. */
bool silo_cpu_join(struct silo_cpu_job *job);
void silo_cpu_leave(struct silo_cpu_job *job);

/* Start a thread for each program; 0, or SILO_CPU_REFUSED with the fault's text. */
int silo_cpu_gather(struct silo_cpu_job *job);

/* Await the threads that were added. */
void silo_cpu_disperse(struct silo_cpu_job *job);

/* Call it in a child made by fork. */
void silo_cpu_waiting_renew(void);

#endif
