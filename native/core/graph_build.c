#include "graph_build.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_RING_BYTES (1u << 20)
#define MOST_SLOTS 64u

/* ---- nodes ---- */

static int add_updater(struct silo_graph_state *state, const struct silo_function *updater,
                       void **node, silo_error *error) {
    /* cast away const: the function is only read */
    struct silo_function *function = (struct silo_function *)updater;
    void *params[] = {&state->ring.address};
    const struct silo_launch launch = {.function = function, .grid = {1, 1, 1}, .params = params};
    const int code = silo_graphs_of(state)->add(state->graph, &launch, NULL, 0, node);
    return code == 0 ? 0
                     : silo_graph_fail_plan(error, state, "cannot make the first node of", code);
}

/* Adds a kernel's node. If `updated`, kernels of the graph may update the node. */
static int add_kernel(struct silo_graph_state *state, struct silo_graph_node *node,
                      void *const *after, size_t edges, bool updated) {
    static const uint32_t unit[3] = {1, 1, 1};
    const struct silo_launch launch = silo_graph_launch_of(state, node, state->block, unit);
    const int code = silo_graphs_of(state)->add(state->graph, &launch, after, edges, &node->handle);
    return code == 0 && updated
               ? silo_graphs_of(state)->let_update(node->handle, &node->device_handle)
               : code;
}

/* Adds the plan's nodes. Nodes that wait for no other node wait for `first`, unless it is NULL. A
 * `trial` leaves out nodes that are graphs, because such a node cannot be disabled. Called between
 * silo_gpu_enter and silo_gpu_leave. */
static int add_nodes(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                     void *first, bool trial, silo_error *error) {
    const struct silo_gpu_graphs *graphs = silo_graphs_of(state);
    void **after = malloc((state->count + 1) * sizeof *after); /* freed here */
    int result = after != NULL ? 0 : silo_fail_memory(error);
    for (uint32_t i = 0; i < state->count && result == 0; i++) {
        struct silo_graph_node *node = &state->nodes[i];
        const struct silo_plan_node *from = &shape->nodes[i];
        size_t edges = 0;
        node->handle = NULL;
        if (trial && node->graph != NULL)
            continue;
        for (uint32_t k = 0; k < from->after_count; k++)
            if (state->nodes[from->after[k]].handle != NULL)
                after[edges++] = state->nodes[from->after[k]].handle;
        if (edges == 0 && first != NULL)
            after[edges++] = first;
        const int code = node->graph == NULL ? add_kernel(state, node, after, edges, first != NULL)
                                             : graphs->add_graph(state->graph, node->graph, after,
                                                                 edges, &node->handle);
        if (code != 0)
            result = silo_graph_fail_node(error, state, node, "cannot make a graph's node", code);
    }
    free(after);
    return result;
}

void silo_graph_destroy(struct silo_graph_state *state) {
    const struct silo_gpu_graphs *graphs = silo_graphs_of(state);
    if (state->executable != NULL)
        graphs->free(state->executable);
    if (state->graph != NULL)
        graphs->destroy(state->graph);
    state->executable = state->graph = NULL;
}

static int make_graph(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                      void *updater_node, bool trial, silo_error *error) {
    if (add_nodes(state, shape, updater_node, trial, error) != 0)
        return -1;
    const int code = silo_graphs_of(state)->instantiate(&state->executable, state->graph);
    return code == 0 ? 0 : silo_graph_fail_plan(error, state, "cannot make a graph of", code);
}

static int begin_graph(struct silo_graph_state *state, silo_error *error) {
    const int code = silo_graphs_of(state)->create(&state->graph);
    return code == 0 ? 0 : silo_graph_fail_plan(error, state, "cannot begin a graph of", code);
}

static int make_host_graph(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                           silo_error *error) {
    if (begin_graph(state, error) == 0 && make_graph(state, shape, NULL, false, error) == 0)
        return 0;
    silo_graph_destroy(state);
    return -1;
}

/* ---- updates on the device ---- */

/* Copies the nodes to the device in their initial state. */
static int upload(const struct silo_graph_state *state, void *stream) {
    return silo_graphs_of(state)->upload(state->executable, stream);
}

/* Tests every kind of update on every node of the graph while the nodes are disabled. An update
 * that the device refuses is found here, and no kernel runs, except for kernels that cannot be
 * disabled, whose parameters are zeros then. Called between silo_gpu_enter and silo_gpu_leave. */
