/* Silo's interface to the CUDA driver. */
#ifndef SILO_CUDA_DRIVER_H
#define SILO_CUDA_DRIVER_H

#include "gpu.h"

extern struct silo_gpu silo_cuda;

#endif
