/* Reads the parameters of kernels from a file of device code (the .nv.info sections of a cubin, the
 * metadata note of an AMD code object), for drivers that do not report them.
 * silo.artifacts.binary_inspection does the same. The bytes are not trusted: time and memory are
 * bounded. */
#ifndef SILO_DEVICE_CODE_H
#define SILO_DEVICE_CODE_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>

/* The offset and size, in bytes, of a parameter in the buffer that a launch passes. */
struct silo_parameter_place {
    size_t offset, size;
};

/* Reads the places of the parameters of kernel `entry`, in order. Writes the first `room` of them
 * to `places` and returns the total number. On failure returns -1 with SILO_ERROR_LOAD: the code is
 * PTX or another format, is damaged, or does not contain the kernel; the error text begins with
 * "the code". */
int64_t silo_device_code_places(const void *data, size_t size, const char *entry,
                                struct silo_parameter_place *places, size_t room,
                                silo_error *error);

#endif
