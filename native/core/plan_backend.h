/* The backends that run plans: a table of functions for CPUs (cpu_plan.h) and one for GPUs
 * (graph_plan.h).
 *
 * The caller fills a block: for each node the grid, whether it runs, and the bytes of its
 * parameters. The backend runs the enabled nodes with the values in the block. */
#ifndef SILO_PLAN_BACKEND_H
#define SILO_PLAN_BACKEND_H

#include "binary.h"
#include "device_code.h"
#include "driver.h"
#include "error.h"
#include "parameter.h"

#include <stdint.h>

/* The part of a launch of a plan that is the same in all replays. `open` copies texts and arrays.
 */
struct silo_plan_node {
    /* loaded, with block, attributes and limits set; NULL if `graph` is set */
    struct silo_function *function;
    void *graph; /* a graph of the driver that runs instead of a kernel, without parameters; copied
                    by `open`; NULL: the node is a kernel */
    struct silo_binary *binary; /* `open` takes a reference, which `close` releases; NULL: the
                                   caller keeps the code loaded */
    const char *kernel;         /* for messages */
    uint32_t parameter_count;
    /* place of each parameter, relative to the end of silo_plan_values */
    const struct silo_parameter_place *places;
    uint32_t values; /* offset of its struct silo_plan_values in the block; a multiple of 16 */
    const uint32_t *after; /* numbers of earlier nodes that must be done before this node begins */
    uint32_t after_count;
};

/* The values of a node in the block. Its parameters follow, each `places[i].offset` bytes after the
 * end of this struct. */
struct silo_plan_values {
    uint32_t grid[3]; /* number of programs, as in struct silo_launch */
    uint32_t enabled; /* 0: the node does not run in this replay */
};

struct silo_plan_shape {
    struct silo_gpu_device *device; /* NULL for the CPU */
    const struct silo_plan_node *nodes;
    uint32_t count;
    uint32_t block_bytes;
};

struct silo_plan_backend {
    const char *name;
    /* Opens a plan; may allocate and take long. On failure returns NULL with `error`. At first the
     * block is all zeros, with every node disabled. */
    void *(*open)(const struct silo_plan_shape *shape, silo_error *error);
    /* Sets `*block` to the block for the next replay. It is ordinary memory, the same in all
     * replays, with the values of the last one. Only one thread may use the plan from `begin` to
     * the end of `launch`. On failure returns -1 with `error`. */
    int (*begin)(void *state, uint8_t **block, silo_error *error);
    /* Runs a replay, without allocating. After -1 nothing was launched, unless the text of `error`
     * states how many launches were made. */
    int (*launch)(void *state, void *stream, silo_error *error);
    /* Closes the plan without waiting: memory that running replays use is freed once they are done.
     */
    void (*close)(void *state);
    /* Returns the way in which replays run, and sets `*reason` to the reason for it. Both texts
     * live as long as the plan. */
    const char *(*explain)(const void *state, const char **reason);
};

#endif
