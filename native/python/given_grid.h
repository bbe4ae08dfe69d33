/* Grids: from the caller's or the kernel's declared grid to three checked dimensions. */
#ifndef SILO_GIVEN_GRID_H
#define SILO_GIVEN_GRID_H

#include "grid.h"
#include "python.h"

struct silo_plan;

/* Take programs from a tuple of 1 to 3 bytes objects. -1 with an exception set; free with
 * silo_grid_clear either way. */
int silo_grid_decode(struct silo_grid_programs *grid, PyObject *programs);

/* Dimensions from an int, or a tuple or list of 1 to 3 ints. Negative ones are errors. */
int silo_grid_parse(PyObject *kernel, PyObject *grid, int64_t dims[3]);

/* Dimensions from the programs. `codes` are the words of the arguments. */
int silo_grid_declared(const struct silo_grid_programs *grid, const struct silo_plan *plan,
                       const uint64_t *slots, const uint64_t *codes, PyObject *const *arguments,
                       int64_t dims[3]);

/* Raise the ArgumentError of dimensions that silo_grid_check refuses; -1. */
int silo_grid_raise_limits(PyObject *kernel, const struct silo_function *function,
                           const int64_t dims[3]);

#endif
