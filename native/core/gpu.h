/* GPU drivers: the functions of libcuda or libamdhip64 that Silo uses, found by dlopen. Neither a
 * toolkit nor a vendor's headers are needed to build or run.
 *
 * A driver is opened once and stays open, and the primary contexts of devices that were used stay
 * alive. The functions return 0 or the driver's own error code, and may be called from any thread.
 * Functions that work on a device need its context: call `silo_gpu_enter` first. */
#ifndef SILO_GPU_H
#define SILO_GPU_H

#include "base.h"
#include "driver.h"

#define SILO_MAX_GPUS 64

/* Error codes that have the same number in both drivers. */
enum silo_gpu_code {
    SILO_GPU_INVALID_VALUE = 1,
    SILO_GPU_OUT_OF_MEMORY = 2,
    SILO_GPU_NOT_INITIALIZED = 3,
    SILO_GPU_NO_DEVICE = 100,
    SILO_GPU_INVALID_IMAGE = 200,
    SILO_GPU_NO_BINARY = 209, /* the code contains nothing for this device */
    SILO_GPU_INVALID_PTX = 218,
    SILO_GPU_NO_COMPILER = 221,
    SILO_GPU_NEWER_PTX = 222,
    SILO_GPU_NOT_FOUND = 500,
    SILO_GPU_NOT_READY = 600,
    SILO_GPU_ILLEGAL_ADDRESS = 700,
    SILO_GPU_ASSERT = 710,
    SILO_GPU_STACK_ERROR = 714, /* the codes 714 to 719 report faults of a kernel */
    SILO_GPU_LAUNCH_FAILED = 719,
    SILO_GPU_NOT_SUPPORTED = 801,
    SILO_GPU_CAPTURES = 900, /* codes from 900 on are about stream capture */
    SILO_GPU_CAPTURE_IMPLICIT = 906,
};

#define SILO_GPU_NON_BLOCKING 1U /* flag of stream_create, the same in both drivers */

struct silo_gpu_retired;

struct silo_gpu_device {
    struct silo_gpu *gpu;
    int32_t index;
    int ordinal;   /* the driver's own number (CUdevice) */
    void *context; /* CUDA's primary context, retained until the process ends; NULL on HIP */
    char name[64], arch[64]; /* for messages: "NVIDIA H100", "sm_90" */
    uint64_t total_memory;   /* bytes */
    /* Read from the driver when the device is first used. */
    int shared_block; /* shared memory that a block may use by default, in bytes */
    int shared_optin; /* shared memory that a block may use after opting in, in bytes */
    int max_threads;  /* the most threads of a block in all; `block_limit`: along each axis */
    int block_limit[3];
    int warp_size;
    int grid_limit[3];
    int cluster_launch, cooperative_launch, programmatic_launch; /* 0 or 1 */
    void *stream; /* a non-blocking stream for Silo; owned, made at its first use, never freed */
    struct silo_gpu_retired *retired; /* modules that wait to be unloaded (binary.c) */
};

/* The driver's description of a device, which is read without making a context. Units are in the
 * names of `gpu_attributes` (gpu_functions.c). -1: the driver does not report the number. */
struct silo_gpu_facts {
    char name[128];
    char arch[128]; /* on AMD with features: "gfx90a:sramecc+:xnack-" */
    uint64_t total_memory;
    int sm_count, warp_size, max_threads_per_block, max_threads_per_sm;
    int registers_per_block, registers_per_sm;
    int shared_per_block, shared_per_block_optin, shared_per_sm;
    int l2_bytes, clock_khz, memory_clock_khz, memory_bus_bits;
    int major, minor;
    int cluster_launch, cooperative_launch, programmatic_launch;
    int block_limit[3], grid_limit[3];
    int pci_domain, pci_bus, pci_device;
    uint8_t uuid[16]; /* zeros if unknown */
};

/* The state of a thread before `enter`, which `leave` restores. */
struct silo_gpu_scope {
    struct silo_gpu *gpu;
    int previous; /* HIP: the device that was current; CUDA: 1 if a context was pushed */
    int mode;     /* the thread's capture mode; -1: not changed */
};

/* The driver's functions for graphs of kernels (graph_plan.c). They return 0 or the driver's code.
 * Handles are the driver's. All but `launch` must be called between `enter` and `leave`. */
struct silo_gpu_graphs {
    int (*create)(void **graph);
    /* Adds a node that runs `launch` once the nodes of `after` are done. Parameters are copied; the
     * launch's stream is ignored, and so is programmatic dependent launch. */
    int (*add)(void *graph, const struct silo_launch *launch, void *const *after,
               size_t after_count, void **node);
    /* Adds a node that runs a copy of another graph. */
    int (*add_graph)(void *graph, void *child, void *const *after, size_t after_count, void **node);
    /* Makes a node changeable by kernels of the same graph; this cannot be undone. `*handle`
     * identifies the node in device code. */
    int (*let_update)(void *node, uint64_t *handle);
    int (*instantiate)(void **executable, void *graph);
    int (*upload)(void *executable, void *stream);
    int (*launch)(const struct silo_gpu_device *device, void *executable, void *stream);
    /* Change a node for later launches: its parameters and grid, and whether it runs. */
    int (*set)(void *executable, void *node, const struct silo_launch *launch);
    int (*enable)(void *executable, void *node, unsigned enabled);
    int (*free)(void *executable); /* a graph that is running is freed once it is done */
    int (*destroy)(void *graph);
};

