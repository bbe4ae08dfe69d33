/* native/core/graph_plan.c for tests and benchmarks: a device, kernels and plans as plain
 * functions, and timed replays that are written in C. Each returns NULL or -1 with a text in
 * `plan_error`. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "binary.h"
#include "device.h"
#include "gpu_forked.h"
#include "graph_plan.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))
#define MOST 256

static _Thread_local silo_error failure;

API const char *plan_error(int *code) {
    *code = failure.code;
    return failure.text;
}

/* ---- devices and kernels ---- */

static void watch_forks(void) {
    silo_gpu_forked_init();
}

API void *plan_device(const char *kind, const char *library, int index) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    struct silo_gpu *gpu = silo_gpu_named(kind, &failure);
    if (gpu == NULL || silo_gpu_open(gpu, library, &failure) != 0)
        return NULL;
    return silo_gpu_device(gpu, index, &failure);
}

struct kernel {
    struct silo_binary *binary;
    struct silo_gpu_device *device;
    void *graph; /* owned: runs in the place of the kernel */
    struct silo_function function;
    char name[128];
    uint32_t count;
    struct silo_parameter_place places[MOST];
};

/* What a kernel is launched with. */
struct form {
    uint32_t block[3], cluster[3], shared_bytes, cooperative, pdl, counts_blocks;
    uint32_t count, sizes[MOST]; /* of its parameters, where the driver does not tell */
};

API void *plan_kernel(struct silo_gpu_device *device, const void *code, size_t size,
                      const char *name, const struct form *form) {
    struct kernel *kernel = calloc(1, sizeof *kernel); /* freed by plan_release */
    struct silo_function *function = &kernel->function;
    for (int axis = 0; axis < 3; axis++) {
        function->block[axis] = (uint16_t)form->block[axis];
        function->cluster[axis] = form->cluster[axis];
    }
    function->shared_bytes = form->shared_bytes;
    function->cooperative = (int)form->cooperative;
    function->pdl = (int)form->pdl;
    function->counts_blocks = form->counts_blocks;
    strncpy(kernel->name, name, sizeof kernel->name - 1);
    kernel->binary = silo_binary_load(device, code, size, NULL, &failure);
    if (kernel->binary == NULL ||
        silo_binary_function(kernel->binary, kernel->name, name, function, &failure) != 0) {
        silo_binary_release(kernel->binary);
        free(kernel);
        return NULL;
    }
    const int64_t told = silo_binary_places(kernel->binary, function, kernel->places, MOST);
    size_t at = 0;
    kernel->count = told >= 0 ? (uint32_t)told : form->count;
    for (uint32_t i = 0; told < 0 && i < form->count; i++) {
        at = (at + form->sizes[i] - 1) / form->sizes[i] * form->sizes[i];
        kernel->places[i] = (struct silo_parameter_place){at, form->sizes[i]};
        at += form->sizes[i];
    }
    return kernel;
}

/* A graph of one launch, as a node that runs it. */
API void *plan_graph(struct silo_gpu_device *device, const struct kernel *of,
                     const uint32_t grid[3], uint8_t *parameters) {
    struct kernel *made = calloc(1, sizeof *made); /* freed by plan_release */
    struct silo_gpu_scope scope;
    void *params[MOST], *node;
    struct silo_function function = of->function;
    for (uint32_t i = 0; i < of->count; i++)
        params[i] = parameters + of->places[i].offset;
    const struct silo_launch launch = {
        .function = &function, .grid = {grid[0], grid[1], grid[2]}, .params = params};
    strcpy(made->name, "captured");
    made->device = device;
    int code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        code = device->gpu->graphs->create(&made->graph);
        if (code == 0)
            code = device->gpu->graphs->add(made->graph, &launch, NULL, 0, &node);
        silo_gpu_leave(&scope);
    }
    if (code == 0)
        return made;
    silo_gpu_fail(&failure, device->gpu, SILO_ERROR_LAUNCH, "plan_graph", code);
    free(made);
    return NULL;
}

API void *plan_graph_handle(const struct kernel *kernel) {
    return kernel->graph;
}

API void plan_release(struct kernel *kernel) {
    struct silo_gpu_scope scope;
    if (kernel->graph != NULL && silo_gpu_enter(kernel->device, &scope) == 0) {
        kernel->device->gpu->graphs->destroy(kernel->graph);
        silo_gpu_leave(&scope);
    }
    silo_binary_release(kernel->binary);
    free(kernel);
}

API uint32_t plan_place(const struct kernel *kernel, uint32_t index) {
    return (uint32_t)kernel->places[index].offset;
}

/* ---- plans ---- */

struct plan {
    void *state;
    uint32_t count, values[512];
};

/* `after`: `after_counts[i]` numbers a node, one node behind the other; NULL: each waits for the
 * one before it. */
API void *plan_open(struct silo_gpu_device *device, struct kernel *const *kernels, uint32_t count,
                    const uint32_t *after_counts, const uint32_t *after,
                    const struct silo_graph_plan_options *options) {
    struct plan *plan = calloc(1, sizeof *plan); /* freed by plan_close */
    struct silo_plan_node *nodes = calloc(count + 1, sizeof *nodes);
    uint32_t *chain = calloc(count + 1, sizeof *chain), at = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct kernel *kernel = kernels[i];
        const struct silo_parameter_place *last = &kernel->places[kernel->count - 1];
        const uint32_t bytes = kernel->count > 0 ? (uint32_t)(last->offset + last->size) : 0;
        chain[i] = i - 1;
        plan->values[i] = at;
        nodes[i] = (struct silo_plan_node){
            .function = kernel->graph == NULL ? &kernel->function : NULL,
            .graph = kernel->graph,
            .binary = kernel->binary,
            .kernel = kernel->name,
            .parameter_count = kernel->count,
            .places = kernel->places,
            .values = at,
            .after = after != NULL ? after : &chain[i],
            .after_count = after != NULL ? after_counts[i] : i > 0,
        };
        if (after != NULL)
            after += after_counts[i];
        at += (uint32_t)sizeof(struct silo_plan_values) + (bytes + 15) / 16 * 16;
    }
    plan->count = count;
    const struct silo_plan_shape shape = {device, nodes, count, at};
    plan->state = silo_graph_plan_open(&shape, options, &failure);
    free(nodes);
    free(chain);
    if (plan->state == NULL) {
        free(plan);
        return NULL;
    }
    return plan;
}

