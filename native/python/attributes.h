/* Reads the attributes that arrays of every library have: dtype, device, shape and strides. */
#ifndef SILO_ATTRIBUTES_H
#define SILO_ATTRIBUTES_H

#include "dtypes.h"
#include "shape_source.h"

/* Interns the names of the attributes; -1 with an exception set. */
int silo_attributes_init(void);

/* Returns the dtype that an object's attribute `dtype` names. If the attribute is missing or names
 * no dtype, the result has 0 bits. Never leaves an exception. */
struct silo_dtype silo_dtype_of_object(PyObject *object);

/* Reads an object's attribute `device` ("cpu", "cuda", "cuda:1") as DLPack's device type and index;
 * the type is SILO_DEVICE_UNKNOWN without the attribute. Never leaves an exception. */
void silo_device_of_object(PyObject *object, int32_t *type, int32_t *index);

/* Reads the attributes `shape` and `stride()`, which every duck-typed tensor has. An array without
 * `stride()` counts as row-major. Returns -1 with an exception set. */
int silo_shape_of_attributes(PyObject *object, struct silo_shape *shape);

#endif
