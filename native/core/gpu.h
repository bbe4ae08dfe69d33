/* GPU drivers: the functions of libcuda or libamdhip64 that Silo uses, found by dlopen. No toolkit
 * and no header of a vendor is needed to build or to run.
 *
 * A driver is opened once and stays open; so do the primary contexts of the devices that were used.
 * Functions of the table return 0 or the driver's own error code, and are safe from any thread.
 * Those that work on a device need its context: `silo_gpu_enter` first. */
#ifndef SILO_GPU_H
#define SILO_GPU_H

#include "base.h"
#include "driver.h"

#define SILO_MAX_GPUS 64

/* Codes with the same number in both drivers. */
enum silo_gpu_code {
    SILO_GPU_INVALID_VALUE = 1,
    SILO_GPU_OUT_OF_MEMORY = 2,
    SILO_GPU_NOT_INITIALIZED = 3,
    SILO_GPU_NO_DEVICE = 100,
    SILO_GPU_INVALID_IMAGE = 200,
    SILO_GPU_NO_BINARY = 209, /* for this device, in the code */
    SILO_GPU_INVALID_PTX = 218,
    SILO_GPU_NO_COMPILER = 221,
    SILO_GPU_NEWER_PTX = 222,
    SILO_GPU_NOT_FOUND = 500,
    SILO_GPU_NOT_READY = 600,
    SILO_GPU_ILLEGAL_ADDRESS = 700,
    SILO_GPU_ASSERT = 710,
    SILO_GPU_STACK_ERROR = 714, /* codes from here to the next are about faults of a kernel */
    SILO_GPU_LAUNCH_FAILED = 719,
    SILO_GPU_NOT_SUPPORTED = 801,
    SILO_GPU_CAPTURES = 900, /* codes from here on are about captures */
    SILO_GPU_CAPTURE_IMPLICIT = 906,
};

#define SILO_GPU_NON_BLOCKING 1U /* of stream_create; the same in both drivers */

struct silo_gpu_retired;

struct silo_gpu_device {
    struct silo_gpu *gpu;
    int32_t index;
    int ordinal;   /* the driver's own number (CUdevice) */
    void *context; /* CUDA's primary context, retained until the process ends; NULL on HIP */
    char name[64], arch[64]; /* "NVIDIA H100", "sm_90"; for messages */
    uint64_t total_memory;   /* bytes */
    /* Read from the driver when the device is first used. */
    int shared_block; /* bytes of shared memory a block has without asking */
    int shared_optin; /* and with asking */
    int max_threads;  /* per block, and on each of its axes */
    int block_limit[3];
    int warp_size;
    int grid_limit[3];
    int cluster_launch, cooperative_launch, programmatic_launch; /* 0 or 1 */
    void *stream; /* one of our own that waits for none; owned, made when first used, never freed */
    struct silo_gpu_retired *retired; /* binary.c: modules that wait to be unloaded */
};

/* The driver's description of a device; reading it makes no context. Units are in the names of
 * `gpu_attributes` (gpu_functions.c). -1: the driver does not state it. */
struct silo_gpu_facts {
    char name[128];
    char arch[128]; /* with AMD's features: "gfx90a:sramecc+:xnack-" */
    uint64_t total_memory;
    int sm_count, warp_size, max_threads_per_block, max_threads_per_sm;
    int registers_per_block, registers_per_sm;
    int shared_per_block, shared_per_block_optin, shared_per_sm;
    int l2_bytes, clock_khz, memory_clock_khz, memory_bus_bits;
    int major, minor;
    int cluster_launch, cooperative_launch, programmatic_launch;
    int block_limit[3], grid_limit[3];
    int pci_domain, pci_bus, pci_device;
    uint8_t uuid[16]; /* zeros: unknown */
};

/* The former state of a thread, for `leave`. */
struct silo_gpu_scope {
    struct silo_gpu *gpu;
    int previous; /* HIP: the device that was current; CUDA: 1 where a context was pushed */
    int mode;     /* the thread's capture mode; -1: not changed */
};

/* Graphs of kernels (graph_plan.c): 0, or the driver's code. Handles are the driver's. Called
 * between `enter` and `leave`, but `launch`. */
struct silo_gpu_graphs {
    int (*create)(void **graph);
    /* A node that runs `launch` (its stream is not read; parameters are copied) once the
     * nodes of `after` are done. Programmatic dependent launch is left out. */
    int (*add)(void *graph, const struct silo_launch *launch, void *const *after,
               size_t after_count, void **node);
    /* A node that runs a copy of another graph. */
    int (*add_graph)(void *graph, void *child, void *const *after, size_t after_count, void **node);
    /* Let kernels of the graph change the node; `*handle` is its name on the device.
     * This cannot be undone. */
    int (*let_update)(void *node, uint64_t *handle);
    int (*instantiate)(void **executable, void *graph);
    int (*upload)(void *executable, void *stream);
    int (*launch)(const struct silo_gpu_device *device, void *executable, void *stream);
    /* For launches from now on: parameters and grid, and whether it runs. */
    int (*set)(void *executable, void *node, const struct silo_launch *launch);
    int (*enable)(void *executable, void *node, unsigned enabled);
    int (*free)(void *executable); /* one that runs is freed once it is done */
    int (*destroy)(void *graph);
};

