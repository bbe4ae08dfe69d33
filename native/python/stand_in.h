/* Tracers: objects that replace the arguments of a function while it is recorded, and that record
 * its computations on them. A launch receives the objects that they replace. */
#ifndef SILO_STAND_IN_H
#define SILO_STAND_IN_H

#include "python.h"

/* Returns the object that a tracer replaces (borrowed), or NULL if `object` is not a tracer. */
PyObject *silo_stood_for(PyObject *object);

int silo_stand_in_init(PyObject *module);

#endif