static int try_updates(struct silo_graph_state *state, silo_error *error) {
    const struct silo_gpu *gpu = state->device->gpu;
    uint8_t *block = silo_plan_ring_block(&state->ring, error);
    void *stream = NULL;
    if (block == NULL)
        return -1;
    struct silo_plan_update *updates = (void *)(block + sizeof(struct silo_plan_head));
    uint32_t offset = (uint32_t)(sizeof(struct silo_plan_head) + state->count * sizeof *updates);
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->count; i++) {
        const struct silo_graph_node *node = &state->nodes[i];
        const uint32_t *per = node->function.per_program;
        if (node->graph != NULL)
            continue;
        updates[count++] = (struct silo_plan_update){
            .node = i,
            .fields = SILO_PLAN_GRID | SILO_PLAN_ENABLED |
                      (node->parameter_bytes > 0 ? SILO_PLAN_PARAMETERS : 0),
            .grid = {per[0], per[1], per[2]},
            .from = offset,
        };
        memset(block + offset, 0, node->parameter_bytes);
        offset += node->parameter_bytes;
    }
    *(struct silo_plan_head *)(void *)block =
        (struct silo_plan_head){.replay = 0, .count = count, .trial = 1, .bytes = offset};
    int code = gpu->stream_create(&stream, SILO_GPU_NON_BLOCKING);
    if (code == 0)
        code = upload(state, stream);
    if (code == 0)
        code = silo_graphs_of(state)->launch(state->device, state->executable, stream);
    if (code == 0)
        code = gpu->stream_synchronize(stream);
    if (stream != NULL)
        gpu->stream_destroy(stream);
    if (code != 0)
        return silo_graph_fail_plan(error, state, "cannot try the updates of", code);
    const uint32_t refused = __atomic_load_n(&state->ring.report->code, __ATOMIC_ACQUIRE);
    if (refused != 0)
        return silo_fail(error, SILO_ERROR_LAUNCH, "the device refuses an update of kernel %s (%u)",
                         state->nodes[state->ring.report->node].kernel, refused);
    if (__atomic_load_n(&state->ring.report->done, __ATOMIC_ACQUIRE) != 1)
        return silo_fail(error, SILO_ERROR_LAUNCH,
                         "the kernel that updates nodes ran and did not report");
    state->ring.replays = 1;
    return 0;
}

static int make_ring(struct silo_graph_state *state, const struct silo_graph_plan_options *options,
                     silo_error *error) {
    size_t stride = sizeof(struct silo_plan_head) + state->count * sizeof(struct silo_plan_update);
    uint32_t slots = options->slots;
    for (uint32_t i = 0; i < state->count; i++)
        stride += state->nodes[i].parameter_bytes;
    stride = (stride + 255) / 256 * 256;
    if (slots == 0) {
        slots = MOST_SLOTS;
        while (slots > 4 && slots * stride > MOST_RING_BYTES)
            slots /= 2;
    }
    if (silo_plan_ring_make(&state->ring, state->device, stride, slots, state->count,
                            state->run_count, error) != 0)
        return -1;
    if (options->wait_ns != 0)
        state->ring.wait_ns = options->wait_ns;
    return 0;
}

static int write_ring(struct silo_graph_state *state, silo_error *error) {
    struct silo_plan_device_node *nodes = malloc(state->count * sizeof *nodes); /* freed here */
    if (nodes == NULL)
        return silo_fail_memory(error);
    for (uint32_t i = 0; i < state->count; i++)
        nodes[i] = (struct silo_plan_device_node){
            state->nodes[i].device_handle, state->nodes[i].first_run, state->nodes[i].run_count};
    const int result = silo_plan_ring_write(&state->ring, nodes, state->count, state->runs,
                                            state->run_count, error);
    free(nodes);
    return result;
}

static int make_updated_graph(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                              const struct silo_function *updater, bool trial, silo_error *error) {
    void *first = NULL;
    return begin_graph(state, error) == 0 && add_updater(state, updater, &first, error) == 0 &&
                   make_graph(state, shape, first, trial, error) == 0
               ? write_ring(state, error)
               : -1;
}

/* Makes the graph of a plan some of whose nodes are graphs, after the trial, which leaves these
 * nodes out. */
