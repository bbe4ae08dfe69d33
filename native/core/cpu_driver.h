/* The CPU driver: shared objects from memory, kernels run on the thread pool. */
#ifndef SILO_CPU_DRIVER_H
#define SILO_CPU_DRIVER_H

#include "driver.h"

#include <stddef.h>

extern const struct silo_driver silo_cpu_driver;

/* Map an object; NULL with `error` filled. Owned by the caller, freed with silo_cpu_close. It is
 * mapped from memory if the system supports that; else through a file in a new 0700 folder under
 * `directory`, removed again before this returns. */
void *silo_cpu_open(const void *data, size_t size, const char *directory, char *error,
                    size_t error_size);

/* The kernel with this name; NULL with `error` filled if the object itself does not define it. */
void *silo_cpu_symbol(void *object, const char *name, char *error, size_t error_size);

void silo_cpu_close(void *object);

#endif
