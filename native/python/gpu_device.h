/* Drivers and devices (device.h) for Python: errors become DeviceErrors, and the GIL is released
 * while the driver may take long. */
#ifndef SILO_GPU_DEVICE_H
#define SILO_GPU_DEVICE_H

#include "device.h"
#include "python.h"

/* Opens the driver "cuda" or "hip" and returns it; `library` is its file, NULL for the usual one.
 * Returns NULL with an exception set. */
struct silo_gpu *silo_gpu_get_open(const char *kind, const char *library);

/* Returns a device whose context exists, or NULL with an exception set. */
struct silo_gpu_device *silo_gpu_get_device(const char *kind, int32_t index);

/* Stores the names of the settings SILO_CUDA_LIBRARY and SILO_HIP_LIBRARY for error messages, and
 * registers an exit function after which nothing is freed or waited for. Returns -1 with an
 * exception set. */
int silo_gpu_device_init(void);

/* Raises "<action>: <NAME>: <text> (<code>)" and returns -1. */
int silo_gpu_error(const struct silo_gpu *gpu, const char *action, int code);

#endif
