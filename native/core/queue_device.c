#include "queue_device.h"

#include "cpu_driver.h"
#include "cpu_level.h"
#include "cpu_pool.h"
#include "cuda_driver.h"
#include "memory_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void add_fact(struct silo_used_device *located, const char *name, int64_t value) {
    if (located->info.fact_count < SILO_MOST_FACTS)
        located->facts[located->info.fact_count++] = (struct silo_device_fact){name, value};
}

/* Sets the same facts as silo.drivers.cpu.cpu_device in Python. `reserved_sms` (cores kept free for
 * other work) is always 0 here. */
static int locate_cpu(struct silo_used_device *located, const char *kernel, silo_error *error) {
    const char *level = silo_cpu_level();
    if (level == NULL)
        return silo_fail(error, SILO_ERROR_NO_DEVICE,
                         "%s: this CPU is below every level that Silo compiles for", kernel);
    const int64_t threads = silo_cpu_threads();
    const long page = sysconf(_SC_PAGE_SIZE), pages = sysconf(_SC_PHYS_PAGES);
    located->driver = &silo_cpu_driver;
    snprintf(located->target, sizeof located->target, "cpu:%s", level);
    snprintf(located->model, sizeof located->model, "CPU (%s, %lld threads)", level,
             (long long)threads);
    add_fact(located, "sm_count", threads);
    add_fact(located, "reserved_sms", 0);
    add_fact(located, "num_sms", threads);
    add_fact(located, "warp_size", 1);
    add_fact(located, "memory_bytes", page > 0 && pages > 0 ? (int64_t)page * pages : 0);
    return 0;
}

/* Sets the same facts as silo.launch.gpu in Python: all numbers that the driver reports. */
static void add_facts(struct silo_used_device *located, const struct silo_gpu_facts *facts) {
    struct silo_gpu_number numbers[SILO_GPU_NUMBERS];
    silo_gpu_numbers(located->gpu, facts, numbers);
    for (size_t i = 0; i < SILO_GPU_NUMBERS; i++)
        add_fact(located, numbers[i].name, numbers[i].value);
    add_fact(located, "memory_bytes", (int64_t)facts->total_memory);
    add_fact(located, "reserved_sms", 0);
    add_fact(located, "num_sms", facts->sm_count);
}

static struct silo_gpu *gpu_of(int32_t device) {
    for (struct silo_gpu *const *gpu = silo_gpus; *gpu != NULL; gpu++)
        if ((*gpu)->memory_type == device)
            return *gpu;
    return NULL;
}

static int locate_gpu(const struct silo_bundle *bundle, struct silo_used_device *located,
                      const char *kernel, silo_error *error) {
    struct silo_gpu_facts facts;
    silo_error failure = {.details = NULL};
    const char *library = located->gpu == &silo_cuda ? bundle->cuda_library : bundle->hip_library;
    if (silo_gpu_open(located->gpu, library, &failure) != 0 ||
        silo_gpu_describe(located->gpu, located->index, &facts, &failure) != 0) {
        const int32_t code = failure.driver_code;
        silo_fail_driver(error, failure.code, code, "%s: %s", kernel, failure.text);
        silo_error_clear(&failure);
        return -1;
    }
    /* Cuts off AMD's features: "gfx90a:sramecc+:xnack-". */
    const int length = (int)strcspn(facts.arch, ":");
    located->driver = located->gpu->driver;
    snprintf(located->target, sizeof located->target, "%s:%.*s", located->gpu->name, length,
             facts.arch);
    snprintf(located->model, sizeof located->model, "%.120s (%.*s, %d units)", facts.name, length,
             facts.arch, facts.sm_count);
    add_facts(located, &facts);
    return 0;
}

static int locate(const struct silo_bundle *bundle, struct silo_used_device *located,
                  const char *kernel, silo_error *error) {
    if (located->device == SILO_CPU) {
        if (located->index != 0)
            return silo_fail(error, SILO_ERROR_NO_DEVICE, "%s: there is no device cpu:%d, only 0",
                             kernel, (int)located->index);
        return locate_cpu(located, kernel, error);
    }
    located->gpu = gpu_of(located->device);
    if (located->gpu == NULL)
        return silo_fail(error, SILO_ERROR_USAGE,
                         "%s: a queue of device kind %d, which there is not; there are SILO_CPU "
                         "(1), SILO_CUDA (2) and SILO_ROCM (10)",
                         kernel, (int)located->device);
    return locate_gpu(bundle, located, kernel, error);
}

const struct silo_used_device *silo_queue_device(struct silo_bundle *bundle, const char *kernel,
                                                 const silo_queue *queue, silo_error *error) {
    for (const struct silo_used_device *located = bundle->devices; located != NULL;
         located = located->next)
        if (located->device == queue->device && located->index == queue->index)
            return located;
    struct silo_used_device *created = calloc(1, sizeof *created); /* owned by the list below */
    if (created == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    created->device = queue->device;
    created->index = queue->index;
    if (locate(bundle, created, kernel, error) != 0) {
        free(created);
        return NULL;
    }
    created->info.target = created->target;
    created->info.model = created->model;
    created->info.facts = created->facts;
    created->next = bundle->devices;
    __atomic_store_n(&bundle->devices, created, __ATOMIC_RELEASE);
    return created;
}

void silo_queue_free(struct silo_bundle *bundle) {
    while (bundle->devices != NULL) {
        struct silo_used_device *next = bundle->devices->next;
        free(bundle->devices);
        bundle->devices = next;
    }
}
