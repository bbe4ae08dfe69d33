/* Scratch memory of a launch on a GPU: taken before it, given back right after it in the order of
 * the stream, so that only later work of the stream can get it.
 *
 * It comes from the caller's allocator (silo_options.allocate), or from the driver's pool of the
 * device (cuMemAllocAsync, hipMallocAsync), which a capture records like the launch. */
#ifndef SILO_SCRATCH_H
#define SILO_SCRATCH_H

#include "device.h"
#include "error.h"

/* The callbacks of silo_options. `allocate` NULL: the driver's own memory. */
struct silo_scratch_source {
    void *context;
    int (*allocate)(void *context, const silo_scratch *wanted, void **memory);
    void (*release)(void *context, const silo_scratch *wanted, void *memory); /* may be NULL */
};

/* The scratch memory of a launch; callers fill nothing. */
struct silo_lease {
    uint64_t address;    /* aligned as asked */
    silo_scratch wanted; /* as requested from the source */
    void *memory;        /* owned until silo_scratch_give; at or below `address` */
    bool waits;          /* this driver lacks a pool: giving back waits for the stream */
};

/* Bytes for all programs of a grid, `each` for one: SILO_ERROR_GRID where that is 2^63 or more. */
int silo_scratch_total(const char *kernel, const int64_t dims[3], uint64_t each, int64_t *bytes,
                       silo_error *error);

/* Take `bytes` (more than 0) at a multiple of `alignment`, a power of two; a launch on `stream`
 * uses it. SILO_ERROR_MEMORY, or SILO_ERROR_CAPTURING if the driver lacks a pool and the stream is
 * captured. The device's context need not be current. */
int silo_scratch_take(const struct silo_scratch_source *source, struct silo_gpu_device *device,
                      void *stream, const char *kernel, int64_t bytes, uint32_t alignment,
                      struct silo_lease *lease, silo_error *error);

/* Return a lease once the launch is queued, or was refused. */
void silo_scratch_give(const struct silo_scratch_source *source, struct silo_gpu_device *device,
                       const struct silo_lease *lease);

#endif
