/* Runs programs of a launch on one of its threads. */
#ifndef SILO_CPU_WORK_H
#define SILO_CPU_WORK_H

#include "cpu_job.h"

/* Takes and runs chunks until none is left or one fails. `number` is the thread's number in the
 * launch. */
void silo_cpu_work_on(struct silo_cpu_job *job, uint32_t number);

#endif
