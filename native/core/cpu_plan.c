#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_plan.h"

#include "base.h"
#include "cpu_clock.h"
#include "cpu_driver.h"
#include "cpu_pace.h"
#include "cpu_plan_trial.h"
#include "cpu_pool.h"
#include "cpu_thread.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* A launch estimated at fewer than this many nanoseconds stays on the calling thread, as in
 * cpu_pool.c. */
#define LEAST_SHARED 5000
/* A waiting thread checks this many times whether a launch can begin; then it yields its CPU. */
#define LOOKS 2000

struct cpu_node {
    struct silo_function *function;
    silo_cpu_entry *entry;
    const struct silo_plan_values *values;
    void **params;              /* pointers into the plan's block */
    const char *kernel;         /* owned */
    struct silo_binary *binary; /* owned: a reference; may be NULL */
    const uint32_t *next;       /* numbers of the nodes that wait for this one */
    uint32_t next_count, after_count;
    bool waits; /* programs may wait for each other, so that only the pool can run the node */
    _Atomic uint32_t left; /* number of unfinished nodes that this node waits for */
};

struct cpu_plan {
    struct cpu_node *nodes;
    uint32_t count;
    int width;     /* the most threads that can have work at the same time */
    bool together; /* whether some nodes can run at the same time */
    uint64_t scratch_bytes;
    bool nested; /* the replay was launched by a kernel that runs on this thread and uses its
                    scratch memory */
    uint8_t *block, *memory; /* `memory` is owned; `block` is the aligned address in it */
    void **params;
    uint32_t *next;
    _Atomic uint32_t *queue;      /* node numbers that may begin, plus 1; 0: not written yet */
    struct silo_plan_trial trial; /* decides between running in order and together */
    /* The state of the current replay: how many nodes were put into `queue`, were taken from it,
     * and are finished. */
    _Atomic uint32_t queued, taken, done;
    _Atomic int failed; /* number of the node that failed, plus 1; 0: none */
    int code;
    char text[sizeof(((struct silo_fault *)0)->text)];
};

static void plan_close(void *state) {
    struct cpu_plan *plan = state;
    if (plan == NULL)
        return;
    for (uint32_t i = 0; plan->nodes != NULL && i < plan->count; i++) {
        free((void *)(uintptr_t)plan->nodes[i].kernel);
        if (plan->nodes[i].binary != NULL)
            silo_binary_release(plan->nodes[i].binary);
    }
    free(plan->nodes);
    free(plan->memory);
    free(plan->params);
    free(plan->next);
    free(plan->queue);
    free(plan);
}

/* Returns the largest number of nodes at the same depth of the graph. */
static int find_width(const struct silo_plan_shape *shape, uint32_t *depth, uint32_t *at_depth) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < shape->count; i++) {
        depth[i] = 0;
        for (uint32_t k = 0; k < shape->nodes[i].after_count; k++) {
            const uint32_t above = depth[shape->nodes[i].after[k]] + 1;
            depth[i] = above > depth[i] ? above : depth[i];
        }
        if (++at_depth[depth[i]] > most)
            most = at_depth[depth[i]];
    }
    return most < INT16_MAX ? (int)most : INT16_MAX;
}

static void take_node(struct cpu_plan *plan, const struct silo_plan_node *from,
                      struct cpu_node *node, void **params) {
    node->function = from->function;
    memcpy(&node->entry, &from->function->handle, sizeof node->entry);
    node->values = (const void *)(plan->block + from->values);
    node->params = params;
    for (uint32_t i = 0; i < from->parameter_count; i++)
        params[i] =
            plan->block + from->values + sizeof(struct silo_plan_values) + from->places[i].offset;
    node->kernel = strdup(from->kernel);
    node->binary = from->binary;
    if (node->binary != NULL)
        silo_binary_retain(node->binary);
    node->after_count = from->after_count;
    node->waits = from->function->cpu_chunk == 1 || from->function->cooperative != 0;
    if (from->function->scratch_bytes > plan->scratch_bytes)
        plan->scratch_bytes = from->function->scratch_bytes;
}

/* Inverts the edges: from the nodes that each node waits for, to the nodes that wait for it. */
static void turn_round(struct cpu_plan *plan, const struct silo_plan_shape *shape) {
    uint32_t *next = plan->next;
    for (uint32_t i = 0; i < shape->count; i++)
        for (uint32_t k = 0; k < shape->nodes[i].after_count; k++)
            plan->nodes[shape->nodes[i].after[k]].next_count++;
    for (uint32_t i = 0; i < shape->count; i++) {
        plan->nodes[i].next = next;
        next += plan->nodes[i].next_count;
        plan->nodes[i].next_count = 0;
    }
    for (uint32_t i = 0; i < shape->count; i++)
        for (uint32_t k = 0; k < shape->nodes[i].after_count; k++) {
            struct cpu_node *earlier = &plan->nodes[shape->nodes[i].after[k]];
            plan->next[(earlier->next - plan->next) + earlier->next_count++] = i;
        }
}

