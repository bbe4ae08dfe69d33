/* The graph of a plan: made in the best way that the driver and the device allow (plan_way.h). */
#ifndef SILO_GRAPH_BUILD_H
#define SILO_GRAPH_BUILD_H

#include "graph_state.h"

/* Chooses the way, with the reason, and makes its graph and its ring. Call this and the next
 * function between `enter` and `leave`. -1 with `error`: neither graph nor ring exists. */
int silo_graph_build(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                     const struct silo_graph_plan_options *options, silo_error *error);

/* A replay that runs goes on, and the graph is freed once it is done. */
void silo_graph_destroy(struct silo_graph_state *state);

#endif
