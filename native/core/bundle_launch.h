/* Launches of the variant that serves a call. */
#ifndef SILO_BUNDLE_LAUNCH_H
#define SILO_BUNDLE_LAUNCH_H

#include "bundle_call.h"
#include "plan_backend.h"

/* Find the grid, check it and the arguments, pack them and hand them to the driver. */
int silo_call_launch(struct silo_kernel_call *call, struct silo_served *served, silo_error *error);

/* The same without the driver's call: writes the grid to `values` and each parameter's bytes to
 * `places`, behind `values`. Addresses of scratch memory are 0. With an empty grid the launch is
 * not enabled. */
int silo_call_values(struct silo_kernel_call *call, struct silo_served *served,
                     const struct silo_parameter_place *places, struct silo_plan_values *values,
                     silo_error *error);

/* The SILO_ERROR_* of a code of the CPU driver. */
int silo_call_cpu_code(int code);

#endif
