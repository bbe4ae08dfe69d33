/* The driver table: an entry for each kind of device, with a single function that launches. */
#ifndef SILO_DRIVER_H
#define SILO_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* The most launch attributes that a function has at the same time (cluster, scheduling policy,
 * cooperative, programmatic dependent launch), and the bytes of an attribute. */
#define SILO_MAX_ATTRIBUTES 4
#define SILO_ATTRIBUTE_BYTES 72

struct silo_gpu_device;

/* A function that a driver can launch. It is filled when a kernel is loaded and does not change
 * afterwards, except for `cost` and `part_cost`. The members that every launch reads come first, in
 * one cache line. */
struct silo_function {
    /* The driver's handle: a function pointer on a CPU, a CUfunction or hipFunction_t. NULL if a
     * library runs the code (library.h). */
    void *handle;
    /* the GPU on which the function is loaded; NULL on a CPU */
    struct silo_gpu_device *device;
    int32_t memory_type; /* DLPack's type of the device on which the function is loaded; its number
                            is `device_index` */
    int32_t device_index;
    uint16_t block[3];        /* threads of a block along each axis */
    uint16_t attribute_count; /* number of `attributes` in use */
    uint32_t per_program[3];  /* blocks of a program: the cluster, or 1 if grids count blocks */
    uint32_t shared_bytes;    /* dynamic shared memory */
    uint32_t grid_limit[3];   /* the most programs along each axis */
    uint32_t counts_blocks;   /* 1: grids count blocks, and must be multiples of the cluster */
    uint64_t scratch_bytes;   /* scratch memory of each program */
    uint64_t profile_bytes;   /* profiling scratch memory of each program */
    uint32_t scratch_align, profile_align;
    uint32_t cluster[3]; /* blocks of a cluster along each axis */
    int cooperative;
    int pdl;
    uint32_t cpu_chunk;   /* on a CPU, the most programs that a thread takes at once; 0: decided by
                             the number of threads */
    uint32_t cpu_threads; /* on a CPU, the most threads of a launch; 0: all that it may use */
    /* on a CPU, the most programs that run at once if they wait for each other */
    uint32_t cpu_together;
    const char *name; /* on a CPU, the kernel's name; belongs to the owner of this struct */
    _Alignas(8) uint8_t attributes[SILO_MAX_ATTRIBUTES * SILO_ATTRIBUTE_BYTES];
    /* Time of a program on a CPU in 1/16 nanosecond; 0: unknown. Measured by launches; before the
     * first launch, an estimate. Relaxed atomics, because the value is only a hint. */
    uint64_t cost;
    uint64_t part_cost; /* like `cost`, for a part of a program; used by launches that split each
                           program into parts */
};

_Static_assert(offsetof(struct silo_function, scratch_bytes) <= 64, "what every launch reads");

struct silo_launch {
    struct silo_function *function;
    uint32_t grid[3];
    void **params; /* params[i] points to the value of parameter i */
    void *stream;
    int holds_lock; /* whether the calling thread holds the GIL */
};

struct silo_driver {
    const char *name;
    uint32_t device_types; /* bit t: kernels can use memory of DLPack device type t */
    /* Launches the function. Returns 0 or a code that `error_text` explains. The GIL is held if
     * `holds_lock`. May be called from any thread. */
    int (*launch)(const struct silo_launch *launch);
    /* Returns the text for a code that `launch` returned. It must be called on the thread that
     * launched, before its next launch, because the text may describe the thread's last launch. */
    const char *(*error_text)(int code);
};

#endif
