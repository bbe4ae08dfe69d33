/* Plans on the stub of the CUDA driver, in each way and in two threads at once, for the sanitizers:
 *
 *     graph_plan_check STUB
 *
 * Prints "done", or what went wrong. */
#include "plan_driver.c"

#include <pthread.h>
#include <stdio.h>

enum { KERNELS = 9, REPLAYS = 200 };

static struct silo_gpu_device *device;

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void *stop(const char *what) {
    int code;
    const char *text = plan_error(&code);
    fprintf(stderr, "%s: %s (%d)\n", what, text, code);
    return (void *)1;
}

static struct kernel *load(uint32_t number) {
    static const char *const params[] = {"8,4", "8,128,4", "1,2,4,8"};
    char code[256], name[16];
    struct form form = {.block = {128, 1, 1}, .cluster = {1, 1, 1}};
    snprintf(name, sizeof name, "k%u", number);
    snprintf(code, sizeof code, "// stub: params=%s\n.visible .entry %s()", params[number % 3],
             name);
    return plan_kernel(device, code, strlen(code), name, &form);
}

static int replay(struct plan *plan, struct kernel *const *kernels, uint64_t *dice) {
    uint8_t parameters[512];
    for (uint32_t i = 0; i < KERNELS; i++) {
        if (kernels[i]->count == 0)
            continue;
        const struct silo_parameter_place *last = &kernels[i]->places[kernels[i]->count - 1];
        const uint32_t grid[3] = {(uint32_t)next_random(dice) % 5, 1, 1};
        if (next_random(dice) % 3 == 0)
            continue;
        memset(parameters, (int)next_random(dice), sizeof parameters);
        if (plan_set(plan, i, grid, next_random(dice) % 4 != 0, parameters,
                     last->offset + last->size) != 0)
            return -1;
    }
    return plan_launch(plan, NULL);
}

static void *work(void *seed) {
    uint64_t dice = (uint64_t)(uintptr_t)seed;
    struct kernel *kernels[KERNELS], *parts[KERNELS];
    static const uint32_t one[3] = {1, 1, 1};
    uint8_t constants[512] = {0};
    for (uint32_t i = 0; i < KERNELS; i++)
        if ((kernels[i] = load(i)) == NULL)
            return stop("loading");
    memcpy(parts, kernels, sizeof parts);
    if ((parts[0] = plan_graph(device, kernels[0], one, constants)) == NULL ||
        (parts[4] = plan_graph(device, kernels[4], one, constants)) == NULL)
        return stop("capturing");
    for (int way = 0; way <= SILO_PLAN_SINGLY; way++) {
        const struct silo_graph_plan_options options = {.best = (enum silo_plan_mode)way,
                                                        .slots = way == 0 ? 0 : 2};
        struct silo_graph_plan_counts counts;
        const char *reason;
        struct plan *plan = plan_open(device, kernels, KERNELS, NULL, NULL, &options);
        if (plan == NULL)
            return stop("opening");
        for (int i = 0; i < REPLAYS; i++)
            if (replay(plan, kernels, &dice) != 0)
                return stop("replaying");
        plan_counts(plan, &counts);
        if (counts.replays != REPLAYS || (int)counts.mode != (way == 0 ? 1 : way))
            return stop(plan_explain(plan, &reason));
        plan_close(plan);
    }
    for (int way = 0; way < SILO_PLAN_SINGLY; way++) { /* graphs among the kernels */
        const struct silo_graph_plan_options options = {.best = (enum silo_plan_mode)way};
        struct plan *plan = plan_open(device, parts, KERNELS, NULL, NULL, &options);
        if (plan == NULL)
            return stop("opening with graphs");
        for (int i = 0; i < REPLAYS / 4; i++)
            if (replay(plan, parts, &dice) != 0)
                return stop("replaying with graphs");
        plan_close(plan);
    }
    plan_release(parts[0]);
    plan_release(parts[4]);
    for (uint32_t i = 0; i < KERNELS; i++)
        plan_release(kernels[i]);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[2];
    bool failed = false;
    device = count == 2 ? plan_device("cuda", arguments[1], 0) : NULL;
    if (device == NULL)
        return stop("the stub") != NULL;
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed |= result != NULL;
    }
    if (!failed)
        puts("done");
    return failed;
}
