/* Graphs of kernels. A launch runs the nodes in the order in which they were added, which is one
 * that edges allow, at once or when it is released (stub_hold). The kernel that updates nodes is
 * not run: what it does is read here from its block, as native/core/plan_block.h describes it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stub_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -DSTUB_NO_GRAPHS leaves the functions of graphs out, as a driver before CUDA 12 has them not. */
#ifdef STUB_NO_GRAPHS
#define GRAPH static __attribute__((unused))
#else
#define GRAPH API
#endif

#define MAX_NODES 512
#define MAX_LAUNCHES 256

/* CUDA_KERNEL_NODE_PARAMS_v2 */
struct params {
    struct function *function;
    uint32_t grid[3], block[3], shared;
    void **parameters, **extra, *kernel, *context;
};

struct content {
    uint32_t grid[3], enabled;
    uint8_t data[8192]; /* the parameter buffer */
};

struct node {
    struct graph *graph, *child; /* child: run in the place of a kernel; a reference */
    struct params params;
    struct content content;
    struct attribute attributes[4];
    uint32_t attribute_count, number, after_count;
    bool updatable;
    struct node *after[MAX_NODES];
};

struct graph {
    uint32_t count, instances;
    bool updatable;
    struct node *nodes[MAX_NODES]; /* owned */
    int references;                /* the graph's owner, and each executable one */
};

struct executable {
    struct graph *graph;
    bool uploaded, host_changed;
    struct content now[MAX_NODES]; /* of its nodes; what kernels change of nodes is here too */
    int references;
};

struct launch {
    struct executable *executable;
    void *stream, *context;
    int device;
    struct content *snapshot; /* owned; NULL: `now` */
};

static struct launch queued[MAX_LAUNCHES];
static int queued_count, live_graphs, refused_field, refused_code;
static bool held;
static char last_graph[1 << 16];
static uint64_t field_updates[3], block_reads;

/* ---- steering ---- */

API int64_t stub_graphs(void) {
    return live_graphs;
}

/* Nodes, their edges and what they can: of the graph instantiated last. */
API const char *stub_graph_text(void) {
    return last_graph;
}

/* The next update of this field (1: grid, 2: enabled, 4: parameters) fails on the device. */
API void stub_refuse_update(int field, int code) {
    refused_field = field;
    refused_code = code;
}

/* Updates made so far of the grid, whether a node is enabled, parameters; and blocks read. */
API uint64_t stub_updates(int which) {
    return which < 3 ? field_updates[which] : block_reads;
}

/* ---- parameters ---- */

static size_t offset_of(const struct function *function, uint32_t index) {
    size_t offset = 0;
    for (uint32_t i = 0; i <= index; i++) {
        const size_t size = function->sizes[i];
        offset = (offset + size - 1) / size * size;
        if (i < index)
            offset += size;
    }
    return offset;
}

static int fill(struct content *content, const struct params *params) {
    const struct function *function = params->function;
    if (!function->described || params->extra != NULL)
        return INVALID_VALUE;
    memcpy(content->grid, params->grid, sizeof content->grid);
    for (uint32_t i = 0; i < function->count; i++) {
        const size_t offset = offset_of(function, i);
        if (offset + function->sizes[i] > sizeof content->data)
            return INVALID_VALUE;
        memcpy(content->data + offset, params->parameters[i], function->sizes[i]);
    }
    return 0;
}

/* ---- making ---- */

GRAPH int cuGraphCreate(struct graph **graph, unsigned flags) {
    FAIL();
    if (flags != 0)
        return INVALID_VALUE;
    *graph = calloc(1, sizeof **graph); /* owned by the caller */
    (*graph)->references = 1;
    count_live(&live_graphs, 1);
    return 0;
}

static void give_back(struct graph *graph) {
    if (--graph->references != 0)
        return;
    for (uint32_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->child != NULL)
            give_back(graph->nodes[i]->child);
        free(graph->nodes[i]);
    }
    free(graph);
}

GRAPH int cuGraphDestroy(struct graph *graph) {
    FAIL();
    count_live(&live_graphs, -1);
    give_back(graph);
    return 0;
}

