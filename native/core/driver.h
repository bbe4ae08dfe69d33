/* The driver table: one entry a kind of device, everything a launch needs behind one call. */
#ifndef SILO_DRIVER_H
#define SILO_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* Launch attributes a function can have at one time (cluster, scheduling policy, cooperative,
 * programmatic dependent launch), and the bytes of one. */
#define SILO_MAX_ATTRIBUTES 4
#define SILO_ATTRIBUTE_BYTES 72

struct silo_gpu_device;

/* A function that a driver can launch: made once when a kernel is loaded, never changed. What every
 * launch reads comes first, in one cache line. */
struct silo_function {
    /* The driver's own: a function pointer on a CPU, CUfunction, hipFunction_t. NULL: a library
     * runs the code (library.h). */
    void *handle;
    struct silo_gpu_device *device; /* where a GPU's function is loaded; NULL on a CPU */
    int32_t memory_type;            /* DLPack's, and the number, of that device */
    int32_t device_index;
    uint16_t block[3];        /* threads of a block on each axis */
    uint16_t attribute_count; /* of `attributes` */
    uint32_t per_program[3];  /* blocks of one program: the cluster, 1 where grids count blocks */
    uint32_t shared_bytes;    /* dynamic */
    uint32_t grid_limit[3];   /* the largest number of programs on each axis */
    uint32_t counts_blocks;   /* 1: a grid counts blocks, and the cluster has to divide it */
    uint64_t scratch_bytes;   /* per program */
    uint64_t profile_bytes;   /* per program; the same for profiling scratch memory */
    uint32_t scratch_align, profile_align;
    uint32_t cluster[3]; /* blocks of a cluster on each axis */
    int cooperative;
    int pdl;
    uint32_t cpu_chunk;   /* programs of one task on a CPU; 0: by the number of threads */
    uint32_t cpu_threads; /* the most threads of a CPU that share a launch; 0: all it may use */
    uint32_t
        cpu_together; /* the most programs that run at once on a CPU if they wait for each other */
    const char *name; /* the kernel's name, on a CPU; owned by the owner of this struct */
    _Alignas(8) uint8_t attributes[SILO_MAX_ATTRIBUTES * SILO_ATTRIBUTE_BYTES];
    /* Nanoseconds one program takes on a CPU, times 16: measured by launches, before the first an
     * estimate; 0: unknown. Relaxed atomics; a hint. */
    uint64_t cost;
    uint64_t part_cost; /* the same of a part, if launches cut programs into parts */
};

_Static_assert(offsetof(struct silo_function, scratch_bytes) <= 64, "what every launch reads");

struct silo_launch {
    struct silo_function *function;
    uint32_t grid[3];
    void **params; /* params[i] points at the value of the i-th parameter */
    void *stream;
    int holds_lock; /* whether the thread holds Python's lock */
};

struct silo_driver {
    const char *name;
    uint32_t device_types; /* bit t: takes memory of DLPack device type t */
    /* 0, or a code that `error_text` explains. Called with or without the GIL, depending on
     * `holds_lock`; safe from any thread. */
    int (*launch)(const struct silo_launch *launch);
    /* The text of a code from `launch`. The launching thread calls it before its next launch,
     * because the text may describe the last one. */
    const char *(*error_text)(int code);
};

#endif
