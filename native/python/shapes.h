/* Shapes of arguments, by the adapter that reads them. */
#ifndef SILO_SHAPES_H
#define SILO_SHAPES_H

#include "adapters.h"
#include "shape_source.h"

/* Sizes and strides. -1 with an exception set. */
int silo_shape_read(PyObject *object, const struct silo_adapter *adapter, struct silo_shape *shape);

/* Whether it is a 0-d array. Never leaves an exception. */
bool silo_has_no_dimensions(PyObject *object, const struct silo_adapter *adapter);

/* Null data is right only for an array without elements (a fake tensor has neither). */
int silo_check_null(PyObject *object, const struct silo_adapter *adapter);

#endif
