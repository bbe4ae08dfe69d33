#include "queue_place.h"

#include "cpu_driver.h"
#include "cpu_level.h"
#include "cpu_pool.h"
#include "cuda_driver.h"
#include "memory_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void add_fact(struct silo_located *one, const char *name, int64_t value) {
    if (one->place.fact_count < SILO_MOST_FACTS)
        one->facts[one->place.fact_count++] = (struct silo_device_fact){name, value};
}

/* Sets the same facts as silo.drivers.cpu.cpu_device in Python, without reserved cores. */
static int locate_cpu(struct silo_located *one, const char *kernel, silo_error *error) {
    const char *level = silo_cpu_level();
    if (level == NULL)
        return silo_fail(error, SILO_ERROR_NO_DEVICE,
                         "%s: this CPU is below every level that Silo compiles for", kernel);
    const int64_t threads = silo_cpu_threads();
    const long page = sysconf(_SC_PAGE_SIZE), pages = sysconf(_SC_PHYS_PAGES);
    one->driver = &silo_cpu_driver;
    snprintf(one->target, sizeof one->target, "cpu:%s", level);
    snprintf(one->model, sizeof one->model, "CPU (%s, %lld threads)", level, (long long)threads);
    add_fact(one, "sm_count", threads);
    add_fact(one, "reserved_sms", 0);
    add_fact(one, "num_sms", threads);
    add_fact(one, "warp_size", 1);
    add_fact(one, "memory_bytes", page > 0 && pages > 0 ? (int64_t)page * pages : 0);
    return 0;
}

/* Sets the same facts as silo.launch.gpu in Python: all numbers that the driver reports. */
static void add_facts(struct silo_located *one, const struct silo_gpu_facts *facts) {
    struct silo_gpu_number numbers[SILO_GPU_NUMBERS];
    silo_gpu_numbers(one->gpu, facts, numbers);
    for (size_t i = 0; i < SILO_GPU_NUMBERS; i++)
        add_fact(one, numbers[i].name, numbers[i].value);
    add_fact(one, "memory_bytes", (int64_t)facts->total_memory);
    add_fact(one, "reserved_sms", 0);
    add_fact(one, "num_sms", facts->sm_count);
}

static struct silo_gpu *gpu_of(int32_t device) {
    for (struct silo_gpu *const *gpu = silo_gpus; *gpu != NULL; gpu++)
        if ((*gpu)->memory_type == device)
            return *gpu;
    return NULL;
}

static int locate_gpu(const struct silo_bundle *bundle, struct silo_located *one,
                      const char *kernel, silo_error *error) {
    struct silo_gpu_facts facts;
    silo_error why = {.details = NULL};
    const char *library = one->gpu == &silo_cuda ? bundle->cuda_library : bundle->hip_library;
    if (silo_gpu_open(one->gpu, library, &why) != 0 ||
        silo_gpu_describe(one->gpu, one->index, &facts, &why) != 0) {
        const int32_t code = why.driver_code;
        silo_fail_driver(error, why.code, code, "%s: %s", kernel, why.text);
        silo_error_clear(&why);
        return -1;
    }
    /* Cuts off AMD's features: "gfx90a:sramecc+:xnack-". */
    const int length = (int)strcspn(facts.arch, ":");
    one->driver = one->gpu->driver;
    snprintf(one->target, sizeof one->target, "%s:%.*s", one->gpu->name, length, facts.arch);
    snprintf(one->model, sizeof one->model, "%.120s (%.*s, %d units)", facts.name, length,
             facts.arch, facts.sm_count);
    add_facts(one, &facts);
    return 0;
}

static int locate(const struct silo_bundle *bundle, struct silo_located *one, const char *kernel,
                  silo_error *error) {
    if (one->device == SILO_CPU) {
        if (one->index != 0)
            return silo_fail(error, SILO_ERROR_NO_DEVICE, "%s: there is no device cpu:%d, only 0",
                             kernel, (int)one->index);
        return locate_cpu(one, kernel, error);
    }
    one->gpu = gpu_of(one->device);
    if (one->gpu == NULL)
        return silo_fail(error, SILO_ERROR_USAGE,
                         "%s: a queue of device kind %d, which there is not; there are SILO_CPU "
                         "(1), SILO_CUDA (2) and SILO_ROCM (10)",
                         kernel, (int)one->device);
    return locate_gpu(bundle, one, kernel, error);
}

const struct silo_located *silo_queue_locate(struct silo_bundle *bundle, const char *kernel,
                                             const silo_queue *queue, silo_error *error) {
    for (const struct silo_located *one = bundle->places; one != NULL; one = one->next)
        if (one->device == queue->device && one->index == queue->index)
            return one;
    struct silo_located *made = calloc(1, sizeof *made); /* owned by the list below */
    if (made == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    made->device = queue->device;
    made->index = queue->index;
    if (locate(bundle, made, kernel, error) != 0) {
        free(made);
        return NULL;
    }
    made->place.target = made->target;
    made->place.model = made->model;
    made->place.facts = made->facts;
    made->next = bundle->places;
    __atomic_store_n(&bundle->places, made, __ATOMIC_RELEASE);
    return made;
}

void silo_queue_free(struct silo_bundle *bundle) {
    while (bundle->places != NULL) {
        struct silo_located *next = bundle->places->next;
        free(bundle->places);
        bundle->places = next;
    }
}