static void *plan_open(const struct silo_plan_shape *shape, silo_error *error) {
    struct cpu_plan *plan = calloc(1, sizeof *plan);
    size_t parameters = 0, edges = 0;
    for (uint32_t i = 0; i < shape->count; i++) {
        parameters += shape->nodes[i].parameter_count;
        edges += shape->nodes[i].after_count;
    }
    uint32_t *depths = calloc(2 * (size_t)shape->count + 1, sizeof *depths);
    if (plan != NULL) {
        plan->nodes = calloc((size_t)shape->count + 1, sizeof *plan->nodes);
        plan->memory = calloc(1, (size_t)shape->block_bytes + 64);
        plan->params = calloc(parameters + 1, sizeof *plan->params);
        plan->next = calloc(edges + 1, sizeof *plan->next);
        plan->queue = calloc((size_t)shape->count + 1, sizeof *plan->queue);
    }
    if (plan == NULL || depths == NULL || plan->nodes == NULL || plan->memory == NULL ||
        plan->params == NULL || plan->next == NULL || plan->queue == NULL) {
        free(depths);
        plan_close(plan);
        silo_fail_memory(error);
        return NULL;
    }
    plan->block = plan->memory + (64 - ((uintptr_t)plan->memory & 63));
    silo_plan_trial_init(&plan->trial);
    plan->width = find_width(shape, depths, depths + shape->count);
    plan->together = plan->width > 1;
    bool named = true;
    void **params = plan->params;
    for (uint32_t i = 0; i < shape->count; i++) {
        take_node(plan, &shape->nodes[i], &plan->nodes[i], params);
        params += shape->nodes[i].parameter_count;
        plan->count = i + 1;
        named = named && plan->nodes[i].kernel != NULL;
        plan->together = plan->together && !plan->nodes[i].waits;
    }
    free(depths);
    if (!named) {
        plan_close(plan);
        silo_fail_memory(error);
        return NULL;
    }
    turn_round(plan, shape);
    return plan;
}

static int plan_begin(void *state, uint8_t **block, silo_error *error) {
    (void)error;
    *block = ((struct cpu_plan *)state)->block;
    return 0;
}

static uint64_t programs_of(const struct cpu_node *node) {
    const uint32_t *grid = node->values->grid;
    return (uint64_t)grid[0] * grid[1] * grid[2];
}

/* The state for running small launches of a plan on the calling thread. The crash report reads
 * `job`. */
struct runner {
    struct silo_cpu_thread *thread;
    struct silo_cpu_runner own;
    struct silo_cpu_job job;
    struct silo_cpu_launch request;
    void *scratch;
    bool owns_scratch; /* `scratch` was allocated for this runner; otherwise it belongs to the
                          thread */
};

/* Prepares `runner` for launches of `plan` on the calling thread. `alone`: whether this thread runs
 * the whole replay. Returns false if out of memory. */
static bool runner_begin(struct runner *runner, const struct cpu_plan *plan, bool alone) {
    struct silo_cpu_thread *thread = silo_cpu_make_thread();
    runner->thread = thread;
    if (thread == NULL)
        return false;
    runner->scratch = NULL;
    runner->owns_scratch = false;
    if (plan->scratch_bytes != 0) {
        runner->owns_scratch = plan->nested;
        runner->scratch = runner->owns_scratch
                              ? silo_cpu_new_scratch(plan->scratch_bytes)
                              : silo_cpu_thread_scratch(thread, plan->scratch_bytes);
        if (runner->scratch == NULL)
            return false;
    }
    runner->job.launch = &runner->request;
    runner->own.job = &runner->job;
    runner->own.begin = 0;
    runner->own.context.wait = NULL;
    runner->own.context.alone = alone;
    return true;
}

static void runner_end(struct runner *runner) {
    if (runner->owns_scratch)
        free(runner->scratch);
}

/* Runs all programs of a node on this thread. Returns 0 or the kernel's error code. */
static int run_here(struct runner *runner, const struct cpu_node *node, uint64_t total) {
    struct silo_cpu_thread *thread = runner->thread;
    runner->request.name = node->kernel;
    runner->request.grid = node->values->grid;
    runner->own.end = total;
    runner->own.context.fault.bytes = sizeof runner->own.context;
    runner->own.context.fault.claimed = 0;
    runner->own.context.fault.text[0] = '\0';
    runner->own.context.program = UINT64_MAX;
    runner->own.context.parts = 1;
    runner->own.context.held = 0;
    runner->own.context.gate = NULL;
    struct silo_cpu_runner *outer = atomic_load_explicit(&thread->running, memory_order_relaxed);
    atomic_store_explicit(&thread->running, &runner->own, memory_order_relaxed);
    const int code = node->entry(node->params, node->values->grid, 0, total, runner->scratch,
                                 &runner->own.context);
    atomic_store_explicit(&thread->running, outer, memory_order_relaxed);
    return code;
}

