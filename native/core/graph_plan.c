#include "graph_plan.h"

#include "graph_build.h"
#include "graph_state.h"
#include "grid.h"

#include <stdio.h>

/* ---- updates ---- */

static void forget(struct silo_graph_state *state) {
    state->complete = false;
    for (uint32_t i = 0; i < state->count; i++)
        state->nodes[i].set = state->nodes[i].counted = false;
}

/* Returns 1 if the node runs in this replay, 0 if it does not, or -1 with `error` if its grid is
 * invalid. */
static int runs(const struct silo_graph_node *node, const struct silo_plan_values *values,
                silo_error *error) {
    const int64_t dims[3] = {values->grid[0], values->grid[1], values->grid[2]};
    if (values->enabled == 0)
        return 0;
    const enum silo_grid_state grid = silo_grid_check(&node->function, dims);
    if (SILO_LIKELY(grid == SILO_GRID_FITS))
        return 1;
    if (grid == SILO_GRID_EMPTY)
        return 0;
    const struct silo_grid_fault fault = silo_grid_limits(&node->function, dims);
    return silo_grid_refuse(&fault, node->kernel, dims, NULL, error);
}

/* Returns the changes of a node since the last replay as bits SILO_PLAN_*, and copies the changed
 * values to `state->sent`; -1 with `error`. The parameters of a node that does not run are not
 * compared. */
SILO_INLINE int take_changes(struct silo_graph_state *state, struct silo_graph_node *node,
                             silo_error *error) {
    const struct silo_plan_values *values = silo_graph_values(state->block, node);
    struct silo_plan_values *sent = silo_graph_values(state->sent, node);
    const int enabled = node->graph == NULL ? runs(node, values, error) : 0;
    int fields = 0;
    if (SILO_UNLIKELY(node->graph != NULL))
        return 0;
    if (SILO_UNLIKELY(enabled < 0))
        return -1;
    if (!node->counted || sent->enabled != (uint32_t)enabled) {
        fields |= (int)SILO_PLAN_ENABLED;
        sent->enabled = (uint32_t)enabled;
        node->counted = true;
    }
    if (!enabled)
        return fields;
    const bool all = !node->set || state->everything;
    if (all || memcmp(sent->grid, values->grid, sizeof sent->grid) != 0) {
        fields |= (int)SILO_PLAN_GRID;
        memcpy(sent->grid, values->grid, sizeof sent->grid);
    }
    if (node->parameter_bytes > 0 &&
        (all || memcmp(silo_graph_parameters(state->sent, node),
                       silo_graph_parameters(state->block, node), node->parameter_bytes) != 0)) {
        fields |= (int)SILO_PLAN_PARAMETERS;
        memcpy(silo_graph_parameters(state->sent, node), silo_graph_parameters(state->block, node),
               node->parameter_bytes);
    }
    node->set = true;
    return fields;
}

static bool unchanged(const struct silo_graph_state *state) {
    return state->complete && !state->everything &&
           memcmp(state->block, state->sent, state->block_bytes) == 0;
}

/* Writes the updates of a replay to `block`, the replay's block of the ring. */
static int write_updates(struct silo_graph_state *state, uint8_t *block, silo_error *error) {
    struct silo_plan_update *updates = (void *)(block + sizeof(struct silo_plan_head));
    size_t offset = sizeof(struct silo_plan_head) + state->count * sizeof *updates;
    uint32_t count = 0;
    const uint32_t looked_at = unchanged(state) ? 0 : state->count;
    for (uint32_t i = 0; i < looked_at; i++) {
        struct silo_graph_node *node = &state->nodes[i];
        const int fields = take_changes(state, node, error);
        if (SILO_UNLIKELY(fields < 0))
            return -1;
        if (fields == 0)
            continue;
        const struct silo_plan_values *sent = silo_graph_values(state->sent, node);
        const uint32_t *per = node->function.per_program;
        updates[count++] = (struct silo_plan_update){
            .node = i,
            .fields = (uint32_t)fields,
            .grid = {sent->grid[0] * per[0], sent->grid[1] * per[1], sent->grid[2] * per[2]},
            .enabled = sent->enabled,
            .from = (uint32_t)offset,
        };
        if (fields & (int)SILO_PLAN_PARAMETERS) {
            memcpy(block + offset, silo_graph_parameters(state->sent, node), node->parameter_bytes);
            offset += node->parameter_bytes;
        }
    }
    struct silo_plan_head *head = (void *)block;
    head->count = count;
    head->trial = 0;
    head->bytes = (uint32_t)offset;
    /* stored last, with release, so that the device sees the whole block once it sees this number
     */
    __atomic_store_n(&head->replay, state->ring.replays, __ATOMIC_RELEASE);
    state->updates += count;
    return 0;
}

