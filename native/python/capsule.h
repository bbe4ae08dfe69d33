/* DLPack capsules of objects without a cheaper way to be read. */
#ifndef SILO_CAPSULE_H
#define SILO_CAPSULE_H

#include "dlpack.h"
#include "python.h"
#include "shape_source.h"

/* Interned names; -1 with an exception set. */
int silo_capsules_init(void);

/* A new DLPack capsule of the object, asking the producer not to wait for its stream. */
PyObject *silo_capsule_of(PyObject *object);

/* After a failed buffer: whether the object gives capsules, with the exception gone, else the
 * exception stays. */
bool silo_buffer_failed(PyObject *object);

/* The tensor inside a capsule of either DLPack generation, or NULL with an exception set. */
const struct dl_tensor *silo_tensor_of_capsule(PyObject *capsule, bool *readonly);

/* Fill in the shape of a capsule's tensor; -1 with an exception set. */
int silo_shape_of_capsule(PyObject *capsule, struct silo_shape *shape);

#endif
