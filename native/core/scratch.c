#include "scratch.h"

#include <stdio.h>

/* The alignment of memory from the drivers' pools (cuMemAlloc: "suitably aligned for any kind of
 * variable", which is 256 on every device; the same on ROCm). */
#define POOL_ALIGNMENT 256

int silo_scratch_total(const char *kernel, const int64_t dims[3], uint64_t each, int64_t *bytes,
                       silo_error *error) {
    int64_t total = (int64_t)each;
    bool overflow = each > INT64_MAX;
    for (int axis = 0; axis < 3; axis++)
        overflow |= __builtin_mul_overflow(total, dims[axis], &total);
    if (overflow)
        return silo_fail(error, SILO_ERROR_GRID,
                         "%s: grid (%lld, %lld, %lld) with %llu bytes of scratch memory a program "
                         "needs more than 2^63 bytes",
                         kernel, (long long)dims[0], (long long)dims[1], (long long)dims[2],
                         (unsigned long long)each);
    *bytes = total;
    return 0;
}

/* ---- memory of the driver ---- */

/* Allocates from the driver's pool, in the order of the stream. Without a pool (old drivers, some
 * virtual GPUs) sets `*waits`: the memory is freed once the stream has done its work. */
static int allocate(struct silo_gpu_device *device, void *stream, size_t bytes, uint64_t *address,
                    bool *waits) {
    const struct silo_gpu *gpu = device->gpu;
    struct silo_gpu_scope scope;
    int status = 0, code = silo_gpu_enter(device, &scope);
    if (code != 0)
        return code;
    code = gpu->memory_alloc_async != NULL && gpu->memory_free_async != NULL
               ? gpu->memory_alloc_async(address, bytes, stream)
               : SILO_GPU_NOT_SUPPORTED;
    *waits = code == SILO_GPU_NOT_SUPPORTED;
    if (*waits) {
        code = stream != NULL ? gpu->stream_capturing(stream, &status) : 0;
        if (code == 0 && status != 0)
            code = SILO_GPU_CAPTURES;
        else if (code == 0)
            code = gpu->memory_alloc(address, bytes);
    }
    silo_gpu_leave(&scope);
    return code;
}

static void free_memory(struct silo_gpu_device *device, const struct silo_lease *lease) {
    const struct silo_gpu *gpu = device->gpu;
    const uint64_t address = (uint64_t)(uintptr_t)lease->memory;
    struct silo_gpu_scope scope;
    /* If the driver or the context is gone, the memory is gone with it. */
    if (silo_gpu_ending() || silo_gpu_enter(device, &scope) != 0)
        return;
    if (lease->waits) {
        gpu->stream_synchronize(lease->request.queue.stream);
        gpu->memory_free(address);
    } else {
        gpu->memory_free_async(address, lease->request.queue.stream);
    }
    silo_gpu_leave(&scope);
}

static int take_own(struct silo_gpu_device *device, const char *kernel, struct silo_lease *lease,
                    silo_error *error) {
    const size_t alignment = lease->request.alignment;
    const size_t spare = alignment > POOL_ALIGNMENT ? alignment : 0;
    uint64_t address = 0;
    const int code = allocate(device, lease->request.queue.stream, lease->request.bytes + spare,
                              &address, &lease->waits);
    if (code == SILO_GPU_CAPTURES && lease->waits)
        return silo_fail_driver(
            error, SILO_ERROR_CAPTURING, code,
            "%s needs %zu bytes of scratch memory, which this %s driver cannot give within a graph "
            "that is captured: give an allocator, or capture with a newer driver",
            kernel, lease->request.bytes, device->gpu->name);
    if (code != 0) {
        char text[256];
        snprintf(text, sizeof text, "%.100s: cannot take %zu bytes of scratch memory on %s:%d",
                 kernel, lease->request.bytes, device->gpu->name, (int)device->index);
        return silo_gpu_fail(error, device->gpu, SILO_ERROR_MEMORY, text, code);
    }
    lease->memory = (void *)(uintptr_t)address;
    lease->address = spare != 0 ? (address + alignment - 1) & ~(uint64_t)(alignment - 1) : address;
    return 0;
}

/* ---- memory of the caller ---- */

static int take_from_caller(const struct silo_scratch_source *source, const char *kernel,
                            struct silo_lease *lease, silo_error *error) {
    const silo_scratch *request = &lease->request;
    void *memory = NULL;
    const int code = source->allocate(source->context, request, &memory);
    const uint64_t address = (uint64_t)(uintptr_t)memory;
    if (code == 0 && address != 0 && address % request->alignment == 0) {
        lease->memory = memory;
        lease->address = address;
        return 0;
    }
    if (code == 0 && address != 0 && source->release != NULL)
        source->release(source->context, request, memory);
    if (code != 0)
        return silo_fail(error, SILO_ERROR_MEMORY,
                         "%s needs %zu bytes of scratch memory at a multiple of %zu bytes; the "
                         "allocator returned %d",
                         kernel, request->bytes, request->alignment, code);
    return silo_fail(error, SILO_ERROR_MEMORY,
                     "%s needs %zu bytes of scratch memory at a multiple of %zu bytes; the "
                     "allocator gave address %llu",
                     kernel, request->bytes, request->alignment, (unsigned long long)address);
}

int silo_scratch_take(const struct silo_scratch_source *source, struct silo_gpu_device *device,
                      void *stream, const char *kernel, int64_t bytes, uint32_t alignment,
                      struct silo_lease *lease, silo_error *error) {
    *lease =
        (struct silo_lease){.request = {.queue = {device->gpu->memory_type, device->index, stream},
                                        .bytes = (size_t)bytes,
                                        .alignment = alignment > 0 ? alignment : 1}};
    return source != NULL && source->allocate != NULL
               ? take_from_caller(source, kernel, lease, error)
               : take_own(device, kernel, lease, error);
}

void silo_scratch_give(const struct silo_scratch_source *source, struct silo_gpu_device *device,
                       const struct silo_lease *lease) {
    if (source == NULL || source->allocate == NULL)
        free_memory(device, lease);
    else if (source->release != NULL)
        source->release(source->context, &lease->request, lease->memory);
}
