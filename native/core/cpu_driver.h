/* The CPU driver: maps shared objects from memory, and runs kernels on the thread pool. */
#ifndef SILO_CPU_DRIVER_H
#define SILO_CPU_DRIVER_H

#include "driver.h"

#include <stddef.h>

extern const struct silo_driver silo_cpu_driver;

/* Maps a shared object into memory; NULL with `error` filled. The result is owned by the caller and
 * freed with silo_cpu_close. The object is mapped from memory if the system supports that;
 * otherwise it is written to a file in a new folder of mode 0700 under `directory`, and the folder
 * is removed before this function returns. */
void *silo_cpu_open(const void *data, size_t size, const char *directory, char *error,
                    size_t error_size);

/* Returns the kernel with this name. Returns NULL with `error` filled if the object itself does not
 * define the kernel (a library that the object depends on does not count). */
void *silo_cpu_symbol(void *object, const char *name, char *error, size_t error_size);

void silo_cpu_close(void *object);

#endif