static int make_whole_graph(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                            const struct silo_function *updater, silo_error *error) {
    const struct silo_gpu *gpu = state->device->gpu;
    void *stream = NULL;
    silo_graph_destroy(state);
    if (make_updated_graph(state, shape, updater, false, error) != 0)
        return -1;
    int code = gpu->stream_create(&stream, SILO_GPU_NON_BLOCKING);
    if (code == 0)
        code = upload(state, stream);
    if (code == 0)
        code = gpu->stream_synchronize(stream);
    if (stream != NULL)
        gpu->stream_destroy(stream);
    return code == 0 ? 0 : silo_graph_fail_plan(error, state, "cannot upload a graph of", code);
}

static int make_device_graph(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                             const struct silo_graph_plan_options *options,
                             const struct silo_function *updater, silo_error *error) {
    if (make_ring(state, options, error) != 0)
        return -1;
    if (make_updated_graph(state, shape, updater, true, error) == 0 &&
        try_updates(state, error) == 0 &&
        (state->graphs == 0 || make_whole_graph(state, shape, updater, error) == 0))
        return 0;
    silo_graph_destroy(state);
    state->ring.replays = __atomic_load_n(&state->ring.report->done, __ATOMIC_ACQUIRE);
    silo_plan_ring_retire(&state->ring);
    return -1;
}

/* Returns the name of the first kernel with a parameter that the driver reports at another place
 * than the plan, or whose place it does not report; NULL if there is none. Called between
 * silo_gpu_enter and silo_gpu_leave. */
static const char *other_places(const struct silo_graph_state *state) {
    const struct silo_gpu *gpu = state->device->gpu;
    for (uint32_t i = 0; i < state->count; i++) {
        const struct silo_graph_node *node = &state->nodes[i];
        /* nodes that are graphs have no parameters */
        for (uint32_t k = 0; k < node->parameter_count; k++) {
            struct silo_parameter_place place;
            if (gpu->function_parameter == NULL ||
                gpu->function_parameter(node->function.handle, k, &place.offset, &place.size) !=
                    0 ||
                place.offset != node->places[k].offset || place.size != node->places[k].size)
                return node->kernel;
        }
    }
    return NULL;
}

static struct silo_plan_facts facts_of(const struct silo_graph_state *state,
                                       const struct silo_graph_plan_options *options) {
    const struct silo_gpu *gpu = state->device->gpu;
    struct silo_plan_facts facts = {
        .driver = gpu->name,
        .version = gpu->version,
        .graphs = gpu->graphs != NULL,
        .kernels = state->count,
        .best = options->best,
    };
    for (uint32_t i = 0; i < state->count; i++) {
        facts.cooperative += state->nodes[i].function.cooperative != 0;
        facts.serialized += state->nodes[i].function.pdl != 0;
    }
    if (facts.graphs)
        facts.places = other_places(state);
    return facts;
}

/* Whether the error means that the driver refuses a way of launching. Then the next way is tried,
 * and the driver's text is the reason. Other errors (out of memory, a lost context) are returned to
 * the caller. */
static bool refused(const silo_error *failure) {
    return failure->code == SILO_ERROR_LAUNCH || failure->code == SILO_ERROR_LOAD;
}

int silo_graph_build(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                     const struct silo_graph_plan_options *options, silo_error *error) {
    struct silo_plan_facts facts = facts_of(state, options);
    silo_error device_why = {.code = SILO_OK}, host_why = {.code = SILO_OK}, *why = NULL;
    silo_error graph_why = {.code = SILO_OK};
    int result = -1;
    while (result != 0 && (why == NULL || refused(why))) {
        state->mode = silo_plan_mode_choose(&facts, state->reason, sizeof state->reason);
        if (state->mode == SILO_PLAN_DEVICE) {
            why = &device_why;
            const struct silo_function *updater = silo_plan_updater(state->device, why);
            if (updater != NULL)
                result = make_device_graph(state, shape, options, updater, why);
            facts.updater = why->text;
        } else if (state->mode == SILO_PLAN_HOST) {
            why = &host_why;
            result = make_host_graph(state, shape, why);
            facts.host = why->text;
        } else if (state->graphs > 0) {
            why = &graph_why;
            silo_fail(why, SILO_ERROR_LAUNCH,
                      "a plan with captured work (%u of its %u nodes) needs a graph of the "
                      "driver; it would be %s",
                      state->graphs, state->count, state->reason);
            break;
        } else {
            result = 0;
        }
    }
    if (result != 0 && error != NULL) {
        *error = *why; /* including its details */
        why->details = NULL;
    }
    silo_error_clear(&device_why);
    silo_error_clear(&host_why);
    return result;
}