API int plan_set(struct plan *plan, uint32_t node, const uint32_t grid[3], uint32_t enabled,
                 const void *parameters, size_t bytes) {
    uint8_t *block;
    if (silo_graph_plan.begin(plan->state, &block, &failure) != 0)
        return -1;
    struct silo_plan_values *values = (void *)(block + plan->values[node]);
    memcpy(values->grid, grid, sizeof values->grid);
    values->enabled = enabled;
    memcpy(values + 1, parameters, bytes);
    return 0;
}

API int plan_launch(struct plan *plan, void *stream) {
    return silo_graph_plan.launch(plan->state, stream, &failure);
}

API void plan_close(struct plan *plan) {
    silo_graph_plan.close(plan->state);
    free(plan);
}

API const char *plan_explain(const struct plan *plan, const char **reason) {
    return silo_graph_plan.explain(plan->state, reason);
}

API void plan_counts(const struct plan *plan, struct silo_graph_plan_counts *counts) {
    silo_graph_plan_counts(plan->state, counts);
}

/* ---- memory and streams, for programs on a real GPU ---- */

static int driver_code(const struct silo_gpu_device *device, int code) {
    return code == 0 ? 0
                     : silo_gpu_fail(&failure, device->gpu, SILO_ERROR_LAUNCH, "plan_driver", code);
}

API int plan_stream(struct silo_gpu_device *device, void **stream) {
    struct silo_gpu_scope scope;
    if (driver_code(device, silo_gpu_enter(device, &scope)) != 0)
        return -1;
    const int code = device->gpu->stream_create(stream, SILO_GPU_NON_BLOCKING);
    silo_gpu_leave(&scope);
    return driver_code(device, code);
}

API int plan_memory(struct silo_gpu_device *device, uint64_t *address, size_t bytes) {
    struct silo_gpu_scope scope;
    if (driver_code(device, silo_gpu_enter(device, &scope)) != 0)
        return -1;
    const int code = device->gpu->memory_alloc(address, bytes);
    silo_gpu_leave(&scope);
    return driver_code(device, code);
}

/* Waits for it. */
API int plan_copy(struct silo_gpu_device *device, uint64_t to, uint64_t from, size_t bytes,
                  void *stream) {
    struct silo_gpu_scope scope;
    if (driver_code(device, silo_gpu_enter(device, &scope)) != 0)
        return -1;
    int code = device->gpu->copy(to, from, bytes, stream);
    if (code == 0)
        code = device->gpu->stream_synchronize(stream);
    silo_gpu_leave(&scope);
    return driver_code(device, code);
}

API int plan_wait(struct silo_gpu_device *device, void *stream) {
    struct silo_gpu_scope scope;
    if (driver_code(device, silo_gpu_enter(device, &scope)) != 0)
        return -1;
    const int code = device->gpu->stream_synchronize(stream);
    silo_gpu_leave(&scope);
    return driver_code(device, code);
}

/* ---- timed replays of kernels of five pointers and three ints ---- */

struct five {
    uint64_t pointers[5];
    int32_t ints[3];
};

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* `turns` replays, each begun when the stream is empty. `change`: every pointer, int and grid is
 * another than in the turn before. The time until the launch has returned, which includes filling
 * the block, and until the stream is empty again, microseconds. */
API int plan_turns(struct plan *plan, struct silo_gpu_device *device, void *stream,
                   const uint64_t arrays[10], int32_t elements, uint32_t threads, int change,
                   uint32_t turns, double *host_us, double *whole_us) {
    struct silo_gpu_scope scope;
    uint8_t *block;
    int result = 0;
    if (driver_code(device, silo_gpu_enter(device, &scope)) != 0)
        return -1;
    for (uint32_t turn = 0; turn < turns && result == 0; turn++) {
        const uint32_t odd = change ? turn & 1 : 0;
        if (device->gpu->stream_synchronize(stream) != 0)
            result = -1;
        const double begin = now_us();
        if (silo_graph_plan.begin(plan->state, &block, &failure) != 0)
            result = -1;
        for (uint32_t i = 0; i < plan->count && result == 0; i++) {
            struct silo_plan_values *values = (void *)(block + plan->values[i]);
            struct five *five = (void *)(values + 1);
            const int32_t n = elements - (int32_t)((i + turn * (change != 0)) % 128);
            values->grid[0] = ((uint32_t)n + threads - 1) / threads + odd;
            values->grid[1] = values->grid[2] = 1;
            values->enabled = 1;
            for (uint32_t k = 0; k < 5; k++)
                five->pointers[k] = arrays[odd ? 5 + k : k];
            five->ints[0] = n;
            five->ints[1] = (int32_t)(i + turn * (change != 0));
            five->ints[2] = (int32_t)(i ^ (turn * (change != 0)));
        }
        if (result == 0)
            result = silo_graph_plan.launch(plan->state, stream, &failure);
        host_us[turn] = now_us() - begin;
        if (device->gpu->stream_synchronize(stream) != 0)
            result = -1;
        whole_us[turn] = now_us() - begin;
    }
    silo_gpu_leave(&scope);
    return result;
}
