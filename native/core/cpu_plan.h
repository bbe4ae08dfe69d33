/* Plans on the CPU: all launches of a replay run in one call. Launches that do not wait for each
 * other run at the same time if that is faster: the pool's threads then get the whole replay as a
 * single job. */
#ifndef SILO_CPU_PLAN_H
#define SILO_CPU_PLAN_H

#include "plan_backend.h"

extern const struct silo_plan_backend silo_cpu_plan;

#endif
