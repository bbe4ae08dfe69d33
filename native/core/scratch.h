/* Scratch memory for a launch on a GPU: allocated before the launch, and freed right after it in
 * the order of the stream, so that only later work of the stream can reuse it.
 *
 * It comes from the caller's allocator (silo_options.allocate), or from the driver's pool of the
 * device (cuMemAllocAsync, hipMallocAsync), which a capture records like the launch. */
#ifndef SILO_SCRATCH_H
#define SILO_SCRATCH_H

#include "device.h"
#include "error.h"

/* The callbacks of silo_options. If `allocate` is NULL, the driver's memory is used. */
struct silo_scratch_source {
    void *context;
    int (*allocate)(void *context, const silo_scratch *request, void **memory);
    void (*release)(void *context, const silo_scratch *request, void *memory); /* may be NULL */
};

/* The scratch memory of a launch; filled by silo_scratch_take. */
struct silo_lease {
    uint64_t address;     /* aligned as requested */
    silo_scratch request; /* the request passed to the source */
    void *memory;         /* owned until silo_scratch_give; at or below `address` */
    bool waits;           /* the driver has no pool: freeing waits for the stream */
};

/* Computes the bytes for all programs of a grid, with `each` bytes for a program. Returns -1 with
 * SILO_ERROR_GRID if the sum is 2^63 or more. */
int silo_scratch_total(const char *kernel, const int64_t dims[3], uint64_t each, int64_t *bytes,
                       silo_error *error);

/* Allocates `bytes` (more than 0), aligned to `alignment` (a power of two), for a launch on
 * `stream`. On failure returns -1 with SILO_ERROR_MEMORY, or with SILO_ERROR_CAPTURING if the
 * driver has no pool and the stream is being captured. The device's context need not be current. */
int silo_scratch_take(const struct silo_scratch_source *source, struct silo_gpu_device *device,
                      void *stream, const char *kernel, int64_t bytes, uint32_t alignment,
                      struct silo_lease *lease, silo_error *error);

/* Frees the memory once the launch is queued or was refused. */
void silo_scratch_give(const struct silo_scratch_source *source, struct silo_gpu_device *device,
                       const struct silo_lease *lease);

#endif
