/* The shape of an array in numbers: what there can be. */
#ifndef SILO_SHAPE_H
#define SILO_SHAPE_H

#include "base.h"
#include "dlpack.h"
#include "error.h"

/* Dimensions that an array may have. */
#define SILO_MAX_AXES 32

/* Strides count elements. */
struct silo_shape {
    int32_t ndim;
    int32_t itemsize; /* bytes; 0: unknown */
    bool whole;       /* the strides are whole elements; else they were rounded */
    int64_t sizes[SILO_MAX_AXES];
    int64_t strides[SILO_MAX_AXES];
};

/* Functions that check give -1 with SILO_ERROR_SHAPE where there can be no such array; texts begin
 * after the array's name. */

int silo_shape_check_rank(int64_t ndim, silo_error *error);

/* Extents, and the bytes that they reach. Strides count `unit` bytes; NULL: compact. */
int silo_shape_check(const int64_t *sizes, const int64_t *strides, int32_t ndim, int64_t unit,
                     silo_error *error);

/* Strides of a compact row-major array, whose extents were checked. */
void silo_shape_compact(const int64_t *sizes, int32_t ndim, int64_t *strides);

/* Whether the numbers of a tensor can be true: dimensions, extents, the bytes it reaches. */
int silo_dlpack_check(const struct dl_tensor *tensor, silo_error *error);

int silo_shape_of_dlpack(const struct dl_tensor *tensor, struct silo_shape *shape,
                         silo_error *error);

/* Whether all memory between the first and the last element has less than 2 GiB: the meaning of
 * SILO_FLAG_RANGE32 for a ROCm array. `itemsize` bytes, 0: not known. */
bool silo_shape_in_range32(const int64_t *sizes, const int64_t *strides, int32_t ndim,
                           int32_t itemsize);

#endif
