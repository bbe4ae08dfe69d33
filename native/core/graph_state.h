/* A plan on a GPU while it is open: its nodes, the caller's block, and the values in its graph.
 * For graph_build.c and graph_plan.c alone. */
#ifndef SILO_GRAPH_STATE_H
#define SILO_GRAPH_STATE_H

#include "plan_backend.h"
#include "plan_ring.h"
#include "plan_way.h"

struct silo_graph_node {
    struct silo_function function;
    void *graph;                         /* the caller's while the plan is opened; NULL: a kernel */
    struct silo_binary *binary;          /* a reference, or NULL */
    char *kernel;                        /* owned */
    struct silo_parameter_place *places; /* owned */
    uint32_t parameter_count;
    uint32_t values;          /* offset of its silo_plan_values in the block */
    uint32_t parameter_bytes; /* of its parameter buffer, rounded up to 16 */
    uint32_t first_run, run_count;
    void *handle; /* of the graph */
    uint64_t device_handle;
    bool set;     /* the graph's node has the grid and parameters of `sent` */
    bool counted; /* the graph's node is enabled as `sent` says */
};

struct silo_graph_state {
    struct silo_gpu_device *device;
    struct silo_graph_node *nodes; /* owned */
    uint32_t count, graphs;        /* graphs: nodes that are not kernels */
    uint32_t block_bytes;
    uint8_t *block;             /* owned; the caller fills it */
    uint8_t *sent;              /* owned: the values in the graph's nodes */
    void **params;              /* owned: of one launch */
    struct silo_plan_run *runs; /* owned */
    uint32_t run_count;
    bool complete;   /* every node is `counted`: if the block equals `sent`, nothing changes */
    bool everything; /* never compare */
    enum silo_plan_way way;
    void *graph, *executable; /* owned; NULL: launched one by one */
    struct silo_plan_ring ring;
    uint64_t replays, updates;
    char reason[512];
};

SILO_INLINE const struct silo_gpu_graphs *silo_graphs_of(const struct silo_graph_state *state) {
    return state->device->gpu->graphs;
}

SILO_INLINE struct silo_plan_values *silo_graph_values(uint8_t *block,
                                                       const struct silo_graph_node *node) {
    return (struct silo_plan_values *)(void *)(block + node->values);
}

SILO_INLINE uint8_t *silo_graph_parameters(uint8_t *block, const struct silo_graph_node *node) {
    return block + node->values + sizeof(struct silo_plan_values);
}

/* Checked, and copied; no graph yet. NULL with `error`. */
struct silo_graph_state *silo_graph_state_copy(const struct silo_plan_shape *shape,
                                               silo_error *error);
void silo_graph_state_free(struct silo_graph_state *state); /* after silo_graph_destroy() */

/* The launch of a node with the parameters that lie in `block`, and `grid` in programs. */
struct silo_launch silo_graph_launch_of(const struct silo_graph_state *state,
                                        struct silo_graph_node *node, uint8_t *block,
                                        const uint32_t grid[3]);

/* SILO_ERROR_LAUNCH, or the code of the driver's error; -1. */
int silo_graph_fail_node(silo_error *error, const struct silo_graph_state *state,
                         const struct silo_graph_node *node, const char *what, int code);
int silo_graph_fail_plan(silo_error *error, const struct silo_graph_state *state, const char *what,
                         int code);
int silo_graph_refuse_shape(silo_error *error, const char *text); /* SILO_ERROR_USAGE */

#endif
