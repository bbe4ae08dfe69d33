/* Reads the shape of an array from buffers, sequences and DLPack. */
#ifndef SILO_SHAPE_SOURCE_H
#define SILO_SHAPE_SOURCE_H

#include "python.h"
#include "shape.h"

/* The functions that fill in a shape return -1 with a ValueError set if no array can have the
 * shape. */

int silo_shape_of_buffer(const Py_buffer *buffer, struct silo_shape *shape);

/* Fills in `shape`, whose item size is already set, from sequences of integers. Strides are in
 * bytes if `unit` is the size of an element, else in elements; if `strides` is NULL, the array is
 * compact and row-major. */
int silo_shape_of_sequences(PyObject *sizes, PyObject *strides, int32_t unit,
                            struct silo_shape *shape);

int silo_shape_of_tensor(const struct dl_tensor *tensor, struct silo_shape *shape);

/* Checks that an array can have the tensor's dimensions, extents and bytes; -1 with a ValueError
 * set. */
int silo_check_tensor(const struct dl_tensor *tensor);

/* Raises the error for an array with `ndim` dimensions, and returns -1. */
int silo_refuse_dimensions(long long ndim);

#endif
