/* Functions about GPU drivers and devices: gpu_open, gpu_attributes, ... */
#ifndef SILO_GPU_FUNCTIONS_H
#define SILO_GPU_FUNCTIONS_H

#include "python.h"

extern PyMethodDef silo_gpu_methods[];

#endif
