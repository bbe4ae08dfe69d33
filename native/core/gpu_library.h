/* The libraries of GPU drivers, and what cuda_driver.c and hip_driver.c read from them by tables.
 */
#ifndef SILO_GPU_LIBRARY_H
#define SILO_GPU_LIBRARY_H

#include "gpu.h"

/* A function of a driver, and where its address goes: NULL if it is optional and missing. */
struct silo_gpu_symbol {
    char name[39]; /* no pointer: each would double the library's size, because it is relocated */
    bool optional;
    void *slot; /* a function pointer lies there */
};

/* A number that a driver states about a device, and the member that gets it. */
struct silo_gpu_question {
    int *value; /* -1 if it is optional and the driver lacks it */
    int attribute;
    bool optional;
};

/* Open the library at `path`, or the driver's usual one if that is NULL, and put its name into
 * `opened`; NULL with `error` filled, if it was empty. Never closed. */
void *silo_gpu_library(const struct silo_gpu *gpu, const char *path, const char **opened,
                       char *error, size_t error_bytes);

/* For `resolve`: fill every slot. The first name that is missing, NULL: all there. */
const char *silo_gpu_find(void *library, const struct silo_gpu_symbol *symbols, size_t count);

/* For `facts`: fill every value by the driver's function `ask`. 0, or the driver's code. */
int silo_gpu_ask(int (*ask)(int *value, int attribute, int device), int device,
                 const struct silo_gpu_question *questions, size_t count);

#endif
