/* CPU kernels that copy and fill memory, so that a plan can run copies and fills between its
 * launches. */
#ifndef SILO_CPU_COPY_H
#define SILO_CPU_COPY_H

#include "cpu_launch.h"

/* Parameters: destination, source, bytes (64 bits). A single program copies everything. */
silo_cpu_entry silo_cpu_copy;
/* Parameters: destination, byte value (32 bits), bytes (64 bits). */
silo_cpu_entry silo_cpu_fill;

#endif
