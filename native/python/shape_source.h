/* The shape of an array in numbers: what there can be, and what other forms of it say. */
#ifndef SILO_SHAPE_SOURCE_H
#define SILO_SHAPE_SOURCE_H

#include "dlpack.h"
#include "python.h"

/* Strides count elements. */
struct silo_shape {
    int32_t ndim;
    int32_t itemsize; /* bytes; 0: unknown */
    bool whole;       /* the strides are whole elements; else they were rounded */
    int64_t sizes[32];
    int64_t strides[32];
};

/* Functions that fill a shape give -1 with an exception set where there can be no such array. */

int silo_shape_of_dlpack(const struct dl_tensor *tensor, struct silo_shape *shape);

int silo_shape_of_buffer(const Py_buffer *buffer, struct silo_shape *shape);

/* Of sequences of integers, and the item size that `shape` has. Strides are given in bytes where
 * `unit` says how many an element has, else in elements; NULL: compact, row-major. */
int silo_shape_of_sequences(PyObject *sizes, PyObject *strides, int32_t unit,
                            struct silo_shape *shape);

/* Whether the numbers of a tensor can be true: dimensions, extents, the bytes it reaches. -1 with
 * an exception set. */
int silo_dlpack_check(const struct dl_tensor *tensor);

/* Raise the error of an array with so many dimensions; -1. */
int silo_refuse_dimensions(long long ndim);

#endif
