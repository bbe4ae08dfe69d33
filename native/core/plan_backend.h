/* How the launches of a plan run: one table of functions a way (cpu_plan.h, graph_plan.h).
 *
 * The caller fills a block: for each node the grid, whether it runs, and the bytes of its
 * parameters. The backend runs the enabled nodes with the values of the block. */
#ifndef SILO_PLAN_BACKEND_H
#define SILO_PLAN_BACKEND_H

#include "binary.h"
#include "device_code.h"
#include "driver.h"
#include "error.h"
#include "parameter.h"

#include <stdint.h>

/* One launch of a plan: what never changes between replays. `open` copies texts and arrays. */
struct silo_plan_node {
    struct silo_function *function; /* loaded and prepared: block, attributes, limits; NULL with
                                       `graph` */
    void *graph; /* a graph of the driver that runs in the place of a kernel, the same in each
                    replay, without parameters. `open` copies it. NULL: a kernel */
    struct silo_binary *binary; /* `open` takes a reference, `close` gives it back; NULL: the
                                   caller keeps the code */
    const char *kernel;         /* for messages */
    uint32_t parameter_count;
    const struct silo_parameter_place *places; /* of each parameter, after the node's values */
    uint32_t values; /* where its struct silo_plan_values lies in the block; a multiple of 16 */
    const uint32_t
        *after; /* numbers of earlier nodes that have to be done before this one begins */
    uint32_t after_count;
};

/* A node in the block. The bytes of its parameters follow, `places[i].offset` from the end of this.
 */
struct silo_plan_values {
    uint32_t grid[3]; /* programs, as in struct silo_launch */
    uint32_t enabled; /* 0: this replay leaves the node out */
};

struct silo_plan_shape {
    struct silo_gpu_device *device; /* NULL: a CPU */
    const struct silo_plan_node *nodes;
    uint32_t count;
    uint32_t block_bytes;
};

struct silo_plan_backend {
    const char *name;
    /* NULL with `error`. May allocate and take long. The block begins as zeros, every node
     * disabled.
     */
    void *(*open)(const struct silo_plan_shape *shape, silo_error *error);
    /* The block of the next replay, as the last launch left it: ordinary memory, the same each
     * time. One thread at a time, from `begin` to the end of `launch`. -1 with `error`. */
    int (*begin)(void *state, uint8_t **block, silo_error *error);
    /* One replay. Allocates nothing. -1: nothing was launched, or `error` contains how much was. */
    int (*launch)(void *state, void *stream, silo_error *error);
    /* Waits for no replay: the memory of replays is freed once they are done. */
    void (*close)(void *state);
    /* Which way the replays go, and the reason: texts of static lifetime. */
    const char *(*explain)(const void *state, const char **reason);
};

#endif
