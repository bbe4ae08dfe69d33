/* Opens GPU drivers, and makes devices with their contexts, once in a process.
 *
 * The functions are thread-safe. Starting a driver takes seconds, so callers release the GIL. Each
 * function that takes `error` fills it when it returns -1 or NULL. */
#ifndef SILO_DEVICE_H
#define SILO_DEVICE_H

#include "error.h"
#include "gpu.h"

/* Returns the driver named "cuda" or "hip"; NULL with SILO_ERROR_NO_DRIVER for other names. */
struct silo_gpu *silo_gpu_named(const char *name, silo_error *error);

/* Opens a driver from the library `path` (NULL: the usual library). If it is open already, does
 * nothing, or fails if it was opened from another library. Errors: the driver is not installed
 * (SILO_ERROR_NO_DRIVER), it has no device (SILO_ERROR_NO_DEVICE), or it was started by the parent
 * of this forked process (SILO_ERROR_FORKED). */
int silo_gpu_open(struct silo_gpu *gpu, const char *path, silo_error *error);

/* Opens the driver, and returns 0 if it has a device of that number. */
int silo_gpu_check_index(struct silo_gpu *gpu, int32_t index, silo_error *error);

/* Returns a device, whose context is made at its first use. A device lives as long as the process.
 */
struct silo_gpu_device *silo_gpu_device(struct silo_gpu *gpu, int32_t index, silo_error *error);

/* Returns the device if its context is made and usable, else NULL. Never blocks. */
SILO_INLINE struct silo_gpu_device *silo_gpu_opened(const struct silo_gpu *gpu, int32_t index) {
    if (index < 0 || index >= SILO_MAX_GPUS || gpu->inherited)
        return NULL;
    return __atomic_load_n(&gpu->devices[index], __ATOMIC_ACQUIRE);
}

/* Reads the driver's description of a device, without making a context. */
int silo_gpu_describe(struct silo_gpu *gpu, int32_t index, struct silo_gpu_facts *facts,
                      silo_error *error);

/* A number from the driver's description of a device. */
struct silo_gpu_number {
    const char *name; /* the name of the fact in expressions and in Python */
    int64_t value;
};

#define SILO_GPU_NUMBERS 20

/* Fills `numbers` with all numbers of a device's description; -1 for a number that the driver does
 * not report. */
void silo_gpu_numbers(const struct silo_gpu *gpu, const struct silo_gpu_facts *facts,
                      struct silo_gpu_number numbers[SILO_GPU_NUMBERS]);

/* Translates an error code of a driver's function: SILO_ERROR_MEMORY, _FAULT or _FORKED if the code
 * means one of these, else `otherwise`. */
int silo_gpu_code(const struct silo_gpu *gpu, int driver_code, int otherwise);

/* Fills `error` with "<action>: <NAME>: <text> (<driver_code>)" and the code of silo_gpu_code.
 * Returns -1. Call it before this thread calls the driver again, because the driver's text
 * describes the thread's last error. */
int silo_gpu_fail(silo_error *error, const struct silo_gpu *gpu, int otherwise, const char *action,
                  int driver_code);

/* In a child made by fork(): initializes the lock again, because a thread of the parent may have
 * held the lock. */
void silo_gpu_locks_renew(void);

/* Marks the process as ending: from now on nothing is unloaded, freed or waited for, because the
 * system frees everything. For a host that frees objects after the driver has shut down (Python's
 * atexit). */
void silo_gpu_end(void);
bool silo_gpu_ending(void);

#endif