struct silo_gpu {
    const struct silo_driver *driver; /* its entry of the driver table */
    const char *name;                 /* "cuda", "hip": the kind of its targets */
    int32_t memory_type, host_type;   /* DLPack device types of its memory and its pinned memory */
    const char *libraries[4];         /* tried in this order, up to NULL */
    const char *setting;              /* the setting that names another library, for messages */
    bool reads_image;                 /* of a loaded module, until it is unloaded */
    bool counts_threads;              /* a grid's 32-bit limit counts threads, not blocks */
    bool array_interface;             /* __cuda_array_interface__ shows its memory */
    const char *oldest;               /* the oldest driver that has all functions, for messages */
    bool open;                        /* the functions below are there */
    bool begun;     /* it is being started, or was; written under the lock of opening */
    bool inherited; /* by a child made by fork, which cannot use it */
    int device_count;
    int version;                                    /* in the driver's form: 12040 */
    const char *path;                               /* the opened library; owned, never freed */
    struct silo_gpu_device *devices[SILO_MAX_GPUS]; /* owned, made when first used, never freed */

    int (*set_device)(struct silo_gpu_device *device); /* make its context current */
    int (*memory_alloc)(uint64_t *address, size_t bytes);
    int (*memory_info)(size_t *available, size_t *total); /* of the current device, bytes */
    int (*memory_free)(uint64_t address);
    /* The same in the order of a stream, from a pool that the driver keeps. NULL, or the code
     * NOT_SUPPORTED: not available. */
    int (*memory_alloc_async)(uint64_t *address, size_t bytes, void *stream);
    int (*memory_free_async)(uint64_t address, void *stream);
    int (*host_alloc)(void **memory, size_t bytes); /* pinned, seen by every device */
    int (*host_free)(void *memory);
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream); /* any direction, async */
    int (*fill)(uint64_t address, unsigned char value, size_t bytes, void *stream);
    int (*synchronize)(void);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_synchronize)(void *stream);
    int (*stream_capturing)(void *stream, int *status); /* status 0: no */
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_synchronize)(void *event);
    int (*event_elapsed)(float *milliseconds, void *begin, void *end);
    /* PTX ends with a zero. `log` receives the messages of the driver's compiler, "" without any.
     * */
    int (*module_load)(void **module, const void *image, char *log, size_t log_bytes);
    int (*module_unload)(void *module);
    int (*module_function)(void **function, void *module, const char *name);
    /* The place of memory. `*type` is a DLPack device type: device memory, pinned, managed or, for
     * memory unknown to the driver, CPU. */
    int (*locate)(uint64_t address, int32_t *type, int32_t *index);
    /* The device of the context current in this thread; nonzero without one. */
    int (*current_device)(int32_t *index);
    /* cuTensorMapEncodeTiled; NULL on HIP and on CUDA drivers before 12.0. Needs no context. The
     * map is 128 bytes aligned to 64. */
    int (*tensor_map_encode)(void *map, int dtype, uint32_t rank, void *address,
                             const uint64_t *sizes, const uint64_t *byte_strides,
                             const uint32_t *box, const uint32_t *element_strides, int interleave,
                             int swizzle, int l2_promotion, int oob_fill);

    const struct silo_gpu_graphs
        *graphs; /* NULL: the driver lacks it, or Silo does not use it there */

    /* Whether a code means that a kernel or the device failed while it ran: nothing more runs there
     * in this process. */
    bool (*is_fault)(int code);
    /* For binary.c. Wait for all work of the current device, in a way that a capture going on in
     * another thread survives. */
    int (*drain)(void);
    /* In a child made by fork: stop launching, and never call the driver. */
    void (*abandon)(void);
    /* Resolve the functions; a static text that names the missing one, NULL: all found. */
    const char *(*resolve)(void *library);
    /* After `resolve`: start the driver, fill device_count and version. */
    int (*start)(void);
    int (*facts)(int32_t index, struct silo_gpu_facts *facts);
    int (*context)(struct silo_gpu_device *device); /* make it */
    int (*enter)(struct silo_gpu_device *device, struct silo_gpu_scope *scope);
    void (*leave)(struct silo_gpu_scope *scope);
    /* Static shared memory and the largest block. */
    int (*function_limits)(void *function, int *static_shared, int *max_threads);
    /* The offset of parameter `index` in the list that a launch hands over, bytes; nonzero: no such
     * parameter. NULL if the driver does not state it: HIP, CUDA before 12.4. */
    int (*function_parameter)(void *function, size_t index, size_t *offset, size_t *size);
    /* Query the driver for a launch's needs and make its attributes. */
    int (*function_prepare)(const struct silo_gpu_device *device, struct silo_function *function,
                            int static_shared);
};

/* Make the device's context current in this thread, in the capture mode that lets allocations and
 * loads happen while another thread captures; `leave` restores the former state. 0, or the driver's
 * code and nothing to leave. */
SILO_INLINE int silo_gpu_enter(struct silo_gpu_device *device, struct silo_gpu_scope *scope) {
    return device->gpu->enter(device, scope);
}

SILO_INLINE void silo_gpu_leave(struct silo_gpu_scope *scope) {
    scope->gpu->leave(scope);
}

#endif
