/* Plans on GPUs: the launches of a plan as one graph of the driver, whose nodes take other grids
 * and parameters in each replay; or one by one where the driver has no graphs (plan_way.h).
 *
 * A node keeps its grid and parameters until they change, and an unchanged node costs nothing: a
 * replay without any change is one launch of the graph. */
#ifndef SILO_GRAPH_PLAN_H
#define SILO_GRAPH_PLAN_H

#include "plan_backend.h"
#include "plan_way.h"

extern const struct silo_plan_backend silo_graph_plan;

/* The `open` of the table. */
void *silo_graph_plan_open(const struct silo_plan_shape *shape,
                           const struct silo_graph_plan_options *options, silo_error *error);

/* Replays of a state so far. */
struct silo_graph_plan_counts {
    uint64_t replays, updates; /* updates: nodes that were given something new */
    uint32_t slots;            /* of the ring; 0 without one */
    enum silo_plan_way way;
};

void silo_graph_plan_counts(const void *state, struct silo_graph_plan_counts *counts);

#endif
