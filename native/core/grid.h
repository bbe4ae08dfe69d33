/* Grids: evaluates the grid that a kernel declares, and checks its dimensions. */
#ifndef SILO_GRID_H
#define SILO_GRID_H

#include "argument_word.h"
#include "driver.h"
#include "error.h"
#include "expression.h"

/* An axis of the usual kind: a constant, or an argument divided by a constant and rounded up. */
struct silo_usual_axis {
    int64_t value; /* the constant, or the divisor */
    int16_t slot;  /* index of the argument; -1: the axis is a constant */
    int8_t shift;  /* the divisor is 1 << shift; -1: it is not a power of two */
};

/* A declared grid: an expression program for each axis, in which config values and device facts are
 * constants already. All zeros if no grid is declared. */
struct silo_grid_programs {
    int32_t axes; /* 0: no grid is declared */
    bool usual;   /* every axis is a constant or a rounded-up quotient (struct silo_usual_axis),
                     stored in `usual_axis` */
    struct silo_usual_axis usual_axis[3];
    int32_t counts[3];
    silo_instruction *axis[3]; /* owned */
    uint32_t values_used;      /* number of integer arguments that the programs read */
    uint32_t arrays_used; /* number of arrays whose shape, strides or item size the programs read */
    uint16_t *values;     /* owned: the indices of these arguments, each once */
    uint16_t *arrays;
};

/* Appends the program of the next axis: copies `bytes` bytes of silo_instruction. On failure
 * returns -1 with SILO_ERROR_EXPRESSION or SILO_ERROR_MEMORY. After success and after failure, the
 * caller must release `grid` with silo_grid_clear. */
int silo_grid_add_axis(struct silo_grid_programs *grid, const void *program, size_t bytes,
                       silo_error *error);
void silo_grid_clear(struct silo_grid_programs *grid);

/* Why a call has no valid grid. */
enum silo_grid_reason {
    SILO_GRID_NONE,
    SILO_GRID_EXPRESSION,  /* `detail` is the result of silo_expression_eval */
    SILO_GRID_NOT_INTEGER, /* the grid reads argument `slot`, which is not a signed 64-bit integer
                            */
    SILO_GRID_NEGATIVE,
    SILO_GRID_TOO_LARGE, /* a dimension exceeds `limit`, the most that the device allows */
    SILO_GRID_CLUSTER,   /* a dimension is not a multiple of `limit`, the blocks of a cluster along
                            the axis */
    SILO_GRID_ENDLESS,   /* the grid has more than SILO_MOST_PROGRAMS programs */
};

struct silo_grid_fault {
    uint8_t reason; /* enum silo_grid_reason */
    uint8_t axis;
    int32_t detail;
    int32_t slot;
    uint64_t limit;
};

/* Checks that the arguments that the grid's expressions read as integers are integers. Returns 0,
 * or -1 with the reason in `fault`. */
int silo_grid_check_values(const struct silo_grid_programs *grid, int32_t count,
                           const uint64_t *slots, const uint64_t *codes,
                           struct silo_grid_fault *fault);

/* Evaluates the grid's expressions, after silo_grid_check_values. `bindings->values` holds the
 * values of the arguments; if `arrays_used` is not 0, `bindings` also has the shapes, strides and
 * item sizes of the arrays. Returns 0, or -1 with the reason in `fault`. */
int silo_grid_evaluate(const struct silo_grid_programs *grid, const silo_bindings *bindings,
                       int64_t dims[3], struct silo_grid_fault *fault);

/* Does the work of silo_grid_check_values and silo_grid_evaluate if every axis is a constant or a
 * rounded-up quotient (struct silo_usual_axis) and the `count` arguments that the axes read are
 * integers that do not overflow. Returns false if these two functions must be called. */
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

/* The most programs of one launch, which would run for years on any processor. With this limit,
 * counts and times of programs fit 64 bits. */
#define SILO_MOST_PROGRAMS (INT64_C(1) << 53)

enum silo_grid_state {
    SILO_GRID_EMPTY,   /* a dimension is 0: nothing to run */
    SILO_GRID_FITS,    /* the grid can be launched */
    SILO_GRID_REFUSED, /* the grid is refused: silo_grid_limits returns the reason */
};

/* Whether a grid that counts blocks consists of whole clusters. */
SILO_INLINE bool silo_grid_divides(const struct silo_function *function, const int64_t dims[3]) {
    return dims[0] % function->cluster[0] == 0 && dims[1] % function->cluster[1] == 0 &&
           dims[2] % function->cluster[2] == 0;
}

/* Checks dimensions that are not negative against a function's limits. */
SILO_INLINE enum silo_grid_state silo_grid_check(const struct silo_function *function,
                                                 const int64_t dims[3]) {
    if (dims[0] == 0 || dims[1] == 0 || dims[2] == 0)
        return SILO_GRID_EMPTY;
    for (int axis = 0; axis < 3; axis++) {
        if (SILO_UNLIKELY((uint64_t)dims[axis] > function->grid_limit[axis]))
            return SILO_GRID_REFUSED;
    }
    if (SILO_UNLIKELY(function->counts_blocks) && !silo_grid_divides(function, dims))
        return SILO_GRID_REFUSED;
    int64_t plane, total;
    if (SILO_UNLIKELY(__builtin_mul_overflow(dims[0], dims[1], &plane) ||
                      __builtin_mul_overflow(plane, dims[2], &total) || total > SILO_MOST_PROGRAMS))
        return SILO_GRID_REFUSED;
    return SILO_GRID_FITS;
}

/* Returns the reason why silo_grid_check refused a grid. */
struct silo_grid_fault silo_grid_limits(const struct silo_function *function,
                                        const int64_t dims[3]);

/* Fills `error` for a fault: SILO_ERROR_EXPRESSION or SILO_ERROR_GRID, with a text that names the
 * kernel. `argument` is the name of argument `slot`, for SILO_GRID_NOT_INTEGER. Returns -1. */
int silo_grid_refuse(const struct silo_grid_fault *fault, const char *kernel, const int64_t dims[3],
                     const char *argument, silo_error *error);

#endif
