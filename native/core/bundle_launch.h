/* Launches of what serves a call. */
#ifndef SILO_BUNDLE_LAUNCH_H
#define SILO_BUNDLE_LAUNCH_H

#include "bundle_call.h"

/* Find the grid, check it and the arguments, pack them and hand them to the driver. */
int silo_call_launch(struct silo_kernel_call *call, struct silo_served *served, silo_error *error);

#endif
