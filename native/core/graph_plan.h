/* Plans on GPUs: the launches of a plan as one graph of the driver, whose nodes take other grids
 * and parameters in each replay; or one by one where the driver has no graphs (plan_way.h).
 *
 * The nodes of a state are updated from what the last replay left: a node that does not change
 * costs nothing, and a replay in which nothing changes is one launch of the graph. */
#ifndef SILO_GRAPH_PLAN_H
#define SILO_GRAPH_PLAN_H

#include "plan_backend.h"
#include "plan_way.h"

extern const struct silo_plan_backend silo_graph_plan;

/* For benchmarks and tests; zeros are the usual. */
struct silo_graph_plan_options {
    enum silo_plan_way wanted; /* at most this way */
    uint32_t slots;            /* blocks of the ring */
    uint32_t everything;       /* 1: each replay updates every node that runs */
    uint64_t wait_ns;          /* the longest wait for a block */
};

/* As the `open` of the table. */
void *silo_graph_plan_open(const struct silo_plan_shape *shape,
                           const struct silo_graph_plan_options *options, silo_error *error);

/* What the replays of a state did so far. */
struct silo_graph_plan_counts {
    uint64_t replays, updates; /* updates: nodes that were given something new */
    uint32_t slots;            /* of the ring; 0: none */
    enum silo_plan_way way;
};

void silo_graph_plan_counts(const void *state, struct silo_graph_plan_counts *counts);

#endif
