/* The driver table: one entry a kind of device, everything a launch needs behind one call. */
#ifndef SILO_DRIVER_H
#define SILO_DRIVER_H

#include <stdint.h>

/* What a driver launches: made once when a kernel is loaded, never changed. */
struct silo_function {
    void *handle; /* the driver's own: a function pointer on a CPU, CUfunction, hipFunction_t */
    uint32_t threads;
    uint32_t cluster[3];
    uint32_t shared_bytes;
    uint64_t scratch_bytes; /* per program on a CPU */
    int cooperative;
    int pdl;
    /* Nanoseconds one program takes, times 16; 0: not run yet. Relaxed atomics; a hint. */
    uint64_t cost;
};

struct silo_launch {
    struct silo_function *function;
    uint32_t grid[3];
    void **params; /* params[i] points at the value of the i-th parameter */
    void *stream;
};

struct silo_driver {
    const char *name;
    uint32_t device_types;  /* bit t: takes memory of DLPack device type t */
    uint64_t grid_limit[3]; /* the largest dimension on each axis */
    /* 0, or a code that `error_text` explains. Called without the GIL; safe from any thread. */
    int (*launch)(const struct silo_launch *launch);
    const char *(*error_text)(int code);
};

extern const struct silo_driver silo_cpu_driver;

#endif
