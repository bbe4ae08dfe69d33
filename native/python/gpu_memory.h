/* The type GpuBuffer. */
#ifndef SILO_GPU_MEMORY_H
#define SILO_GPU_MEMORY_H

#include "python.h"

int silo_gpu_memory_init(PyObject *module);

#endif
