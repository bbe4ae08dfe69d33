/* DLPack capsules, for objects that cannot be read in a cheaper way. */
#ifndef SILO_CAPSULE_H
#define SILO_CAPSULE_H

#include "dlpack.h"
#include "python.h"
#include "shape_source.h"

/* Interns the names of attributes; -1 with an exception set. */
int silo_capsules_init(void);

/* Returns a new DLPack capsule of the object; the producer is asked not to wait for its stream. */
PyObject *silo_capsule_of(PyObject *object);

/* Called after the object's buffer failed. If the object can give capsules, clears the exception
 * and returns true; otherwise the exception stays set. */
bool silo_buffer_failed(PyObject *object);

/* Returns the tensor inside a capsule of the old or the new DLPack form; NULL with an exception
 * set. */
const struct dl_tensor *silo_tensor_of_capsule(PyObject *capsule, bool *readonly);

/* Fills in the shape of a capsule's tensor; -1 with an exception set. */
int silo_shape_of_capsule(PyObject *capsule, struct silo_shape *shape);

#endif
