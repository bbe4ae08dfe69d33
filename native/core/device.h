/* GPU drivers opened and devices with their contexts made, once a process.
 *
 * None of this needs a lock of the caller's; call functions that may take long (a driver starts in
 * seconds) without Python's. Every function that takes `error` fills it and returns -1 or NULL.
 */
#ifndef SILO_DEVICE_H
#define SILO_DEVICE_H

#include "error.h"
#include "gpu.h"

/* The driver of "cuda" or "hip"; NULL with SILO_ERROR_NO_DRIVER. */
struct silo_gpu *silo_gpu_named(const char *name, silo_error *error);

/* Open a driver; `path` NULL means its usual library. A second call does nothing, or fails if it
 * names another library. Errors: the driver is not here (SILO_ERROR_NO_DRIVER), that it sees no
 * device (SILO_ERROR_NO_DEVICE), or that a parent of this process had it (SILO_ERROR_FORKED). */
int silo_gpu_open(struct silo_gpu *gpu, const char *path, silo_error *error);

/* 0 where the driver has a device of that number; opens it. */
int silo_gpu_check_index(struct silo_gpu *gpu, int32_t index, silo_error *error);

/* A device with its context made; it lives as long as the process. */
struct silo_gpu_device *silo_gpu_device(struct silo_gpu *gpu, int32_t index, silo_error *error);

/* The device if it is initialised and usable, else NULL. Never takes long. */
SILO_INLINE struct silo_gpu_device *silo_gpu_made(const struct silo_gpu *gpu, int32_t index) {
    if (index < 0 || index >= SILO_MAX_GPUS || gpu->inherited)
        return NULL;
    return __atomic_load_n(&gpu->devices[index], __ATOMIC_ACQUIRE);
}

/* The driver's description of a device; makes no context. */
int silo_gpu_describe(struct silo_gpu *gpu, int32_t index, struct silo_gpu_facts *facts,
                      silo_error *error);

/* A number that a driver states of a device. */
struct silo_gpu_number {
    const char *name; /* the name of the fact in expressions and in Python */
    int64_t value;
};

#define SILO_GPU_NUMBERS 20

/* All of them; -1 if the driver does not state it. */
void silo_gpu_numbers(const struct silo_gpu *gpu, const struct silo_gpu_facts *facts,
                      struct silo_gpu_number numbers[SILO_GPU_NUMBERS]);

/* The code for what a function of the table returned: SILO_ERROR_MEMORY, _FAULT or _FORKED if it
 * means these, else `otherwise`. */
int silo_gpu_code(const struct silo_gpu *gpu, int driver_code, int otherwise);

/* "<what>: <NAME>: <text> (<driver_code>)",, with the code that silo_gpu_code gives it.
 * Returns -1. Before the thread calls the driver again: the text is of its last error. */
int silo_gpu_fail(silo_error *error, const struct silo_gpu *gpu, int otherwise, const char *what,
                  int driver_code);

/* In a child made by fork: the lock that a thread of the parent may hold. */
void silo_gpu_locks_renew(void);

/* The process is ending: from now on nothing is unloaded, freed or waited for, the system does
 * that. For a host whose objects are freed after the driver is (Python's atexit). */
void silo_gpu_end(void);
bool silo_gpu_ending(void);

#endif