GRAPH int cuGraphAddKernelNode_v2(struct node **out, struct graph *graph, struct node *const *after,
                                  size_t after_count, const struct params *params) {
    FAIL();
    if (params->function == NULL || params->grid[0] == 0 || params->grid[1] == 0 ||
        params->grid[2] == 0 || graph->count == MAX_NODES)
        return INVALID_VALUE;
    struct node *node = calloc(1, sizeof *node); /* owned by the graph */
    node->graph = graph;
    node->params = *params;
    node->params.parameters = NULL;
    node->number = graph->count;
    node->after_count = (uint32_t)after_count;
    node->content.enabled = 1;
    bool wrong = fill(&node->content, params) != 0;
    for (size_t i = 0; i < after_count; i++) {
        node->after[i] = after[i];
        wrong |= after[i]->graph != graph;
    }
    if (wrong) {
        free(node);
        return INVALID_VALUE;
    }
    graph->nodes[graph->count++] = node;
    *out = node;
    return 0;
}

/* The driver copies the child. Here no call changes a graph once it is a child. */
GRAPH int cuGraphAddChildGraphNode(struct node **out, struct graph *graph,
                                   struct node *const *after, size_t after_count,
                                   struct graph *child) {
    FAIL();
    if (child == NULL || child == graph || child->updatable || child->count == 0 ||
        graph->count == MAX_NODES)
        return INVALID_VALUE;
    struct node *node = calloc(1, sizeof *node); /* owned by the graph */
    node->graph = graph;
    node->child = child;
    node->number = graph->count;
    node->after_count = (uint32_t)after_count;
    node->content.enabled = 1;
    for (size_t i = 0; i < after_count; i++)
        node->after[i] = after[i];
    child->references++;
    graph->nodes[graph->count++] = node;
    *out = node;
    return 0;
}

GRAPH int cuGraphKernelNodeSetAttribute(struct node *node, int id, void *value) {
    FAIL();
    if (id == 13) {
        if (*(int *)value != 1 || node->graph->instances > 0)
            return INVALID_VALUE;
        node->updatable = node->graph->updatable = true;
        return 0;
    }
    if (id != 2 && id != 4 && id != 5) /* of launches alone */
        return INVALID_VALUE;
    struct attribute *attribute = &node->attributes[node->attribute_count++];
    attribute->id = (uint32_t)id;
    memcpy(attribute->values, value, sizeof attribute->values);
    return 0;
}

GRAPH int cuGraphKernelNodeGetAttribute(struct node *node, int id, uint64_t *value) {
    FAIL();
    if (id != 13)
        return INVALID_VALUE;
    value[0] = node->updatable;
    value[1] = node->updatable ? (uint64_t)(uintptr_t)node : 0;
    return 0;
}

static void describe(const struct graph *graph) {
    size_t used = 0;
    last_graph[0] = '\0';
    for (uint32_t i = 0; i < graph->count && used < sizeof last_graph - 512; i++) {
        const struct node *node = graph->nodes[i];
        char *to = last_graph + used;
        int length;
        if (node->child != NULL)
            length = sprintf(to, "%u graph nodes=%u after=", i, node->child->count);
        else
            length = sprintf(to, "%u %s block=%u,%u,%u shared=%u%s after=", i,
                             node->params.function->entry->name, node->params.block[0],
                             node->params.block[1], node->params.block[2], node->params.shared,
                             node->updatable ? " updatable" : "");
        for (uint32_t k = 0; k < node->after_count; k++)
            length += sprintf(to + length, "%s%u", k > 0 ? "," : "", node->after[k]->number);
        for (uint32_t k = 0; k < node->attribute_count; k++)
            length += sprintf(to + length, " attribute%u=%u", node->attributes[k].id,
                              node->attributes[k].values[0]);
        length += sprintf(to + length, "\n");
        used += (size_t)length;
    }
}

GRAPH int cuGraphInstantiateWithFlags(struct executable **out, struct graph *graph,
                                      uint64_t flags) {
    FAIL();
    if (flags != 0 || (graph->updatable && graph->instances > 0))
        return INVALID_VALUE;
    struct executable *executable = calloc(1, sizeof *executable); /* owned by the caller */
    executable->graph = graph;
    executable->references = 1;
    graph->references++;
    graph->instances++;
    for (uint32_t i = 0; i < graph->count; i++)
        executable->now[i] = graph->nodes[i]->content;
    pthread_mutex_lock(&lock);
    describe(graph);
    pthread_mutex_unlock(&lock);
    count_live(&live_graphs, 1);
    *out = executable;
    return 0;
}

