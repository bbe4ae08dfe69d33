/* CpuModule and GpuModule: loaded code (binary.h) as Python objects. */
#ifndef SILO_CODE_H
#define SILO_CODE_H

#include "binary.h"
#include "python.h"

struct silo_code_object {
    PyObject_HEAD struct silo_binary *binary; /* owned: one reference */
    PyObject *weakrefs; /* the list of weak references to the object, which Python maintains */
};

extern PyTypeObject *silo_cpu_module_type, *silo_gpu_module_type;

int silo_code_init(PyObject *module);

#endif
