/* Plans on the CPU: the launches of a replay without a return to the caller between two of them.
 * Those that do not wait for each other run at the same time where that is faster, on threads that
 * the pool is entered for once. */
#ifndef SILO_CPU_PLAN_H
#define SILO_CPU_PLAN_H

#include "plan_backend.h"

extern const struct silo_plan_backend silo_cpu_plan;

#endif
