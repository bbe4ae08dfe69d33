/* Copies and fills of host memory as kernels of the CPU, so that a plan has them among its launches. */
#ifndef SILO_CPU_COPY_H
#define SILO_CPU_COPY_H

#include "cpu_launch.h"

/* Parameters: to, from, bytes (64 bits). One program does it all. */
silo_cpu_entry silo_cpu_copy;
/* Parameters: to, the byte (32 bits), bytes (64 bits). */
silo_cpu_entry silo_cpu_fill;

#endif
