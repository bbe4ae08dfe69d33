/* The type LoadedKernel; its members are in kernel.h. */
#ifndef SILO_LOADED_H
#define SILO_LOADED_H

#include "kernel.h"

extern PyTypeObject *silo_loaded_type;

int silo_loaded_init(PyObject *module);

#endif
