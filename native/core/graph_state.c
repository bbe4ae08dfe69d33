#include "graph_state.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t round_up(uint32_t bytes, uint32_t to) {
    return (bytes + to - 1) / to * to;
}

/* ---- errors ---- */

int silo_graph_fail_node(silo_error *error, const struct silo_graph_state *state,
                         const struct silo_graph_node *node, const char *problem, int code) {
    char text[256];
    snprintf(text, sizeof text, "%s of kernel %s, number %td of the %u of a plan", problem,
             node->kernel, node - state->nodes, state->count);
    return silo_gpu_fail(error, state->device->gpu, SILO_ERROR_LAUNCH, text, code);
}

int silo_graph_fail_plan(silo_error *error, const struct silo_graph_state *state,
                         const char *problem, int code) {
    char text[256];
    snprintf(text, sizeof text, "%s a plan of %u kernels (the first is %s)", problem, state->count,
             state->nodes[0].kernel);
    return silo_gpu_fail(error, state->device->gpu, SILO_ERROR_LAUNCH, text, code);
}

/* ---- copying the shape ---- */

int silo_graph_refuse_shape(silo_error *error, const char *text) {
    return silo_fail(error, SILO_ERROR_USAGE, "a plan cannot be made: %s", text);
}

/* Checks that the parameters are in order, do not overlap, and are inside the block together with
 * the node's values. */
static int check_places(const struct silo_plan_shape *shape, const struct silo_plan_node *node,
                        uint32_t *bytes, silo_error *error) {
    size_t end = 0;
    for (uint32_t i = 0; i < node->parameter_count; i++) {
        const struct silo_parameter_place *place = &node->places[i];
        if (place->offset < end || place->size == 0 || place->size > SILO_MOST_PLACES ||
            place->offset > SILO_MOST_PLACES)
            return silo_graph_refuse_shape(error, "parameters overlap, or are of no size");
        end = place->offset + place->size;
    }
    *bytes = round_up((uint32_t)end, 16);
    const uint64_t last = (uint64_t)node->values + sizeof(struct silo_plan_values) + *bytes;
    if (node->values % 16 != 0 || last > shape->block_bytes)
        return silo_graph_refuse_shape(error,
                                       "the block has no room for the parameters of a kernel");
    return 0;
}

static int check_node(const struct silo_plan_shape *shape, uint32_t number, silo_error *error) {
    const struct silo_plan_node *node = &shape->nodes[number];
    if (node->graph != NULL && (node->parameter_count > 0 || node->function != NULL))
        return silo_graph_refuse_shape(error, "a graph has neither parameters nor a kernel");
    if (node->graph == NULL && node->function->device != shape->device)
        return silo_fail(error, SILO_ERROR_WRONG_DEVICE,
                         "a plan cannot be made: kernel %s is loaded on another device",
                         node->kernel);
    for (uint32_t i = 0; i < node->after_count; i++)
        if (node->after[i] >= number)
            return silo_graph_refuse_shape(error, "a kernel waits for itself or a later one");
    return 0;
}

static int copy_node(struct silo_graph_state *state, const struct silo_plan_shape *shape,
                     uint32_t number, silo_error *error) {
    const struct silo_plan_node *from = &shape->nodes[number];
    struct silo_graph_node *to = &state->nodes[number];
    if (check_node(shape, number, error) != 0 ||
        check_places(shape, from, &to->parameter_bytes, error) != 0)
        return -1;
    to->graph = from->graph;
    state->graphs += from->graph != NULL;
    if (from->function != NULL)
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

/* Joins adjacent parameters, so that one update sets them together. */
static void find_runs(struct silo_graph_state *state, struct silo_graph_node *node) {
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

void silo_graph_state_free(struct silo_graph_state *state) {
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

struct silo_graph_state *silo_graph_state_copy(const struct silo_plan_shape *shape,
                                               silo_error *error) {
    struct silo_graph_state *state = calloc(1, sizeof *state);
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
    /* 64-byte alignment, for tensor maps in the blocks. */
    state->block = aligned_alloc(64, round_up(shape->block_bytes, 64));
    state->sent = aligned_alloc(64, round_up(shape->block_bytes, 64));
    if (state->nodes == NULL || state->params == NULL || state->runs == NULL ||
        state->block == NULL || state->sent == NULL) {
        silo_fail_memory(error);
        silo_graph_state_free(state);
        return NULL;
    }
    memset(state->block, 0, shape->block_bytes);
    memset(state->sent, 0, shape->block_bytes);
    for (uint32_t i = 0; i < shape->count; i++) {
        if (copy_node(state, shape, i, error) != 0) {
            silo_graph_state_free(state);
            return NULL;
        }
        find_runs(state, &state->nodes[i]);
    }
    return state;
}

/* ---- launches ---- */

struct silo_launch silo_graph_launch_of(const struct silo_graph_state *state,
                                        struct silo_graph_node *node, uint8_t *block,
                                        const uint32_t grid[3]) {
    uint8_t *from = silo_graph_parameters(block, node);
    for (uint32_t i = 0; i < node->parameter_count; i++)
        state->params[i] = from + node->places[i].offset;
    return (struct silo_launch){
        .function = &node->function, .grid = {grid[0], grid[1], grid[2]}, .params = state->params};
}
