/* What a file of device code says of the parameters of its kernels, where the driver does not say
 * it: a cubin's .nv.info sections, the metadata note of an AMD code object. As
 * silo.artifacts.binary_inspection reads them; bounded, whatever the bytes are. */
#ifndef SILO_DEVICE_CODE_H
#define SILO_DEVICE_CODE_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>

/* Where a parameter lies in the list that a launch hands over, bytes. */
struct silo_parameter_place {
    size_t offset, size;
};

/* The parameters of kernel `entry`, in order: their number, of which up to `room` are written. -1
 * with SILO_ERROR_LOAD: PTX, something else, damaged, or without such a kernel; the text begins
 * with "the code". */
int64_t silo_device_code_places(const void *data, size_t size, const char *entry,
                                struct silo_parameter_place *places, size_t room,
                                silo_error *error);

#endif
