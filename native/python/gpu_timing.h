/* The types GpuStream and GpuEvent. */
#ifndef SILO_GPU_TIMING_H
#define SILO_GPU_TIMING_H

#include "python.h"

int silo_gpu_timing_init(PyObject *module);

#endif
