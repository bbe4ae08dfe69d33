/* Checks the shape and strides of an array. */
#ifndef SILO_SHAPE_H
#define SILO_SHAPE_H

#include "base.h"
#include "dlpack.h"
#include "error.h"

/* The most dimensions of an array. */
#define SILO_MAX_AXES 32

/* The shape of an array. Strides are in elements. */
struct silo_shape {
    int32_t ndim;
    int32_t itemsize; /* bytes of an element; 0: unknown */
    /* the strides in bytes are multiples of an element's size; else they were rounded */
    bool whole;
    int64_t sizes[SILO_MAX_AXES];
    int64_t strides[SILO_MAX_AXES];
};

/* Each function that checks an array returns -1 with SILO_ERROR_SHAPE if no array can have the
 * given rank, extents or strides. The caller puts the error text behind the array's name. */

int silo_shape_check_rank(int64_t ndim, silo_error *error);

/* Checks extents, and that the bytes that they span fit the address space. Strides are in units of
 * `unit` bytes; NULL: contiguous. */
int silo_shape_check(const int64_t *sizes, const int64_t *strides, int32_t ndim, int64_t unit,
                     silo_error *error);

/* Computes the strides of a contiguous array in row-major order, whose extents were checked. */
void silo_shape_compact(const int64_t *sizes, int32_t ndim, int64_t *strides);

/* Checks the numbers of a tensor: dimensions, extents, and the bytes that it spans. */
int silo_dlpack_check(const struct dl_tensor *tensor, silo_error *error);

int silo_shape_of_dlpack(const struct dl_tensor *tensor, struct silo_shape *shape,
                         silo_error *error);

/* Whether the memory from the first to the last element is smaller than 2 GiB, which
 * SILO_FLAG_RANGE32 means for a ROCm array. `itemsize` is in bytes; 0: unknown. */
bool silo_shape_in_range32(const int64_t *sizes, const int64_t *strides, int32_t ndim,
                           int32_t itemsize);

#endif
