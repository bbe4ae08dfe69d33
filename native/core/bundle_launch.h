/* Launches the variant that was chosen for a call. */
#ifndef SILO_BUNDLE_LAUNCH_H
#define SILO_BUNDLE_LAUNCH_H

#include "bundle_call.h"
#include "plan_backend.h"

/* Evaluates the grid, checks it and the arguments, packs the parameters and launches. */
int silo_call_launch(struct silo_kernel_call *call, struct silo_served *served, silo_error *error);

/* Like silo_call_launch, but does not launch: writes the grid to `values`, and the bytes of each
 * parameter to the memory after `values`, at the offset in `places`. Addresses of scratch memory
 * are 0. If the grid is empty, `values->enabled` becomes 0. */
int silo_call_values(struct silo_kernel_call *call, struct silo_served *served,
                     const struct silo_parameter_place *places, struct silo_plan_values *values,
                     silo_error *error);

/* Translates an error code of the CPU driver to enum silo_code. */
int silo_call_cpu_code(int code);

#endif
