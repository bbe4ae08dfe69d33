/* The shape of an array, read from buffers, sequences and DLPack. */
#ifndef SILO_SHAPE_SOURCE_H
#define SILO_SHAPE_SOURCE_H

#include "python.h"
#include "shape.h"

/* Functions that fill a shape return -1 with a ValueError set if such an array cannot exist. */

int silo_shape_of_buffer(const Py_buffer *buffer, struct silo_shape *shape);

/* Fill `shape`, which has its item size already, from sequences of integers. Strides are given in
 * bytes if `unit` is the size of an element, else in elements; NULL: compact, row-major. */
int silo_shape_of_sequences(PyObject *sizes, PyObject *strides, int32_t unit,
                            struct silo_shape *shape);

int silo_shape_of_tensor(const struct dl_tensor *tensor, struct silo_shape *shape);

/* Whether the numbers of a tensor can be true: dimensions, extents, the bytes it reaches. */
int silo_check_tensor(const struct dl_tensor *tensor);

/* Raise the error of an array with this many dimensions; -1. */
int silo_refuse_dimensions(long long ndim);

#endif
