/* Turns the grid that a call gives or a kernel declares into three checked dimensions. */
#ifndef SILO_GIVEN_GRID_H
#define SILO_GIVEN_GRID_H

#include "grid.h"
#include "python.h"

struct silo_plan;

/* Decodes the grid's expressions, one for each dimension, from a tuple of 1 to 3 bytes objects.
 * Returns -1 with an exception set; silo_grid_clear is to be called in either case. */
int silo_grid_decode(struct silo_grid_programs *grid, PyObject *programs);

/* Reads the dimensions from an int, or from a tuple or list of 1 to 3 ints. A negative dimension is
 * an error. Returns -1 with an exception set. */
int silo_grid_parse(PyObject *kernel, PyObject *grid, int64_t dims[3]);

/* Evaluates the dimensions of a declared grid; `codes` are the key words of the arguments. Returns
 * -1 with an exception set. */
int silo_grid_declared(const struct silo_grid_programs *grid, const struct silo_plan *plan,
                       const uint64_t *slots, const uint64_t *codes, PyObject *const *arguments,
                       int64_t dims[3]);

/* Raises the ArgumentError for dimensions that silo_grid_check refuses, and returns -1. */
int silo_grid_raise_limits(PyObject *kernel, const struct silo_function *function,
                           const int64_t dims[3]);

#endif