struct silo_gpu {
    const struct silo_driver *driver; /* entry in the driver table */
    const char *name;                 /* "cuda" or "hip", as in targets */
    int32_t memory_type, host_type; /* DLPack device types of device memory and of pinned memory */
    const char *libraries[4];       /* names to open, in this order; ends with NULL */
    const char *setting;  /* for messages: the option that sets the path of another library */
    bool reads_image;     /* the driver may read a module's code until it is unloaded */
    bool counts_threads;  /* the grid's 32-bit limit counts threads, not blocks */
    bool array_interface; /* arrays with __cuda_array_interface__ are in this driver's memory */
    const char *oldest;   /* for messages: the oldest driver with all functions */
    bool open;            /* whether the driver is open, so that the functions below are set */
    bool begun;     /* the driver is starting or has started; written under the lock in device.c */
    bool inherited; /* this process is a forked child of the one that opened the driver, and cannot
                       use it */
    int device_count;
    int version;      /* the driver's version in the driver's own encoding: 12040 for CUDA 12.4 */
    const char *path; /* path of the opened library; owned, never freed */
    /* owned, made at their first use, never freed */
    struct silo_gpu_device *devices[SILO_MAX_GPUS];

    int (*set_device)(struct silo_gpu_device *device); /* makes the device's context current */
    int (*memory_alloc)(uint64_t *address, size_t bytes);
    int (*memory_info)(size_t *available, size_t *total); /* bytes, of the current device */
    int (*memory_free)(uint64_t address);
    /* Allocate and free in the order of a stream, from the driver's pool. Not available if NULL, or
     * if they return NOT_SUPPORTED. */
    int (*memory_alloc_async)(uint64_t *address, size_t bytes, void *stream);
    int (*memory_free_async)(uint64_t address, void *stream);
    int (*host_alloc)(void **memory, size_t bytes); /* pinned, accessible by every device */
    int (*host_free)(void *memory);
    /* asynchronous; `copy` works in any direction between host and device memory */
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
    int (*fill)(uint64_t address, unsigned char value, size_t bytes, void *stream);
    int (*synchronize)(void);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_synchronize)(void *stream);
    int (*stream_capturing)(void *stream, int *status); /* status 0: not capturing */
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_synchronize)(void *event);
    int (*event_elapsed)(float *milliseconds, void *begin, void *end);
    /* PTX must end with a zero byte. `log` receives the messages of the driver's compiler, or "".
     */
    int (*module_load)(void **module, const void *image, char *log, size_t log_bytes);
    int (*module_unload)(void *module);
    int (*module_function)(void **function, void *module, const char *name);
    /* Finds the kind and device of memory. `*type` is a DLPack device type: of device memory,
     * pinned or managed memory, or the CPU's for memory unknown to the driver. */
    int (*locate)(uint64_t address, int32_t *type, int32_t *index);
    /* Finds the device whose context is current in this thread; returns nonzero if there is none.
     */
    int (*current_device)(int32_t *index);
    /* cuTensorMapEncodeTiled; NULL on HIP and on CUDA drivers before 12.0. Needs no context. The
     * map is 128 bytes aligned to 64. */
    int (*tensor_map_encode)(void *map, int dtype, uint32_t rank, void *address,
                             const uint64_t *sizes, const uint64_t *byte_strides,
                             const uint32_t *box, const uint32_t *element_strides, int interleave,
                             int swizzle, int l2_promotion, int oob_fill);

    /* NULL if the driver lacks graphs, or Silo does not use them with this driver */
    const struct silo_gpu_graphs *graphs;

    /* Whether an error code means that a kernel or the device failed while it ran. After such an
     * error nothing runs on the device in this process. */
    bool (*is_fault)(int code);
    /* Waits for all work of the current device, without breaking a capture in another thread (for
     * binary.c). */
    int (*drain)(void);
    /* Called in a child made by fork(): makes launches fail without calling the driver. */
    void (*abandon)(void);
    /* Finds the library's functions. Returns NULL, or the name of a function that is missing
     * (static text). */
    const char *(*resolve)(void *library);
    /* After `resolve`: starts the driver and fills device_count and version. */
    int (*start)(void);
    int (*facts)(int32_t index, struct silo_gpu_facts *facts);
    int (*context)(struct silo_gpu_device *device); /* makes the device's primary context */
    int (*enter)(struct silo_gpu_device *device, struct silo_gpu_scope *scope);
    void (*leave)(struct silo_gpu_scope *scope);
    /* The function's static shared memory in bytes, and the most threads of a block. */
    int (*function_limits)(void *function, int *static_shared, int *max_threads);
    /* The offset and size of parameter `index` in the buffer that a launch passes, in bytes.
     * Returns nonzero if there is no such parameter. NULL if the driver does not report them: HIP,
     * CUDA before 12.4. */
    int (*function_parameter)(void *function, size_t index, size_t *offset, size_t *size);
    /* Opts in to the resources that a launch of `function` needs (such as much shared memory), and
     * fills the function's launch attributes. */
    int (*function_prepare)(const struct silo_gpu_device *device, struct silo_function *function,
                            int static_shared);
};

/* Makes the device's context current in this thread, in the capture mode that allows allocating and
 * loading while another thread captures. `leave` restores the former state. Returns 0, or the
 * driver's code; after an error `leave` must not be called. */
SILO_INLINE int silo_gpu_enter(struct silo_gpu_device *device, struct silo_gpu_scope *scope) {
    return device->gpu->enter(device, scope);
}

SILO_INLINE void silo_gpu_leave(struct silo_gpu_scope *scope) {
    scope->gpu->leave(scope);
}

#endif
