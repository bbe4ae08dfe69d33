/* Builds the graph of a plan in the best way that the driver and the device allow (plan_mode.h). */
#ifndef SILO_GRAPH_BUILD_H
#define SILO_GRAPH_BUILD_H

#include "graph_state.h"

/* Chooses the best way of launching (plan_mode.h) and records why no better way is used; then makes
 * the graph and the ring (pinned memory that passes updates to the graph, plan_ring.h). Call this
 * function and silo_graph_destroy between silo_gpu_enter and silo_gpu_leave. After -1 with `error`,
 * neither graph nor ring exists. */
int silo_graph_build(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                     const struct silo_graph_plan_options *options, silo_error *error);

/* Frees the graph; if it is running, it is freed once it is done. */
void silo_graph_destroy(struct silo_graph_state *state);

#endif
