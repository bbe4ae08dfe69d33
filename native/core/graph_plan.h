/* Plans on GPUs: the launches of a plan as one graph of the driver, whose nodes get new grids and
 * parameters in each replay. Without graphs the launches are made one by one (plan_mode.h).
 *
 * A node keeps its grid and parameters until they change. Unchanged nodes cost nothing: a replay
 * without changes is a single launch of the graph. */
#ifndef SILO_GRAPH_PLAN_H
#define SILO_GRAPH_PLAN_H

#include "plan_backend.h"
#include "plan_mode.h"

extern const struct silo_plan_backend silo_graph_plan;

/* The `open` function of silo_plan_backend for GPUs. */
void *silo_graph_plan_open(const struct silo_plan_shape *shape,
                           const struct silo_graph_plan_options *options, silo_error *error);

/* Counters of a plan since it was opened. */
struct silo_graph_plan_counts {
    uint64_t replays, updates; /* `updates` counts nodes that were changed */
    uint32_t slots;            /* blocks of the ring; 0 without a ring */
    enum silo_plan_mode mode;
};

void silo_graph_plan_counts(const void *state, struct silo_graph_plan_counts *counts);

#endif
