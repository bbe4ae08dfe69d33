/* Tracers. While a function is recorded, a tracer replaces each argument and records the function's
 * computations on that argument. A launch that gets a tracer receives the object that the tracer
 * replaces. */
#ifndef SILO_STAND_IN_H
#define SILO_STAND_IN_H

#include "python.h"

/* Returns the object that a tracer replaces (borrowed), or NULL if `object` is not a tracer. */
PyObject *silo_stood_for(PyObject *object);

int silo_stand_in_init(PyObject *module);

#endif
