/* Tracers: the arguments of a function that is recorded, which show its computations on them.
 * Launches receive the objects behind them. */
#ifndef SILO_STAND_IN_H
#define SILO_STAND_IN_H

#include "python.h"

/* The object behind a tracer (borrowed); NULL: it is another object. */
PyObject *silo_stood_for(PyObject *object);

int silo_stand_in_init(PyObject *module);

#endif
