/* The state of an open plan on a GPU: its nodes, the block that the caller fills, and the values
 * that the graph's nodes have. Used only by graph_build.c and graph_plan.c. */
#ifndef SILO_GRAPH_STATE_H
#define SILO_GRAPH_STATE_H

#include "plan_backend.h"
#include "plan_mode.h"
#include "plan_ring.h"

struct silo_graph_node {
    struct silo_function function;
    void *graph; /* a graph of the caller, used while the plan is opened; NULL: the node is a kernel
                  */
    struct silo_binary *binary;          /* owned: a reference; may be NULL */
    char *kernel;                        /* owned */
    struct silo_parameter_place *places; /* owned */
    uint32_t parameter_count;
    uint32_t values;          /* offset of the node's silo_plan_values in the block */
    uint32_t parameter_bytes; /* size of the parameter buffer, rounded up to 16 */
    uint32_t first_run, run_count;
    void *handle; /* the driver's handle of the node */
    uint64_t device_handle;
    bool set;     /* the node in the graph has the grid and parameters of `sent` */
    bool counted; /* the node in the graph is enabled or disabled as in `sent` */
};

struct silo_graph_state {
    struct silo_gpu_device *device;
    struct silo_graph_node *nodes; /* owned */
    uint32_t count, graphs;        /* `graphs`: number of nodes that are graphs */
    uint32_t block_bytes;
    uint8_t *block;             /* owned; the caller writes the values of the next replay here */
    uint8_t *sent;              /* owned: the values that the graph's nodes have */
    void **params;              /* owned: the parameter pointers of one launch */
    struct silo_plan_run *runs; /* owned */
    uint32_t run_count;
    bool complete;   /* all nodes are `counted`, so that nothing has changed if the block equals
                        `sent` */
    bool everything; /* the next replay updates all nodes without comparing */
    enum silo_plan_mode mode;
    void *graph, *executable; /* owned; NULL if kernels are launched one by one */
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

/* Checks and copies the shape of a plan; no graph is made yet. On failure returns NULL with
 * `error`. */
struct silo_graph_state *silo_graph_state_copy(const struct silo_plan_shape *shape,
                                               silo_error *error);
void silo_graph_state_free(struct silo_graph_state *state); /* call silo_graph_destroy before */

/* Returns the launch of a node with the parameters in `block`. `grid` counts programs. */
struct silo_launch silo_graph_launch_of(const struct silo_graph_state *state,
                                        struct silo_graph_node *node, uint8_t *block,
                                        const uint32_t grid[3]);

/* Fills `error` with SILO_ERROR_LAUNCH, or the code for the driver's error. Returns -1. */
int silo_graph_fail_node(silo_error *error, const struct silo_graph_state *state,
                         const struct silo_graph_node *node, const char *problem, int code);
int silo_graph_fail_plan(silo_error *error, const struct silo_graph_state *state,
                         const char *problem, int code);
int silo_graph_refuse_shape(silo_error *error, const char *text); /* fails with SILO_ERROR_USAGE */

#endif
