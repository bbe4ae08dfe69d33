/* Stand-ins: what a function that is recorded gets in place of its arguments, to show what it
 * computes of them. Launches are given the objects that they stand for. */
#ifndef SILO_STAND_IN_H
#define SILO_STAND_IN_H

#include "python.h"

/* The object that a stand-in stands for (borrowed); NULL: it is another object. */
PyObject *silo_stood_for(PyObject *object);

int silo_stand_in_init(PyObject *module);

#endif
