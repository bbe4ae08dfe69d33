/* Plans on the CPU: runs all launches of a replay in one call. Launches that do not wait for each
 * other run at the same time if that is faster, on threads of the pool that are called only once.
 */
#ifndef SILO_CPU_PLAN_H
#define SILO_CPU_PLAN_H

#include "plan_backend.h"

extern const struct silo_plan_backend silo_cpu_plan;

#endif