/* Whether a node runs on the whole pool: its programs may wait for each other, or its work is worth
 * several threads. */
static bool is_large(const struct cpu_node *node, uint64_t total) {
    if (node->waits)
        return true;
    if (total == 1)
        return false;
    const uint64_t cost = __atomic_load_n(&node->function->cost, __ATOMIC_RELAXED);
    return cost == 0 || total >= 16 * LEAST_SHARED / cost;
}

static int report(const struct cpu_plan *plan, uint32_t number, int code, const char *text,
                  silo_error *error) {
    return silo_fail_driver(error, SILO_ERROR_LAUNCH, code,
                            "%s: %s (code %d), launch %u of the %u of a plan; launches that wait "
                            "for it were not made",
                            plan->nodes[number].kernel,
                            text != NULL && text[0] != '\0' ? text : "the kernel reported an error",
                            code, (unsigned)number + 1, (unsigned)plan->count);
}

static int run_in_order(struct cpu_plan *plan, silo_error *error) {
    struct runner runner;
    if (!runner_begin(&runner, plan, true))
        return silo_fail_memory(error);
    int code = 0;
    const char *text = NULL;
    uint32_t i = 0;
    for (; i < plan->count; i++) {
        const struct cpu_node *node = &plan->nodes[i];
        if (node->values->enabled == 0)
            continue;
        const uint64_t total = programs_of(node);
        if (is_large(node, total)) {
            const struct silo_launch launch = {
                .function = node->function,
                .grid = {node->values->grid[0], node->values->grid[1], node->values->grid[2]},
                .params = node->params,
            };
            code = silo_cpu_driver.launch(&launch);
            text = code != 0 ? silo_cpu_driver.error_text(code) : NULL;
        } else {
            code = run_here(&runner, node, total);
            text = runner.own.context.fault.text;
        }
        if (SILO_UNLIKELY(code != 0))
            break;
    }
    const int result = code != 0 ? report(plan, i, code, text, error) : 0;
    runner_end(&runner);
    return result;
}

/* ---- running nodes at the same time ---- */

static void put(struct cpu_plan *plan, uint32_t number) {
    const uint32_t position = atomic_fetch_add_explicit(&plan->queued, 1, memory_order_relaxed);
    atomic_store_explicit(&plan->queue[position], number + 1, memory_order_release);
}

/* Takes from the queue a node that may begin now. Returns the node's number plus 1, or 0 if the
 * queue has none. */
