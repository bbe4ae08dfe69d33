/* The programs of a launch, as one of its threads runs them. */
#ifndef SILO_CPU_WORK_H
#define SILO_CPU_WORK_H

#include "cpu_job.h"

/* Take chunks until none is left or one failed. `number`: of the thread in the launch. */
void silo_cpu_work_on(struct silo_cpu_job *job, uint32_t number);

#endif
