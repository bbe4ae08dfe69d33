/* The type Binding; kernel.h has its members. */
#ifndef SILO_BINDING_H
#define SILO_BINDING_H

#include "kernel.h"

extern PyTypeObject *silo_binding_type;

/* A binding whose packing and grid are yet to be filled: a new reference, or NULL with an exception
 * set. The dict is copied. */
struct silo_binding *silo_binding_begin(PyTypeObject *type, PyObject *loaded, PyObject *config,
                                        PyObject *tag);

int silo_binding_init(PyObject *module);

#endif
