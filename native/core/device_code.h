/* The parameters of kernels as recorded in a file of device code, for drivers that do not report
 * them: a cubin's .nv.info sections, the metadata note of an AMD code object. As
 * silo.artifacts.binary_inspection reads them; bounded, whatever the bytes are. */
#ifndef SILO_DEVICE_CODE_H
#define SILO_DEVICE_CODE_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>

/* The offset of a parameter in the list that a launch hands over, bytes. */
struct silo_parameter_place {
    size_t offset, size;
};

/* The parameters of kernel `entry`, in order: their number, of which up to `room` are written. -1
 * with SILO_ERROR_LOAD: PTX, another format, damaged, or without the kernel; the text begins with
 * "the code". */
int64_t silo_device_code_places(const void *data, size_t size, const char *entry,
                                struct silo_parameter_place *places, size_t room,
                                silo_error *error);

#endif
