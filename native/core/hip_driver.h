/* Silo's interface to the HIP runtime. */
#ifndef SILO_HIP_DRIVER_H
#define SILO_HIP_DRIVER_H

#include "gpu.h"

extern struct silo_gpu silo_hip;

#endif