static int launch_graph(struct silo_graph_state *state, void *stream, silo_error *error) {
    const int code = silo_graphs_of(state)->launch(state->device, state->executable, stream);
    return SILO_LIKELY(code == 0) ? 0 : silo_graph_fail_plan(error, state, "cannot launch", code);
}

static int launch_by_device(struct silo_graph_state *state, void *stream, silo_error *error) {
    uint8_t *block = silo_plan_ring_block(&state->ring, error);
    if (SILO_UNLIKELY(block == NULL))
        return -1;
    if (SILO_UNLIKELY(write_updates(state, block, error) != 0 ||
                      launch_graph(state, stream, error) != 0)) {
        forget(state);
        return -1;
    }
    state->ring.replays++;
    state->complete = true;
    return 0;
}

/* Updates the nodes of the graph that changed since the last replay, by calls of the driver. Called
 * between silo_gpu_enter and silo_gpu_leave. */
static int update_from_host(struct silo_graph_state *state, silo_error *error) {
    const struct silo_gpu_graphs *graphs = silo_graphs_of(state);
    for (uint32_t i = 0; i < state->count; i++) {
        struct silo_graph_node *node = &state->nodes[i];
        const int fields = take_changes(state, node, error);
        int code = 0;
        if (fields < 0)
            return -1;
        if (fields & (int)(SILO_PLAN_GRID | SILO_PLAN_PARAMETERS)) {
            const uint32_t *grid = silo_graph_values(state->sent, node)->grid;
            const struct silo_launch launch = silo_graph_launch_of(state, node, state->sent, grid);
            code = graphs->set(state->executable, node->handle, &launch);
        }
        if (code == 0 && fields & (int)SILO_PLAN_ENABLED)
            code = graphs->enable(state->executable, node->handle,
                                  silo_graph_values(state->sent, node)->enabled);
        if (code != 0)
            return silo_graph_fail_node(error, state, node, "cannot update the node", code);
        state->updates += fields != 0;
    }
    return 0;
}

static int launch_by_host(struct silo_graph_state *state, void *stream, silo_error *error) {
    struct silo_gpu_scope scope;
    int result = 0;
    if (!unchanged(state)) {
        const int code = silo_gpu_enter(state->device, &scope);
        if (code != 0)
            return silo_graph_fail_plan(error, state, "cannot update", code);
        result = update_from_host(state, error);
        silo_gpu_leave(&scope);
    }
    if (result == 0)
        result = launch_graph(state, stream, error);
    if (result != 0)
        forget(state);
    state->complete = result == 0;
    return result;
}

static int launch_singly(struct silo_graph_state *state, void *stream, silo_error *error) {
    uint32_t launched = 0;
    /* All grids are checked before the first launch, so that an invalid grid launches nothing. */
    for (uint32_t i = 0; i < state->count; i++)
        if (runs(&state->nodes[i], silo_graph_values(state->block, &state->nodes[i]), error) < 0)
            return -1;
    for (uint32_t i = 0; i < state->count; i++) {
        struct silo_graph_node *node = &state->nodes[i];
        const struct silo_plan_values *values = silo_graph_values(state->block, node);
        if (runs(node, values, error) <= 0)
            continue;
        struct silo_launch launch = silo_graph_launch_of(state, node, state->block, values->grid);
        launch.stream = stream;
        if (node->binary != NULL && stream != NULL)
            silo_binary_launched_on(node->binary, stream);
        const int code = state->device->gpu->driver->launch(&launch);
        if (SILO_UNLIKELY(code != 0)) {
            char problem[128];
            snprintf(problem, sizeof problem,
                     "%u kernels were launched; cannot go on with the launch", launched);
            return silo_graph_fail_node(error, state, node, problem, code);
        }
        launched++;
        state->updates++;
    }
    return 0;
}

/* ---- the functions of the backend's table ---- */