static void drop(struct executable *executable) {
    if (--executable->references != 0)
        return;
    give_back(executable->graph);
    free(executable);
}

GRAPH int cuGraphExecDestroy(struct executable *executable) {
    FAIL();
    count_live(&live_graphs, -1);
    drop(executable); /* where a launch of it is queued, that keeps it */
    return 0;
}

GRAPH int cuGraphExecKernelNodeSetParams_v2(struct executable *executable, struct node *node,
                                            const struct params *params) {
    FAIL();
    if (node->graph != executable->graph || params->function != node->params.function)
        return INVALID_VALUE;
    executable->uploaded &= !node->updatable;
    return fill(&executable->now[node->number], params);
}

GRAPH int cuGraphNodeSetEnabled(struct executable *executable, struct node *node,
                                unsigned enabled) {
    FAIL();
    if (node->graph != executable->graph)
        return INVALID_VALUE;
    executable->uploaded &= !node->updatable;
    executable->now[node->number].enabled = enabled != 0;
    return 0;
}

GRAPH int cuGraphUpload(struct executable *executable, void *stream) {
    (void)stream;
    FAIL();
    executable->uploaded = true;
    return 0;
}

/* ---- running ---- */

static bool refused(uint32_t field) {
    if (((uint32_t)refused_field & field) == 0)
        return false;
    refused_field = 0;
    return true;
}

/* One update, as a thread makes it: whether the node runs, the grid, parameters, up to what fails.
 */
static uint32_t update_node(struct executable *executable, const uint64_t word[8],
                            const uint8_t *block, const uint32_t update[8]) {
    uint32_t first_run, run_count;
    uint64_t handle;
    const uint8_t *entry = (const uint8_t *)(uintptr_t)(word[6] + 16 * update[0]);
    memcpy(&handle, entry, 8);
    memcpy(&first_run, entry + 8, 4);
    memcpy(&run_count, entry + 12, 4);
    const struct node *node = (const struct node *)(uintptr_t)handle;
    struct content *content = &executable->now[node->number];
    if (!node->updatable || node->graph != executable->graph)
        return INVALID_VALUE;
    if (refused(update[1] & 2))
        return (uint32_t)refused_code;
    if (update[1] & 2) {
        __atomic_add_fetch(&field_updates[1], 1, __ATOMIC_RELAXED);
        content->enabled = update[5];
    }
    if (refused(update[1] & 1))
        return (uint32_t)refused_code;
    if (update[1] & 1) {
        __atomic_add_fetch(&field_updates[0], 1, __ATOMIC_RELAXED);
        memcpy(content->grid, update + 2, 12);
        if (update[2] == 0 || update[3] == 0 || update[4] == 0)
            return INVALID_VALUE;
    }
    if (refused(update[1] & 4))
        return (uint32_t)refused_code;
    if (update[1] & 4) {
        __atomic_add_fetch(&field_updates[2], 1, __ATOMIC_RELAXED);
        for (uint32_t k = 0; k < run_count; k++) {
            uint32_t run[2];
            memcpy(run, (const void *)(uintptr_t)(word[7] + 8 * (first_run + k)), 8);
            memcpy(content->data + run[0], block + update[6] + run[0], run[1]);
        }
    }
    return 0;
}

/* What plan_block.h says of memory, read here by numbers: a second reader of the layout. */
static int update_nodes(struct executable *executable, const uint8_t *plan) {
    uint64_t word[8]; /* replay, slots, counts, ring, stride, report, nodes, runs */
    uint32_t slots;
    memcpy(word, plan, sizeof word);
    memcpy(&slots, plan + 8, 4);
    const uint64_t replay = word[0];
    const uint8_t *block = (const uint8_t *)(uintptr_t)(word[3] + replay % slots * word[4]);
    uint8_t *report = (uint8_t *)(uintptr_t)word[5];
    uint64_t held_replay;
    uint32_t count, trial, failed = 0, number = 0;
    memcpy(&held_replay, block, 8);
    memcpy(&count, block + 8, 4);
    memcpy(&trial, block + 12, 4);
    __atomic_add_fetch(&block_reads, 1, __ATOMIC_RELAXED);
    if (held_replay != replay)
        failed = 0x10000;
    for (uint32_t i = 0; i < count && failed != 0x10000; i++) {
        uint32_t update[8];
        memcpy(update, block + 32 + 32 * i, sizeof update);
        const uint32_t code = update_node(executable, word, block, update);
        if (code != 0) {
            failed = code;
            number = update[0];
        }
    }
    if (failed != 0) {
        memcpy(report + 12, &number, 4);
        __atomic_store_n((uint32_t *)(void *)(report + 8), failed, __ATOMIC_RELEASE);
        if (!trial)
            return 719;
    }
    const uint64_t next = replay + 1;
    memcpy((uint8_t *)(uintptr_t)plan, &next, 8);
    __atomic_store_n((uint64_t *)(void *)report, next, __ATOMIC_RELEASE);
    return 0;
}

