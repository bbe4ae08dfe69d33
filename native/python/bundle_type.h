/* The type silo._native.OpenBundle. */
#ifndef SILO_BUNDLE_TYPE_H
#define SILO_BUNDLE_TYPE_H

#include "python.h"

/* Adds the type to the module; -1 with an exception set. */
int silo_py_bundle_init(PyObject *module);

#endif
