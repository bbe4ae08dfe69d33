/* The type Binding; kernel.h has what it holds. */
#ifndef SILO_BINDING_H
#define SILO_BINDING_H

#include "kernel.h"

extern PyTypeObject *silo_binding_type;

int silo_binding_init(PyObject *module);

#endif