void *silo_graph_plan_open(const struct silo_plan_shape *shape,
                           const struct silo_graph_plan_options *options, silo_error *error) {
    struct silo_gpu_scope scope;
    silo_plan_rings_sweep();
    if (shape->device == NULL || shape->count == 0) {
        silo_graph_refuse_shape(error, "it has no kernels on a GPU");
        return NULL;
    }
    struct silo_graph_state *state = silo_graph_state_copy(shape, error);
    if (state == NULL)
        return NULL;
    state->everything = options->everything != 0;
    const int code = silo_gpu_enter(state->device, &scope);
    int result = code;
    if (code == 0) {
        result = silo_graph_build(state, shape, options, error);
        silo_gpu_leave(&scope);
    } else {
        silo_graph_fail_plan(error, state, "cannot make", code);
    }
    if (result == 0)
        return state;
    silo_graph_state_free(state);
    return NULL;
}

static void *open_usual(const struct silo_plan_shape *shape, silo_error *error) {
    return silo_graph_plan_open(shape, &(struct silo_graph_plan_options){.slots = 0}, error);
}

/* Refuses a replay in a forked child, where pinned memory may be missing. */
static int refuse_fork(const struct silo_graph_state *state, silo_error *error) {
    return silo_fail(
        error, SILO_ERROR_FORKED,
        "a plan of %u kernels (the first is %s) was made before fork(), and GPUs cannot "
        "be used in the child: make processes that use a GPU with 'spawn'",
        state->count, state->nodes[0].kernel);
}

static int begin(void *opaque, uint8_t **block, silo_error *error) {
    struct silo_graph_state *state = opaque;
    if (SILO_UNLIKELY(state->device->gpu->inherited))
        return refuse_fork(state, error);
    *block = state->block;
    return 0;
}

/* Refuses a stream that is being captured: when the captured graph is launched later, it would read
 * updates from blocks of the ring that are reused by then. */
static int check_capture(const struct silo_graph_state *state, void *stream, silo_error *error) {
    int status = 0;
    if (stream == NULL || state->mode == SILO_PLAN_SINGLY)
        return 0;
    const int code = state->device->gpu->stream_capturing(stream, &status);
    if (SILO_UNLIKELY(code != 0))
        return silo_graph_fail_plan(error, state, "cannot launch", code);
    return SILO_LIKELY(status == 0)
               ? 0
               : silo_fail(error, SILO_ERROR_CAPTURING,
                           "a plan of %u kernels (the first is %s) cannot be replayed on a stream "
                           "that is being captured: a graph in a graph would keep these arguments; "
                           "call the kernels there, or end the capture",
                           state->count, state->nodes[0].kernel);
}

static int launch(void *opaque, void *stream, silo_error *error) {
    struct silo_graph_state *state = opaque;
    int result;
    if (SILO_UNLIKELY(state->device->gpu->inherited))
        return refuse_fork(state, error);
    if (SILO_UNLIKELY(check_capture(state, stream, error) != 0))
        return -1;
    if (SILO_LIKELY(state->mode == SILO_PLAN_DEVICE))
        result = launch_by_device(state, stream, error);
    else if (state->mode == SILO_PLAN_HOST)
        result = launch_by_host(state, stream, error);
    else
        result = launch_singly(state, stream, error);
    state->replays += result == 0;
    return result;
}

static void close_state(void *opaque) {
    struct silo_graph_state *state = opaque;
    struct silo_gpu_scope scope;
    if (!state->device->gpu->inherited && !silo_gpu_ending() && state->graph != NULL &&
        silo_gpu_enter(state->device, &scope) == 0) {
        silo_graph_destroy(state);
        silo_gpu_leave(&scope);
    }
    if (state->mode == SILO_PLAN_DEVICE)
        silo_plan_ring_retire(&state->ring);
    silo_graph_state_free(state);
}

static const char *explain(const void *opaque, const char **reason) {
    const struct silo_graph_state *state = opaque;
    *reason = state->reason;
    return silo_plan_mode_name(state->mode);
}

void silo_graph_plan_counts(const void *opaque, struct silo_graph_plan_counts *counts) {
    const struct silo_graph_state *state = opaque;
    *counts = (struct silo_graph_plan_counts){state->replays, state->updates, state->ring.slots,
                                              state->mode};
}

const struct silo_plan_backend silo_graph_plan = {
    .name = "graph",
    .open = open_usual,
    .begin = begin,
    .launch = launch,
    .close = close_state,
    .explain = explain,
};
