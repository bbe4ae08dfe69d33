/* Opens the libraries of GPU drivers, and fills tables of functions and numbers for cuda_driver.c
 * and hip_driver.c. */
#ifndef SILO_GPU_LIBRARY_H
#define SILO_GPU_LIBRARY_H

#include "gpu.h"

/* A function of a driver, and where to store its address (NULL if it is optional and missing). */
struct silo_gpu_symbol {
    char name[39]; /* an array, not a pointer: relocations of pointers would double the library's
                      size */
    bool optional;
    void *slot; /* address of a function pointer */
};

/* A number that a driver reports about a device, and where to store it. */
struct silo_gpu_question {
    int *value; /* set to -1 if the number is optional and the driver lacks it */
    int attribute;
    bool optional;
};

/* Opens the library at `path` (NULL: the driver's usual library) and sets `*opened` to its name.
 * Returns NULL if no library can be opened, with the first reason in `error`, which the caller has
 * set to "". Libraries are never closed. */
void *silo_gpu_library(const struct silo_gpu *gpu, const char *path, const char **opened,
                       char *error, size_t error_bytes);

/* Stores the address of each function. Returns the first name that is missing, or NULL. */
const char *silo_gpu_find(void *library, const struct silo_gpu_symbol *symbols, size_t count);

/* Reads each number with the driver's function `get_attribute`. Returns 0 or the driver's code. */
int silo_gpu_ask(int (*get_attribute)(int *value, int attribute, int device), int device,
                 const struct silo_gpu_question *questions, size_t count);

#endif
