#include "graph_plan.h"

#include "grid.h"
#include "plan_ring.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_RING_BYTES (1u << 20)
#define MOST_SLOTS 64u
#define MOST_UPDATER_BLOCKS 1024u

struct node {
    struct silo_function function;
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

struct state {
    struct silo_gpu_device *device;
    struct node *nodes; /* owned */
    uint32_t count;
    uint32_t block_bytes;
    uint8_t *block;             /* owned: the caller's */
    uint8_t *sent;              /* owned: what the graph's nodes were given */
    void **params;              /* owned: of one launch */
    struct silo_plan_run *runs; /* owned */
    uint32_t run_count;
    bool complete;   /* every node is `counted`: where the block equals `sent`, nothing changes */
    bool everything; /* never compare */
    enum silo_plan_way way;
    void *graph, *executable; /* owned; NULL: launched one by one */
    struct silo_plan_ring ring;
    uint64_t replays, updates;
    char reason[512];
};

static const struct silo_gpu_graphs *graphs_of(const struct state *state) {
    return state->device->gpu->graphs;
}

SILO_INLINE struct silo_plan_values *values_in(uint8_t *block, const struct node *node) {
    return (struct silo_plan_values *)(void *)(block + node->values);
}

SILO_INLINE uint8_t *parameters_in(uint8_t *block, const struct node *node) {
    return block + node->values + sizeof(struct silo_plan_values);
}

static uint32_t round_up(uint32_t bytes, uint32_t to) {
    return (bytes + to - 1) / to * to;
}

/* ---- errors ---- */

static int fail_node(silo_error *error, const struct state *state, const struct node *node,
                     const char *what, int code) {
    char text[256];
    snprintf(text, sizeof text, "%s of kernel %s, number %td of the %u of a plan", what,
             node->kernel, node - state->nodes, state->count);
    return silo_gpu_fail(error, state->device->gpu, SILO_ERROR_LAUNCH, text, code);
}

static int fail_plan(silo_error *error, const struct state *state, const char *what, int code) {
    char text[256];
    snprintf(text, sizeof text, "%s a plan of %u kernels (the first is %s)", what, state->count,
             state->nodes[0].kernel);
    return silo_gpu_fail(error, state->device->gpu, SILO_ERROR_LAUNCH, text, code);
}

/* ---- copying the shape ---- */

static int refuse_shape(silo_error *error, const char *text) {
    return silo_fail(error, SILO_ERROR_USAGE, "a plan cannot be made: %s", text);
}

/* Parameters are in order, do not overlap, and lie with the node's values in the block. */
static int check_places(const struct silo_plan_shape *shape, const struct silo_plan_node *node,
                        uint32_t *bytes, silo_error *error) {
    size_t end = 0;
    for (uint32_t i = 0; i < node->parameter_count; i++) {
        const struct silo_parameter_place *place = &node->places[i];
        if (place->offset < end || place->size == 0 || place->size > SILO_MOST_PLACES ||
            place->offset > SILO_MOST_PLACES)
            return refuse_shape(error, "parameters overlap, or are of no size");
        end = place->offset + place->size;
    }
    *bytes = round_up((uint32_t)end, 16);
    const uint64_t last = (uint64_t)node->values + sizeof(struct silo_plan_values) + *bytes;
    if (node->values % 16 != 0 || last > shape->block_bytes)
        return refuse_shape(error, "the block has no room for the parameters of a kernel");
    return 0;
}

static int check_node(const struct silo_plan_shape *shape, uint32_t number, silo_error *error) {
    const struct silo_plan_node *node = &shape->nodes[number];
    if (node->function->device != shape->device)
        return silo_fail(error, SILO_ERROR_WRONG_DEVICE,
                         "a plan cannot be made: kernel %s is loaded on another device",
                         node->kernel);
    for (uint32_t i = 0; i < node->after_count; i++)
        if (node->after[i] >= number)
            return refuse_shape(error, "a kernel waits for itself or a later one");
    return 0;
}

static int copy_node(struct state *state, const struct silo_plan_shape *shape, uint32_t number,
                     silo_error *error) {
    const struct silo_plan_node *from = &shape->nodes[number];
    struct node *to = &state->nodes[number];
    if (check_node(shape, number, error) != 0 ||
        check_places(shape, from, &to->parameter_bytes, error) != 0)
        return -1;
    to->function = *from->function;
    to->values = from->values;
    to->parameter_count = from->parameter_count;
    to->kernel = strdup(from->kernel);
    to->places = malloc((from->parameter_count + 1) * sizeof *to->places);
    if (to->kernel == NULL || to->places == NULL)
        return silo_fail_memory(error);
    if (from->parameter_count > 0)
        memcpy(to->places, from->places, from->parameter_count * sizeof *to->places);
    to->binary = from->binary;
    if (to->binary != NULL)
        silo_binary_retain(to->binary);
    return 0;
}

/* Parameters that lie beside each other are set at once. */
static void find_runs(struct state *state, struct node *node) {
    node->first_run = state->run_count;
    for (uint32_t i = 0; i < node->parameter_count; i++) {
        const struct silo_parameter_place *place = &node->places[i];
        struct silo_plan_run *last = &state->runs[state->run_count];
        if (i > 0 && last[-1].offset + last[-1].bytes == place->offset)
            last[-1].bytes += (uint32_t)place->size;
        else
            state->runs[state->run_count++] =
                (struct silo_plan_run){(uint32_t)place->offset, (uint32_t)place->size};
    }
    node->run_count = state->run_count - node->first_run;
}

static void free_state(struct state *state) {
    for (uint32_t i = 0; state->nodes != NULL && i < state->count; i++) {
        silo_binary_release(state->nodes[i].binary);
        free(state->nodes[i].kernel);
        free(state->nodes[i].places);
    }
    free(state->nodes);
    free(state->block);
    free(state->sent);
    free(state->params);
    free(state->runs);
    free(state);
}

static struct state *copy_shape(const struct silo_plan_shape *shape, silo_error *error) {
    struct state *state = calloc(1, sizeof *state);
    uint32_t most = 0, all = 0;
    if (state == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    for (uint32_t i = 0; i < shape->count; i++) {
        const uint32_t parameters = shape->nodes[i].parameter_count;
        most = parameters > most ? parameters : most;
        all += parameters;
    }
    state->device = shape->device;
    state->count = shape->count;
    state->block_bytes = shape->block_bytes;
    state->nodes = calloc(shape->count, sizeof *state->nodes);
    state->params = malloc((most + 1) * sizeof *state->params);
    state->runs = malloc((all + 1) * sizeof *state->runs);
    /* Tensor maps in it are aligned to 64 bytes. */
    state->block = aligned_alloc(64, round_up(shape->block_bytes, 64));
    state->sent = aligned_alloc(64, round_up(shape->block_bytes, 64));
    if (state->nodes == NULL || state->params == NULL || state->runs == NULL ||
        state->block == NULL || state->sent == NULL) {
        silo_fail_memory(error);
        free_state(state);
        return NULL;
    }
    memset(state->block, 0, shape->block_bytes);
    memset(state->sent, 0, shape->block_bytes);
    for (uint32_t i = 0; i < shape->count; i++) {
        if (copy_node(state, shape, i, error) != 0) {
            free_state(state);
            return NULL;
        }
        find_runs(state, &state->nodes[i]);
    }
    return state;
}

/* ---- the graph ---- */

/* Points at the parameters of a node in `block`. */
static struct silo_launch launch_of(const struct state *state, struct node *node, uint8_t *block,
                                    const uint32_t grid[3]) {
    uint8_t *from = parameters_in(block, node);
    for (uint32_t i = 0; i < node->parameter_count; i++)
        state->params[i] = from + node->places[i].offset;
    return (struct silo_launch){
        .function = &node->function, .grid = {grid[0], grid[1], grid[2]}, .params = state->params};
}

static uint32_t updater_blocks(uint32_t count) {
    const uint32_t warps = SILO_PLAN_THREADS / 32, blocks = (count + warps - 1) / warps;
    return blocks < MOST_UPDATER_BLOCKS ? blocks : MOST_UPDATER_BLOCKS;
}

static int add_updater(struct state *state, const struct silo_function *updater, void **node,
                       silo_error *error) {
    struct silo_function *function = (struct silo_function *)updater; /* which is only read */
    void *params[] = {&state->ring.address};
    const struct silo_launch launch = {
        .function = function, .grid = {updater_blocks(state->count), 1, 1}, .params = params};
    const int code = graphs_of(state)->add(state->graph, &launch, NULL, 0, node);
    return code == 0 ? 0 : fail_plan(error, state, "cannot make the first node of", code);
}

/* The nodes of the plan; those that wait for no other wait for `first`, where there is one. Between
 * `enter` and `leave`. */
static int add_nodes(struct state *state, const struct silo_plan_shape *shape, void *first,
                     silo_error *error) {
    static const uint32_t one[3] = {1, 1, 1};
    const struct silo_gpu_graphs *graphs = graphs_of(state);
    void **after = malloc((state->count + 1) * sizeof *after); /* freed here */
    int result = after != NULL ? 0 : silo_fail_memory(error);
    for (uint32_t i = 0; i < state->count && result == 0; i++) {
        struct node *node = &state->nodes[i];
        const struct silo_plan_node *from = &shape->nodes[i];
        const struct silo_launch launch = launch_of(state, node, state->block, one);
        size_t edges = 0;
        for (uint32_t k = 0; k < from->after_count; k++)
            after[edges++] = state->nodes[from->after[k]].handle;
        if (edges == 0 && first != NULL)
            after[edges++] = first;
        int code = graphs->add(state->graph, &launch, after, edges, &node->handle);
        if (code == 0 && first != NULL)
            code = graphs->let_update(node->handle, &node->device_handle);
        if (code != 0)
            result = fail_node(error, state, node, "cannot make a graph's node", code);
    }
    free(after);
    return result;
}

static void destroy_graph(struct state *state) {
    const struct silo_gpu_graphs *graphs = graphs_of(state);
    if (state->executable != NULL)
        graphs->free(state->executable);
    if (state->graph != NULL)
        graphs->destroy(state->graph);
    state->executable = state->graph = NULL;
}

static int make_graph(struct state *state, const struct silo_plan_shape *shape, void *updater_node,
                      silo_error *error) {
    if (add_nodes(state, shape, updater_node, error) != 0)
        return -1;
    const int code = graphs_of(state)->instantiate(&state->executable, state->graph);
    return code == 0 ? 0 : fail_plan(error, state, "cannot make a graph of", code);
}

static int begin_graph(struct state *state, silo_error *error) {
    const int code = graphs_of(state)->create(&state->graph);
    return code == 0 ? 0 : fail_plan(error, state, "cannot begin a graph of", code);
}

static int make_host_graph(struct state *state, const struct silo_plan_shape *shape,
                           silo_error *error) {
    if (begin_graph(state, error) == 0 && make_graph(state, shape, NULL, error) == 0)
        return 0;
    destroy_graph(state);
    return -1;
}

/* ---- updates ---- */

static void forget(struct state *state) {
    state->complete = false;
    for (uint32_t i = 0; i < state->count; i++)
        state->nodes[i].set = state->nodes[i].counted = false;
}

/* Whether the node runs in this replay: 1, 0, or -1 with `error` for a grid that cannot be. */
static int runs(const struct node *node, const struct silo_plan_values *values, silo_error *error) {
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

/* What of a node is new, SILO_PLAN_*, noting it in `sent` as if the graph had it; -1 with `error`.
 * Parameters of a node that does not run are not looked at. */
SILO_INLINE int take_changes(struct state *state, struct node *node, silo_error *error) {
    const struct silo_plan_values *values = values_in(state->block, node);
    struct silo_plan_values *sent = values_in(state->sent, node);
    const int enabled = runs(node, values, error);
    int fields = 0;
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
        (all || memcmp(parameters_in(state->sent, node), parameters_in(state->block, node),
                       node->parameter_bytes) != 0)) {
        fields |= (int)SILO_PLAN_PARAMETERS;
        memcpy(parameters_in(state->sent, node), parameters_in(state->block, node),
               node->parameter_bytes);
    }
    node->set = true;
    return fields;
}

static bool unchanged(const struct state *state) {
    return state->complete && !state->everything &&
           memcmp(state->block, state->sent, state->block_bytes) == 0;
}

/* Writes the updates of a replay to its block in the ring. */
static int write_updates(struct state *state, uint8_t *block, silo_error *error) {
    struct silo_plan_update *updates = (void *)(block + sizeof(struct silo_plan_head));
    size_t at = sizeof(struct silo_plan_head) + state->count * sizeof *updates;
    uint32_t count = 0;
    const uint32_t looked_at = unchanged(state) ? 0 : state->count;
    for (uint32_t i = 0; i < looked_at; i++) {
        struct node *node = &state->nodes[i];
        const int fields = take_changes(state, node, error);
        if (SILO_UNLIKELY(fields < 0))
            return -1;
        if (fields == 0)
            continue;
        const struct silo_plan_values *sent = values_in(state->sent, node);
        const uint32_t *per = node->function.per_program;
        updates[count++] = (struct silo_plan_update){
            .node = i,
            .fields = (uint32_t)fields,
            .grid = {sent->grid[0] * per[0], sent->grid[1] * per[1], sent->grid[2] * per[2]},
            .enabled = sent->enabled,
            .from = (uint32_t)at,
        };
        if (fields & (int)SILO_PLAN_PARAMETERS) {
            memcpy(block + at, parameters_in(state->sent, node), node->parameter_bytes);
            at += node->parameter_bytes;
        }
    }
    *(struct silo_plan_head *)(void *)block =
        (struct silo_plan_head){.replay = state->ring.replays, .count = count};
    state->updates += count;
    return 0;
}

static int launch_graph(struct state *state, void *stream, silo_error *error) {
    const int code = graphs_of(state)->launch(state->device, state->executable, stream);
    return SILO_LIKELY(code == 0) ? 0 : fail_plan(error, state, "cannot launch", code);
}

static int launch_by_device(struct state *state, void *stream, silo_error *error) {
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

/* Between `enter` and `leave`. */
static int update_from_host(struct state *state, silo_error *error) {
    const struct silo_gpu_graphs *graphs = graphs_of(state);
    for (uint32_t i = 0; i < state->count; i++) {
        struct node *node = &state->nodes[i];
        const int fields = take_changes(state, node, error);
        int code = 0;
        if (fields < 0)
            return -1;
        if (fields & (int)(SILO_PLAN_GRID | SILO_PLAN_PARAMETERS)) {
            const uint32_t *grid = values_in(state->sent, node)->grid;
            const struct silo_launch launch = launch_of(state, node, state->sent, grid);
            code = graphs->set(state->executable, node->handle, &launch);
        }
        if (code == 0 && fields & (int)SILO_PLAN_ENABLED)
            code = graphs->enable(state->executable, node->handle,
                                  values_in(state->sent, node)->enabled);
        if (code != 0)
            return fail_node(error, state, node, "cannot update the node", code);
        state->updates += fields != 0;
    }
    return 0;
}

static int launch_by_host(struct state *state, void *stream, silo_error *error) {
    struct silo_gpu_scope scope;
    int result = 0;
    if (!unchanged(state)) {
        const int code = silo_gpu_enter(state->device, &scope);
        if (code != 0)
            return fail_plan(error, state, "cannot update", code);
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

static int launch_singly(struct state *state, void *stream, silo_error *error) {
    uint32_t launched = 0;
    /* All grids before the first launch. */
    for (uint32_t i = 0; i < state->count; i++)
        if (runs(&state->nodes[i], values_in(state->block, &state->nodes[i]), error) < 0)
            return -1;
    for (uint32_t i = 0; i < state->count; i++) {
        struct node *node = &state->nodes[i];
        const struct silo_plan_values *values = values_in(state->block, node);
        if (runs(node, values, error) <= 0)
            continue;
        struct silo_launch launch = launch_of(state, node, state->block, values->grid);
        launch.stream = stream;
        if (node->binary != NULL && stream != NULL)
            silo_binary_launched_on(node->binary, stream);
        const int code = state->device->gpu->driver->launch(&launch);
        if (SILO_UNLIKELY(code != 0)) {
            char what[128];
            snprintf(what, sizeof what, "%u kernels were launched; cannot go on with the launch",
                     launched);
            return fail_node(error, state, node, what, code);
        }
        launched++;
        state->updates++;
    }
    return 0;
}

/* ---- opening ---- */

/* With every node disabled, and every kind of update made to each: what the device refuses is seen
 * here, and no kernel runs. Between `enter` and `leave`. */
static int try_updates(struct state *state, silo_error *error) {
    const struct silo_gpu *gpu = state->device->gpu;
    uint8_t *block = silo_plan_ring_block(&state->ring, error);
    void *stream = NULL;
    if (block == NULL)
        return -1;
    struct silo_plan_update *updates = (void *)(block + sizeof(struct silo_plan_head));
    uint32_t at = (uint32_t)(sizeof(struct silo_plan_head) + state->count * sizeof *updates);
    for (uint32_t i = 0; i < state->count; i++) {
        const struct node *node = &state->nodes[i];
        const uint32_t *per = node->function.per_program;
        updates[i] = (struct silo_plan_update){
            .node = i,
            .fields = SILO_PLAN_GRID | SILO_PLAN_ENABLED |
                      (node->parameter_bytes > 0 ? SILO_PLAN_PARAMETERS : 0),
            .grid = {per[0], per[1], per[2]},
            .from = at,
        };
        memset(block + at, 0, node->parameter_bytes);
        at += node->parameter_bytes;
    }
    *(struct silo_plan_head *)(void *)block = (struct silo_plan_head){0, state->count, 1};
    int code = gpu->stream_create(&stream, SILO_GPU_NON_BLOCKING);
    if (code == 0)
        code = graphs_of(state)->upload(state->executable, stream);
    if (code == 0)
        code = graphs_of(state)->launch(state->device, state->executable, stream);
    if (code == 0)
        code = gpu->stream_synchronize(stream);
    if (stream != NULL)
        gpu->stream_destroy(stream);
    if (code != 0)
        return fail_plan(error, state, "cannot try the updates of", code);
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

static int make_ring(struct state *state, const struct silo_graph_plan_options *options,
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

static int write_ring(struct state *state, silo_error *error) {
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

static int make_device_graph(struct state *state, const struct silo_plan_shape *shape,
                             const struct silo_graph_plan_options *options,
                             const struct silo_function *updater, silo_error *error) {
    void *first = NULL;
    if (make_ring(state, options, error) != 0)
        return -1;
    if (begin_graph(state, error) == 0 && add_updater(state, updater, &first, error) == 0 &&
        make_graph(state, shape, first, error) == 0 && write_ring(state, error) == 0 &&
        try_updates(state, error) == 0)
        return 0;
    destroy_graph(state);
    state->ring.replays = __atomic_load_n(&state->ring.report->done, __ATOMIC_ACQUIRE);
    silo_plan_ring_retire(&state->ring);
    return -1;
}

/* The first kernel of which the driver has a parameter elsewhere than the plan, or does not tell;
 * NULL: none. Between `enter` and `leave`. */
static const char *other_places(const struct state *state) {
    const struct silo_gpu *gpu = state->device->gpu;
    for (uint32_t i = 0; i < state->count; i++) {
        const struct node *node = &state->nodes[i];
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

static struct silo_plan_facts facts_of(const struct state *state,
                                       const struct silo_graph_plan_options *options) {
    const struct silo_gpu *gpu = state->device->gpu;
    struct silo_plan_facts facts = {
        .driver = gpu->name,
        .version = gpu->version,
        .graphs = gpu->graphs != NULL,
        .kernels = state->count,
        .wanted = options->wanted,
    };
    for (uint32_t i = 0; i < state->count; i++) {
        facts.cooperative += state->nodes[i].function.cooperative != 0;
        facts.serialized += state->nodes[i].function.pdl != 0;
    }
    if (facts.graphs)
        facts.places = other_places(state);
    return facts;
}

/* A way that the driver refuses is replaced by the next one, with the driver's reason. Other errors
 * are the caller's: of memory, of a context that is lost. */
static bool refused(const silo_error *why) {
    return why->code == SILO_ERROR_LAUNCH || why->code == SILO_ERROR_LOAD;
}

/* Between `enter` and `leave`. */
static int make_way(struct state *state, const struct silo_plan_shape *shape,
                    const struct silo_graph_plan_options *options, silo_error *error) {
    struct silo_plan_facts facts = facts_of(state, options);
    silo_error device_why = {.code = SILO_OK}, host_why = {.code = SILO_OK}, *why = NULL;
    int result = -1;
    while (result != 0 && (why == NULL || refused(why))) {
        state->way = silo_plan_way_choose(&facts, state->reason, sizeof state->reason);
        if (state->way == SILO_PLAN_DEVICE) {
            why = &device_why;
            const struct silo_function *updater = silo_plan_updater(state->device, why);
            if (updater != NULL)
                result = make_device_graph(state, shape, options, updater, why);
            facts.updater = why->text;
        } else if (state->way == SILO_PLAN_HOST) {
            why = &host_why;
            result = make_host_graph(state, shape, why);
            facts.host = why->text;
        } else {
            result = 0;
        }
    }
    if (result != 0 && error != NULL) {
        *error = *why; /* with its details */
        why->details = NULL;
    }
    silo_error_clear(&device_why);
    silo_error_clear(&host_why);
    return result;
}

void *silo_graph_plan_open(const struct silo_plan_shape *shape,
                           const struct silo_graph_plan_options *options, silo_error *error) {
    struct silo_gpu_scope scope;
    silo_plan_rings_sweep();
    if (shape->device == NULL || shape->count == 0) {
        refuse_shape(error, "it has no kernels on a GPU");
        return NULL;
    }
    struct state *state = copy_shape(shape, error);
    if (state == NULL)
        return NULL;
    state->everything = options->everything != 0;
    const int code = silo_gpu_enter(state->device, &scope);
    int result = code;
    if (code == 0) {
        result = make_way(state, shape, options, error);
        silo_gpu_leave(&scope);
    } else {
        fail_plan(error, state, "cannot make", code);
    }
    if (result == 0)
        return state;
    free_state(state);
    return NULL;
}

/* ---- the table ---- */

static void *open_usual(const struct silo_plan_shape *shape, silo_error *error) {
    return silo_graph_plan_open(shape, &(struct silo_graph_plan_options){.slots = 0}, error);
}

/* In a forked child pinned memory may not be there. */
static int refuse_fork(const struct state *state, silo_error *error) {
    return silo_fail(
        error, SILO_ERROR_FORKED,
        "a plan of %u kernels (the first is %s) was made before fork(), and GPUs cannot "
        "be used in the child: make processes that use a GPU with 'spawn'",
        state->count, state->nodes[0].kernel);
}

static int begin(void *opaque, uint8_t **block, silo_error *error) {
    struct state *state = opaque;
    if (SILO_UNLIKELY(state->device->gpu->inherited))
        return refuse_fork(state, error);
    *block = state->block;
    return 0;
}

/* Nodes of a graph that is launched into a capture would be updated once a replay of that capture,
 * by blocks that are gone then. */
static int check_capture(const struct state *state, void *stream, silo_error *error) {
    int status = 0;
    if (stream == NULL || state->way == SILO_PLAN_SINGLY)
        return 0;
    const int code = state->device->gpu->stream_capturing(stream, &status);
    if (SILO_UNLIKELY(code != 0))
        return fail_plan(error, state, "cannot launch", code);
    return SILO_LIKELY(status == 0)
               ? 0
               : silo_fail(error, SILO_ERROR_CAPTURING,
                           "a plan of %u kernels (the first is %s) cannot be replayed on a stream "
                           "that is being captured: a graph in a graph would keep these arguments; "
                           "call the kernels there, or end the capture",
                           state->count, state->nodes[0].kernel);
}

static int launch(void *opaque, void *stream, silo_error *error) {
    struct state *state = opaque;
    int result;
    if (SILO_UNLIKELY(state->device->gpu->inherited))
        return refuse_fork(state, error);
    if (SILO_UNLIKELY(check_capture(state, stream, error) != 0))
        return -1;
    if (SILO_LIKELY(state->way == SILO_PLAN_DEVICE))
        result = launch_by_device(state, stream, error);
    else if (state->way == SILO_PLAN_HOST)
        result = launch_by_host(state, stream, error);
    else
        result = launch_singly(state, stream, error);
    state->replays += result == 0;
    return result;
}

static void close_state(void *opaque) {
    struct state *state = opaque;
    struct silo_gpu_scope scope;
    if (!state->device->gpu->inherited && !silo_gpu_ending() && state->graph != NULL &&
        silo_gpu_enter(state->device, &scope) == 0) {
        destroy_graph(state);
        silo_gpu_leave(&scope);
    }
    if (state->way == SILO_PLAN_DEVICE)
        silo_plan_ring_retire(&state->ring);
    free_state(state);
}

static const char *explain(const void *opaque, const char **reason) {
    const struct state *state = opaque;
    *reason = state->reason;
    return silo_plan_way_name(state->way);
}

void silo_graph_plan_counts(const void *opaque, struct silo_graph_plan_counts *counts) {
    const struct state *state = opaque;
    *counts = (struct silo_graph_plan_counts){state->replays, state->updates, state->ring.slots,
                                              state->way};
}

const struct silo_plan_backend silo_graph_plan = {
    .name = "graph",
    .open = open_usual,
    .begin = begin,
    .launch = launch,
    .close = close_state,
    .explain = explain,
};
