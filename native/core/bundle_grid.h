/* Computes the grid of a call of a bundle's kernel: the grid that the call gives, or else the grid
 * that the kernel declares. */
#ifndef SILO_BUNDLE_GRID_H
#define SILO_BUNDLE_GRID_H

#include "bundle_call.h"

/* Checks the dimensions that the call gives and copies them to `dims`. */
int silo_call_given_grid(const struct silo_kernel_call *call, int64_t dims[3], silo_error *error);

/* Evaluates the kernel's declared grid for a call whose arguments silo_call_read has read. */
int silo_call_declared_grid(const struct silo_kernel_call *call,
                            const struct silo_grid_programs *grid, int64_t dims[3],
                            silo_error *error);

#endif
