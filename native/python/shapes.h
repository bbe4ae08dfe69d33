/* Reads the shapes of arguments, in the way that each argument's adapter selects. */
#ifndef SILO_SHAPES_H
#define SILO_SHAPES_H

#include "adapters.h"
#include "shape_source.h"

/* Reads sizes and strides; -1 with an exception set. */
int silo_shape_read(PyObject *object, const struct silo_adapter *adapter, struct silo_shape *shape);

/* Returns whether an object is a 0-d array; never leaves an exception. */
bool silo_has_no_dimensions(PyObject *object, const struct silo_adapter *adapter);

/* Checks an array whose data pointer is null: only an array without elements may have one, so a
 * fake tensor fails. Returns -1 with an exception set. */
int silo_check_null(PyObject *object, const struct silo_adapter *adapter);

#endif
