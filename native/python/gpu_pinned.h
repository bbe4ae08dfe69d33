/* The type PinnedMemory. */
#ifndef SILO_GPU_PINNED_H
#define SILO_GPU_PINNED_H

#include "python.h"

int silo_gpu_pinned_init(PyObject *module);

#endif
