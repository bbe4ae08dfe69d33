/* The attributes that arrays of every library have. */
#ifndef SILO_ATTRIBUTES_H
#define SILO_ATTRIBUTES_H

#include "dtypes.h"
#include "shape_source.h"

/* Interned names; -1 with an exception set. */
int silo_attributes_init(void);

/* The dtype that an object's `dtype` attribute names; bits 0 where it names none. Never leaves an
 * exception. */
struct silo_dtype silo_dtype_of_object(PyObject *object);

/* "cpu", "cuda", "cuda:1" of its `device`, as DLPack has it; unknown without the attribute. Never
 * leaves an exception. */
void silo_device_of_object(PyObject *object, int32_t *type, int32_t *index);

/* From the attributes `shape` and `stride()`, which every duck-typed tensor has; row-major without
 * the latter. -1 with an exception set. */
int silo_shape_of_attributes(PyObject *object, struct silo_shape *shape);

#endif
