#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "device.h"

#include "gpu_library.h"
#include "memory_types.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Held while a driver is opened or a device's context is made, which takes up to seconds. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static bool ending;

void silo_gpu_locks_renew(void) {
    pthread_mutex_init(&opening, NULL);
}

void silo_gpu_end(void) {
    __atomic_store_n(&ending, true, __ATOMIC_RELAXED);
}

bool silo_gpu_ending(void) {
    return __atomic_load_n(&ending, __ATOMIC_RELAXED);
}

struct silo_gpu *silo_gpu_named(const char *name, silo_error *error) {
    for (struct silo_gpu *const *gpu = silo_gpus; *gpu != NULL; gpu++)
        if (strcmp(name, (*gpu)->name) == 0)
            return *gpu;
    silo_fail(error, SILO_ERROR_NO_DRIVER,
              "there is no GPU driver '%s'; there are 'cuda' and 'hip'", name);
    return NULL;
}

/* ---- errors ---- */

int silo_gpu_code(const struct silo_gpu *gpu, int driver_code, int otherwise) {
    if (gpu->inherited)
        return SILO_ERROR_FORKED;
    if (driver_code == SILO_GPU_OUT_OF_MEMORY)
        return SILO_ERROR_MEMORY;
    if (driver_code == SILO_GPU_NO_DEVICE)
        return SILO_ERROR_NO_DEVICE;
    return gpu->is_fault(driver_code) ? SILO_ERROR_FAULT : otherwise;
}

int silo_gpu_fail(silo_error *error, const struct silo_gpu *gpu, int otherwise, const char *action,
                  int driver_code) {
    return silo_fail_driver(error, silo_gpu_code(gpu, driver_code, otherwise), driver_code,
                            "%s: %s (%d)", action, gpu->driver->error_text(driver_code),
                            driver_code);
}

static int fail_device(silo_error *error, const struct silo_gpu *gpu, int32_t index,
                       const char *action, int driver_code) {
    char text[64];
    snprintf(text, sizeof text, "cannot %s device %s:%d", action, gpu->name, (int)index);
    return silo_gpu_fail(error, gpu, SILO_ERROR_NO_DEVICE, text, driver_code);
}

/* ---- opening ---- */

static int refuse_path(const struct silo_gpu *gpu, const char *path, silo_error *error) {
    if (path == NULL || strcmp(path, gpu->path) == 0)
        return 0;
    return silo_fail(error, SILO_ERROR_NO_DRIVER,
                     "the %s driver was opened from '%s' in this process and cannot be opened from "
                     "'%s' as well: name one library before the first use of a GPU",
                     gpu->name, gpu->path, path);
}

/* Loads and starts the driver, which may take seconds. */
static int open_driver(struct silo_gpu *gpu, const char *path, silo_error *error) {
    char message[512] = "";
    const char *opened = NULL;
    if (gpu->open)
        return refuse_path(gpu, path, error);
    void *library = silo_gpu_library(gpu, path, &opened, message, sizeof message);
    if (library == NULL)
        return silo_fail(error, SILO_ERROR_NO_DRIVER,
                         "no %s driver here: %s. It comes with the GPU's driver, not with a "
                         "toolkit; where it lies elsewhere, name it with %s",
                         gpu->name, message, gpu->setting);
    const char *missing = gpu->resolve(library);
    if (missing != NULL)
        return silo_fail(error, SILO_ERROR_NO_DRIVER,
                         "the %s driver in '%s' has no function %s: Silo needs driver %s or newer",
                         gpu->name, opened, missing, gpu->oldest);
    gpu->begun = true;
    const int code = gpu->start();
    gpu->begun = code == 0;
    if (code != 0) /* the library is not closed: threads that it started may be running */
        return silo_fail_driver(error, silo_gpu_code(gpu, code, SILO_ERROR_NO_DRIVER), code,
                                "the %s driver in '%s' does not start: %s (%d)", gpu->name, opened,
                                gpu->driver->error_text(code), code);
    char *path_copy = strdup(opened); /* owned by `gpu`, never freed */
    if (path_copy == NULL)
        return silo_fail_memory(error);
    if (gpu->device_count > SILO_MAX_GPUS)
        gpu->device_count = SILO_MAX_GPUS;
    gpu->path = path_copy;
    __atomic_store_n(&gpu->open, true, __ATOMIC_RELEASE);
    return 0;
}

int silo_gpu_open(struct silo_gpu *gpu, const char *path, silo_error *error) {
    if (gpu->inherited) /* a forked child cannot use the driver (gpu_forked.c) */
        return silo_fail(error, SILO_ERROR_FORKED,
                         "the %s driver cannot be used in this process, which fork() made after "
                         "its parent had started the driver: make processes that use a GPU with "
                         "multiprocessing's 'spawn' or 'forkserver', or fork before the first use "
                         "of a GPU",
                         gpu->name);
    if (__atomic_load_n(&gpu->open, __ATOMIC_ACQUIRE))
        return refuse_path(gpu, path, error);
    pthread_mutex_lock(&opening);
    const int result = open_driver(gpu, path, error);
    pthread_mutex_unlock(&opening);
    return result;
}

