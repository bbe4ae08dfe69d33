/* HostBuffer: an array in host memory for programs without any array library. */
#ifndef SILO_BUFFER_H
#define SILO_BUFFER_H

#include "python.h"

int silo_buffer_init(PyObject *module);

#endif
