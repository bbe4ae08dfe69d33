/* The type Binding; its members are in kernel.h. */
#ifndef SILO_BINDING_H
#define SILO_BINDING_H

#include "kernel.h"

extern PyTypeObject *silo_binding_type;

/* Begins a binding, whose packing and grid the caller fills in. Copies the dict `config`. Returns a
 * new reference, or NULL with an exception set. */
struct silo_binding *silo_binding_begin(PyTypeObject *type, PyObject *loaded, PyObject *config,
                                        PyObject *tag);

int silo_binding_init(PyObject *module);

#endif
