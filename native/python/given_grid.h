/* Grids: from what the caller gave or the kernel declared to three checked dimensions. */
#ifndef SILO_GIVEN_GRID_H
#define SILO_GIVEN_GRID_H

#include "expression.h"
#include "known_bindings.h"
#include "python.h"

struct silo_plan;

/* An axis of the usual kind: a constant, or an argument divided by a constant and rounded up. */
struct silo_usual_axis {
    int64_t value; /* the constant, or the divisor */
    int16_t slot;  /* plan index; -1: a constant */
    int8_t shift;  /* the divisor is 1 << shift; -1: no power of two */
};

/* Declared grids, one program an axis; config values and device facts are already folded in. */
struct silo_grid_programs {
    int32_t axes; /* 0: none declared */
    bool usual;   /* all of them are */
    struct silo_usual_axis usual_axis[3];
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

/* The same for usual axes and `count` arguments that are ints of no extreme size; false: nothing is
 * known, and silo_grid_evaluate finds out. */
SILO_INLINE bool silo_grid_usual(const struct silo_grid_programs *grid, int32_t count,
                                 const uint64_t *slots, const uint64_t *codes, int64_t dims[3]) {
    dims[0] = dims[1] = dims[2] = 1;
    for (int32_t i = 0; i < grid->axes; i++) {
        const struct silo_usual_axis *axis = &grid->usual_axis[i];
        dims[i] = axis->value;
        if (axis->slot < 0)
            continue;
        if (SILO_UNLIKELY(axis->slot >= count))
            return false;
        const int64_t value = (int64_t)slots[axis->slot];
        if (SILO_UNLIKELY(silo_code_kind(codes[axis->slot]) != SILO_VALUE_INT || value < 0 ||
                          value > INT64_MAX - axis->value))
            return false;
        const int64_t raised = value + axis->value - 1;
        dims[i] = axis->shift >= 0 ? raised >> axis->shift : raised / axis->value;
    }
    return true;
}

/* Raise the ArgumentError for a dimension past its limit; -1. */
int silo_grid_too_large(PyObject *kernel, const int64_t dims[3], int axis, uint64_t limit);

#endif