static int run_kernel(const struct launch *launch, const struct node *node,
                      struct content *content) {
    struct executable *executable = launch->executable;
    struct function *function = node->params.function;
    if (!content->enabled)
        return 0;
    if (strcmp(function->entry->name, "silo_plan_update") == 0) {
        uint64_t plan;
        memcpy(&plan, content->data, 8);
        return update_nodes(executable, (const uint8_t *)(uintptr_t)plan);
    }
    void *parameters[MAX_PARAMETERS];
    for (uint32_t i = 0; i < function->count; i++)
        parameters[i] = content->data + offset_of(function, i);
    const struct config config = {
        {content->grid[0], content->grid[1], content->grid[2]},
        {node->params.block[0], node->params.block[1], node->params.block[2]},
        node->params.shared,
        launch->stream,
        node->attributes,
        node->attribute_count};
    return record_launch(&config, function, parameters, launch->context, launch->device, 0);
}

static int run(struct launch *launch) {
    const struct graph *graph = launch->executable->graph;
    struct content *contents =
        launch->snapshot != NULL ? launch->snapshot : launch->executable->now;
    int code = 0;
    for (uint32_t i = 0; i < graph->count && code == 0; i++) {
        const struct graph *child = graph->nodes[i]->child;
        if (child == NULL)
            code = run_kernel(launch, graph->nodes[i], &contents[i]);
        for (uint32_t k = 0; child != NULL && k < child->count && code == 0; k++)
            code = run_kernel(launch, child->nodes[k], &child->nodes[k]->content);
    }
    free(launch->snapshot);
    drop(launch->executable);
    return code;
}

/* Launches wait from now on, until this many are released (-1: all, and none waits any more). */
API void stub_hold(void) {
    held = true;
}

API int stub_release(int count) {
    held &= count >= 0;
    return run_queued(count);
}

int run_queued(int count) {
    int code = 0, released = 0;
    while (queued_count > 0 && (count < 0 || released < count)) {
        struct launch first = queued[0];
        memmove(queued, queued + 1, (size_t)--queued_count * sizeof *queued);
        const int one = run(&first);
        code = code != 0 ? code : one;
        released++;
    }
    return code;
}

/* While nothing is recorded: the updater counts its replay, and nothing else happens. */
static int count_replay(const struct executable *executable) {
    const struct node *first = executable->graph->nodes[0];
    uint64_t plan, report;
    if (!first->graph->updatable)
        return 0;
    memcpy(&plan, first->content.data, 8);
    uint64_t *replay = (uint64_t *)(uintptr_t)plan;
    memcpy(&report, (const uint8_t *)replay + 40, 8); /* struct silo_plan_device */
    ++*replay;
    __atomic_store_n((uint64_t *)(uintptr_t)report, *replay, __ATOMIC_RELEASE);
    return 0;
}

GRAPH int cuGraphLaunch(struct executable *executable, void *stream) {
    if (LIKELY(!watched))
        return count_replay(executable);
    FAIL();
    int device = -1;
    void *context = NULL;
    if (current_context(&context, &device) != 0)
        return INVALID_CONTEXT;
    if (executable->graph->updatable && !executable->uploaded)
        return INVALID_VALUE;
    if (stream_status((uint64_t)(uintptr_t)stream) != 0)
        return CAPTURE_UNSUPPORTED;
    if (queued_count == MAX_LAUNCHES)
        return INVALID_VALUE;
    struct launch launch = {executable, stream, context, device, NULL};
    executable->references++;
    if (!executable->graph->updatable) {
        launch.snapshot = malloc(sizeof executable->now);
        memcpy(launch.snapshot, executable->now, sizeof executable->now);
    }
    if (held) {
        queued[queued_count++] = launch;
        return 0;
    }
    const int code = run(&launch);
    if (code != 0)
        break_context(code);
    return 0;
}
