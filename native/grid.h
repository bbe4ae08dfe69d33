/* Grids: from what the caller gave or the kernel declared to three checked dimensions. */
#ifndef SILO_GRID_H
#define SILO_GRID_H

#include "expression.h"
#include "python.h"

struct silo_plan;

/* Declared grids, one program an axis; config values and device facts are already folded in. */
struct silo_grid_programs {
    int32_t axes; /* 0: none declared */
    int32_t counts[3];
    silo_instruction *axis[3]; /* owned */
    uint32_t values_used;      /* integer arguments the programs read */
    uint32_t arrays_used;      /* arrays whose shape, strides or item size they read */
    uint16_t *values;          /* owned: their plan indices, each once */
    uint16_t *arrays;
};

/* Take programs from a tuple of 1 to 3 bytes objects. -1 with an exception set; free with
 * silo_grid_clear either way. */
int silo_grid_decode(struct silo_grid_programs *grid, PyObject *programs);
void silo_grid_clear(struct silo_grid_programs *grid);

/* Dimensions from an int, or a tuple or list of 1 to 3 ints. Negative ones are errors. */
int silo_grid_parse(PyObject *kernel, PyObject *grid, int64_t dims[3]);

/* Dimensions from the programs. `codes` are the guard codes of the arguments. */
int silo_grid_evaluate(const struct silo_grid_programs *grid, const struct silo_plan *plan,
                       const uint64_t *slots, const uint64_t *codes, PyObject *const *arguments,
                       int64_t dims[3]);

/* Raise the ArgumentError for a dimension past its limit; -1. */
int silo_grid_too_large(PyObject *kernel, const int64_t dims[3], int axis, uint64_t limit);

#endif