/* ---- devices ---- */

int silo_gpu_check_index(struct silo_gpu *gpu, int32_t index, silo_error *error) {
    if (silo_gpu_open(gpu, NULL, error) != 0)
        return -1;
    if (index >= 0 && index < gpu->device_count)
        return 0;
    if (gpu->device_count == 0)
        return silo_fail(error, SILO_ERROR_NO_DEVICE,
                         "there is no device %s:%d: the driver sees no device", gpu->name,
                         (int)index);
    return silo_fail(error, SILO_ERROR_NO_DEVICE,
                     "there is no device %s:%d; there are %s:0 to %s:%d", gpu->name, (int)index,
                     gpu->name, gpu->name, gpu->device_count - 1);
}

static int make_device(struct silo_gpu *gpu, int32_t index, struct silo_gpu_device **out) {
    struct silo_gpu_facts facts;
    /* owned by `gpu` once it is in `gpu->devices` */
    struct silo_gpu_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return SILO_GPU_OUT_OF_MEMORY;
    device->gpu = gpu;
    device->index = index;
    int code = gpu->facts(index, &facts);
    if (code == 0)
        code = gpu->context(device);
    if (code != 0) {
        free(device);
        return code;
    }
    device->shared_block = facts.shared_per_block;
    device->shared_optin = facts.shared_per_block_optin > facts.shared_per_block
                               ? facts.shared_per_block_optin
                               : facts.shared_per_block;
    device->max_threads = facts.max_threads_per_block;
    device->warp_size = facts.warp_size;
    memcpy(device->block_limit, facts.block_limit, sizeof device->block_limit);
    memcpy(device->grid_limit, facts.grid_limit, sizeof device->grid_limit);
    device->cluster_launch = facts.cluster_launch;
    device->cooperative_launch = facts.cooperative_launch > 0;
    device->programmatic_launch = facts.programmatic_launch;
    device->total_memory = facts.total_memory;
    snprintf(device->name, sizeof device->name, "%.63s", facts.name);
    snprintf(device->arch, sizeof device->arch, "%.63s", facts.arch);
    __atomic_store_n(&gpu->devices[index], device, __ATOMIC_RELEASE);
    *out = device;
    return 0;
}

struct silo_gpu_device *silo_gpu_device(struct silo_gpu *gpu, int32_t index, silo_error *error) {
    struct silo_gpu_device *device = silo_gpu_opened(gpu, index);
    if (device != NULL)
        return device;
    if (silo_gpu_check_index(gpu, index, error) != 0)
        return NULL;
    int code = 0;
    pthread_mutex_lock(&opening);
    device = gpu->devices[index];
    if (device == NULL)
        code = make_device(gpu, index, &device);
    pthread_mutex_unlock(&opening);
    if (device == NULL)
        fail_device(error, gpu, index, "use", code);
    return device;
}

void silo_gpu_numbers(const struct silo_gpu *gpu, const struct silo_gpu_facts *facts,
                      struct silo_gpu_number numbers[SILO_GPU_NUMBERS]) {
    const struct silo_gpu_number all[] = {
        {"total_memory", (int64_t)facts->total_memory},
        {"sm_count", facts->sm_count},
        {"warp_size", facts->warp_size},
        {"max_threads_per_block", facts->max_threads_per_block},
        {"max_threads_per_sm", facts->max_threads_per_sm},
        {"registers_per_block", facts->registers_per_block},
        {"registers_per_sm", facts->registers_per_sm},
        {"shared_per_block", facts->shared_per_block},
        {"shared_per_block_optin", facts->shared_per_block_optin},
        {"shared_per_sm", facts->shared_per_sm},
        {"l2_bytes", facts->l2_bytes},
        {"clock_khz", facts->clock_khz},
        {"memory_clock_khz", facts->memory_clock_khz},
        {"memory_bus_bits", facts->memory_bus_bits},
        {"compute_capability_major", facts->major},
        {"compute_capability_minor", facts->minor},
        {"cluster_launch", facts->cluster_launch},
        {"cooperative_launch", facts->cooperative_launch},
        {"programmatic_launch", facts->programmatic_launch},
        {"driver_version", gpu->version},
    };
    _Static_assert(sizeof all == SILO_GPU_NUMBERS * sizeof *numbers, "one entry a number");
    memcpy(numbers, all, sizeof all);
}

int silo_gpu_describe(struct silo_gpu *gpu, int32_t index, struct silo_gpu_facts *facts,
                      silo_error *error) {
    if (silo_gpu_check_index(gpu, index, error) != 0)
        return -1;
    const int code = gpu->facts(index, facts);
    return code == 0 ? 0 : fail_device(error, gpu, index, "describe", code);
}
