/* Drivers and devices (device.h) for Python: their errors are raised, as DeviceErrors, and Python's
 * lock is released while the driver may take long. */
#ifndef SILO_GPU_DEVICE_H
#define SILO_GPU_DEVICE_H

#include "device.h"
#include "python.h"

/* The driver of "cuda" or "hip", opened; `library` NULL means its usual one. NULL with an exception
 * set. */
struct silo_gpu *silo_gpu_get_open(const char *kind, const char *library);

/* A device with its context made, or NULL with an exception set. */
struct silo_gpu_device *silo_gpu_get_device(const char *kind, int32_t index);

/* Adds settings by their names; and lets nothing be freed or waited for at exit. -1 with an
 * exception set. */
int silo_gpu_device_init(void);

/* Raise "<what>: <NAME>: <text> (<code>)"; -1. */
int silo_gpu_error(const struct silo_gpu *gpu, const char *what, int code);

#endif