static uint32_t take(struct cpu_plan *plan) {
    uint32_t position = atomic_load_explicit(&plan->taken, memory_order_relaxed);
    while (position < atomic_load_explicit(&plan->queued, memory_order_relaxed)) {
        const uint32_t number = atomic_load_explicit(&plan->queue[position], memory_order_acquire);
        if (number == 0) /* another thread is about to write the number */
            return 0;
        if (atomic_compare_exchange_weak_explicit(&plan->taken, &position, position + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return number;
    }
    return 0;
}

/* Marks a node as finished. Some nodes may have waited only for this one: the first of them is
 * returned (its number plus 1), so that this thread runs it next, and the others are put into the
 * queue. Returns 0 if there is no such node. */
static uint32_t finish(struct cpu_plan *plan, const struct cpu_node *node) {
    uint32_t next_node = 0;
    for (uint32_t i = 0; i < node->next_count; i++) {
        const uint32_t number = node->next[i];
        if (atomic_fetch_sub_explicit(&plan->nodes[number].left, 1, memory_order_acq_rel) != 1)
            continue;
        if (next_node == 0)
            next_node = number + 1;
        else
            put(plan, number);
    }
    atomic_fetch_add_explicit(&plan->done, 1, memory_order_release);
    return next_node;
}

static bool stops(struct cpu_plan *plan, struct silo_cpu_job *job) {
    return atomic_load_explicit(&plan->done, memory_order_acquire) == plan->count ||
           atomic_load_explicit(&plan->failed, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&job->error, memory_order_relaxed) != 0;
}

/* The kernel of the pool's job: each thread runs nodes until none is left. */
static int32_t run_some(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end,
                        void *scratch, void *context) {
    struct cpu_plan *plan = (struct cpu_plan *)(uintptr_t)params;
    struct silo_cpu_job *job = ((struct silo_cpu_runner *)context)->job;
    struct runner runner;
    (void)grid, (void)begin, (void)end, (void)scratch;
    if (!runner_begin(&runner, plan, false))
        return SILO_CPU_NO_MEMORY;
    uint32_t number = 0, looks = 0;
    while (!stops(plan, job)) {
        if (number == 0 && (number = take(plan)) == 0) {
            silo_cpu_relax();
            if (++looks % LOOKS == 0)
                sched_yield();
            continue;
        }
        const struct cpu_node *node = &plan->nodes[number - 1];
        const int code =
            node->values->enabled != 0 ? run_here(&runner, node, programs_of(node)) : 0;
        if (SILO_UNLIKELY(code != 0)) {
            int none = 0;
            if (atomic_compare_exchange_strong(&plan->failed, &none, (int)number)) {
                plan->code = code;
                memcpy(plan->text, runner.own.context.fault.text, sizeof plan->text);
            }
            break;
        }
        number = finish(plan, node);
        looks = 0;
        silo_cpu_ask_at(job, silo_cpu_coarse_now());
    }
    runner_end(&runner);
    return 0;
}

static int run_together(struct cpu_plan *plan, int threads, silo_error *error) {
    atomic_store_explicit(&plan->queued, 0, memory_order_relaxed);
    atomic_store_explicit(&plan->taken, 0, memory_order_relaxed);
    atomic_store_explicit(&plan->done, 0, memory_order_relaxed);
    atomic_store_explicit(&plan->failed, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < plan->count; i++) {
        struct cpu_node *node = &plan->nodes[i];
        atomic_store_explicit(&node->left, node->after_count, memory_order_relaxed);
        atomic_store_explicit(&plan->queue[i], 0, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->nodes[i].after_count == 0)
            put(plan, i);
    struct silo_fault fault;
    fault.text[0] = '\0';
    const uint32_t grid[3] = {(uint32_t)threads, 1, 1};
    uint64_t cost = 16 * (plan->trial.order != 0 ? plan->trial.order : 100000);
    const struct silo_cpu_launch launch = {
        .entry = run_some,
        .name = "a plan",
        .params = (void *const *)plan,
        .grid = grid,
        .total = (uint64_t)threads,
        .share = {.threads = (uint32_t)threads},
        .fault = &fault,
    };
    const int code = silo_cpu_run(&launch, &cost);
    const int failed = atomic_load(&plan->failed);
    if (failed != 0)
        return report(plan, (uint32_t)failed - 1, plan->code, plan->text, error);
    if (code == 0)
        return 0;
    if (code == SILO_CPU_INTERRUPTED)
        return silo_fail_driver(error, SILO_ERROR_LAUNCH, code,
                                "a plan was interrupted after %u of its %u launches",
                                (unsigned)atomic_load(&plan->done), (unsigned)plan->count);
    return silo_fail_driver(error, SILO_ERROR_LAUNCH, code, "a plan of %u launches: %s",
                            (unsigned)plan->count, silo_cpu_driver.error_text(code));
}

/* ---- choosing between in order and together ---- */

/* Whether some node's work is worth several threads. Such a node keeps the whole pool busy, so that
 * running nodes at the same time would gain nothing. */
static bool has_large(const struct cpu_plan *plan) {
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->nodes[i].values->enabled != 0 &&
            is_large(&plan->nodes[i], programs_of(&plan->nodes[i])))
            return true;
    return false;
}

static int plan_launch(void *state, void *stream, silo_error *error) {
    struct cpu_plan *plan = state;
    (void)stream;
    if (silo_cpu_python.begins != NULL)
        silo_cpu_python.begins();
    const struct silo_cpu_thread *thread = silo_cpu_known_thread();
    plan->nested = thread != NULL && atomic_load(&thread->running) != NULL;
    if (!plan->together) /* every node waits for the node before it, so that only one order is
                            possible */
        return run_in_order(plan, error);
    const int most = silo_cpu_threads(), threads = plan->width < most ? plan->width : most;
    const enum silo_plan_order order = silo_plan_trial_next(&plan->trial, threads, has_large(plan));
    const uint64_t begun = silo_cpu_now();
    const int result = order == SILO_PLAN_TOGETHER ? run_together(plan, threads, error)
                                                   : run_in_order(plan, error);
    silo_plan_trial_record(&plan->trial, order, silo_cpu_now() - begun);
    return result;
}

static const char *plan_explain(const void *state, const char **reason) {
    const struct cpu_plan *plan = state;
    if (!plan->together) {
        *reason = plan->width > 1 ? "the programs of some launch wait for each other"
                                  : "each launch needs what the one before it wrote";
        return "in order, on the CPU";
    }
    *reason = silo_plan_trial_texts[plan->trial.reason];
    return plan->trial.best == SILO_PLAN_TOGETHER ? "together, on the CPU's threads"
                                                  : "in order, on the CPU";
}

const struct silo_plan_backend silo_cpu_plan = {
    .name = "cpu",
    .open = plan_open,
    .begin = plan_begin,
    .launch = plan_launch,
    .close = plan_close,
    .explain = plan_explain,
};
