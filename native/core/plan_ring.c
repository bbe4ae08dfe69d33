#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "plan_ring.h"

#include "binary.h"
#include "plan_update_code.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LONGEST_WAIT_NS 120000000000u

/* ---- the kernel ---- */

/* Held while the updating kernel is loaded, and to access `retired`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The updating kernel on each device; never unloaded. */
static struct {
    struct silo_function *function;
    struct silo_binary *binary;
} updaters[SILO_MAX_GPUS];

void silo_plan_rings_renew(void) {
    pthread_mutex_init(&lock, NULL);
}

/* Returns the compiled code for this device if there is one, else PTX for the driver's compiler. */
static const void *updater_code(const struct silo_gpu_device *device, size_t *size) {
    int number = 0;
    if (sscanf(device->arch, "sm_%d", &number) == 1 &&
        device->gpu->version >= SILO_PLAN_CUBIN_DRIVER)
        for (size_t i = 0; i < sizeof updater_cubins / sizeof *updater_cubins; i++)
            if (updater_cubins[i].major == number / 10 && updater_cubins[i].minor <= number % 10) {
                *size = updater_cubins[i].size;
                return updater_cubins[i].code;
            }
    *size = sizeof updater_ptx - 1;
    return updater_ptx;
}

/* Loads the updating kernel on a device, and stores it in `updaters`. Returns -1 with `error`. The
 * caller holds `lock`. */
static int load_updater(struct silo_gpu_device *device, silo_error *error) {
    struct silo_function *function = calloc(1, sizeof *function);
    size_t size;
    const void *code = updater_code(device, &size);
    if (function == NULL)
        return silo_fail_memory(error);
    function->block[0] = SILO_PLAN_THREADS;
    function->block[1] = function->block[2] = 1;
    function->cluster[0] = function->cluster[1] = function->cluster[2] = 1;
    struct silo_binary *binary = silo_binary_load(device, code, size, NULL, error);
    if (binary == NULL ||
        silo_binary_function(binary, SILO_PLAN_KERNEL, SILO_PLAN_KERNEL, function, error) != 0) {
        silo_binary_release(binary);
        free(function);
        return -1;
    }
    updaters[device->index].function = function;
    updaters[device->index].binary = binary;
    return 0;
}

const struct silo_function *silo_plan_updater(struct silo_gpu_device *device, silo_error *error) {
    const struct silo_function *function = NULL;
    pthread_mutex_lock(&lock);
    if (updaters[device->index].function != NULL || load_updater(device, error) == 0)
        function = updaters[device->index].function;
    pthread_mutex_unlock(&lock);
    return function;
}

/* ---- memory ---- */

static int fail(silo_error *error, const struct silo_gpu_device *device, const char *action,
                int code) {
    return silo_gpu_fail(error, device->gpu, SILO_ERROR_LAUNCH, action, code);
}

/* Frees the ring's memory and event. Called between silo_gpu_enter and silo_gpu_leave. */
static void free_memory(const struct silo_plan_ring *ring) {
    const struct silo_gpu *gpu = ring->device->gpu;
    if (ring->event != NULL)
        gpu->event_destroy(ring->event);
    if (ring->report != NULL)
        gpu->host_free(ring->report);
    if (ring->address != 0)
        gpu->memory_free(ring->address);
}

/* Writes the kernel's state in device memory: a struct silo_plan_device, then the nodes, then the
 * runs. */
int silo_plan_ring_write(const struct silo_plan_ring *ring,
                         const struct silo_plan_device_node *nodes, uint32_t count,
                         const struct silo_plan_run *runs, uint32_t run_count, silo_error *error) {
    const struct silo_gpu *gpu = ring->device->gpu;
    const size_t node_bytes = count * sizeof *nodes, run_bytes = run_count * sizeof *runs;
    const struct silo_plan_device head = {
        .replay = ring->replays,
        .slots = ring->slots,
        .node_count = count,
        .run_count = run_count,
        .ring = (uint64_t)(uintptr_t)ring->blocks,
        .stride = ring->stride,
        .report = (uint64_t)(uintptr_t)ring->report,
        .nodes = ring->address + sizeof head,
        .runs = ring->address + sizeof head + node_bytes,
    };
    uint8_t *image = malloc(sizeof head + node_bytes + run_bytes); /* freed here */
    void *stream = NULL;
    if (image == NULL)
        return silo_fail_memory(error);
    memcpy(image, &head, sizeof head);
    memcpy(image + sizeof head, nodes, node_bytes);
    if (run_bytes > 0)
        memcpy(image + sizeof head + node_bytes, runs, run_bytes);
    int code = gpu->stream_create(&stream, SILO_GPU_NON_BLOCKING);
    if (code == 0) {
        code = gpu->copy(ring->address, (uint64_t)(uintptr_t)image,
                         sizeof head + node_bytes + run_bytes, stream);
        const int status = gpu->stream_synchronize(stream);
        code = code != 0 ? code : status;
        gpu->stream_destroy(stream);
    }
    free(image);
    return code == 0 ? 0 : fail(error, ring->device, "cannot write a plan's device memory", code);
}

int silo_plan_ring_make(struct silo_plan_ring *ring, struct silo_gpu_device *device, size_t stride,
                        uint32_t slots, uint32_t count, uint32_t run_count, silo_error *error) {
    const struct silo_gpu *gpu = device->gpu;
    /* Rounded up to 16: the kernel reads 16 bytes at a time. */
    const size_t device_bytes =
        (sizeof(struct silo_plan_device) + count * sizeof(struct silo_plan_device_node) +
         run_count * sizeof(struct silo_plan_run) + 15) /
        16 * 16;
    const size_t report_bytes = 128; /* cache lines that only the device writes */
    *ring = (struct silo_plan_ring){
        .device = device, .stride = stride, .slots = 1, .wait_ns = LONGEST_WAIT_NS};
    while (ring->slots < slots)
        ring->slots *= 2;
    void *pinned = NULL;
    int code = gpu->event_create(&ring->event, 2 /* flag 2: no timing; the same in both drivers */);
    if (code == 0)
        code = gpu->host_alloc(&pinned, report_bytes + ring->slots * stride);
    if (code == 0) {
        memset(pinned, 0, report_bytes + ring->slots * stride);
        ring->report = pinned;
        ring->blocks = (uint8_t *)pinned + report_bytes;
        code = gpu->memory_alloc(&ring->address, device_bytes);
    }
    if (code == 0)
        return 0;
    free_memory(ring);
    return fail(error, device, "no memory for a plan's ring of blocks", code);
}

/* ---- replays ---- */

static uint64_t done(const struct silo_plan_ring *ring) {
    return __atomic_load_n(&ring->report->done, __ATOMIC_ACQUIRE);
}

int silo_plan_ring_check(const struct silo_plan_ring *ring, silo_error *error) {
    const uint32_t code = __atomic_load_n(&ring->report->code, __ATOMIC_ACQUIRE);
    if (SILO_LIKELY(code == 0))
        return 0;
    return silo_fail_driver(
        error, SILO_ERROR_FAULT, (int)code,
        "a plan's update of node %u failed on the device in replay %llu (%s %u): that replay and "
        "the later ones were ended, and nothing more runs on %s:%d in this process",
        ring->report->node, (unsigned long long)done(ring),
        code == SILO_PLAN_OTHER_REPLAY ? "the block of another replay:" : "cudaError", code,
        ring->device->gpu->name, (int)ring->device->index);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Fails if the context is lost or this is a forked child, because the kernel that this thread waits
 * for would then never run. */
static int check_context(const struct silo_plan_ring *ring, silo_error *error) {
    const int code = ring->device->gpu->event_query(ring->event);
    return code == 0 || code == SILO_GPU_NOT_READY
               ? silo_plan_ring_check(ring, error)
               : fail(error, ring->device, "a plan cannot go on", code);
}

static SILO_NOINLINE int wait_for_block(const struct silo_plan_ring *ring, silo_error *error) {
    const uint64_t begin = now_ns();
    const struct timespec pause = {0, 20000};
    while (ring->replays - done(ring) >= ring->slots) {
        const uint64_t waited = now_ns() - begin;
        if (check_context(ring, error) != 0)
            return -1;
        if (waited > ring->wait_ns)
            return silo_fail(
                error, SILO_ERROR_LAUNCH,
                "%u replays of a plan are queued and none of them has begun for %.1f s: nothing "
                "was launched; wait for the stream before you replay it again",
                ring->slots, (double)waited * 1e-9);
        nanosleep(&pause, NULL);
    }
    return 0;
}

uint8_t *silo_plan_ring_block(struct silo_plan_ring *ring, silo_error *error) {
    if (silo_plan_ring_check(ring, error) != 0)
        return NULL;
    if (SILO_UNLIKELY(ring->replays - done(ring) >= ring->slots) &&
        wait_for_block(ring, error) != 0)
        return NULL;
    return ring->blocks + (ring->replays & (ring->slots - 1)) * ring->stride;
}

/* ---- retired rings ---- */

struct retired {
    struct retired *next;
    struct silo_plan_ring ring;
};

static struct retired *retired; /* owned */

/* Whether a ring can be freed: all its replays are done, and the driver may be called (not in a
 * forked child, and not while the process ends). A ring whose device failed is never freed. */
static bool ready(const struct silo_plan_ring *ring) {
    return !ring->device->gpu->inherited && !silo_gpu_ending() && done(ring) == ring->replays;
}

static void free_ring(const struct silo_plan_ring *ring) {
    struct silo_gpu_scope scope;
    if (silo_gpu_enter(ring->device, &scope) != 0)
        return; /* the context is gone, and its memory with it */
    free_memory(ring);
    silo_gpu_leave(&scope);
}

void silo_plan_rings_sweep(void) {
    struct retired *free_now = NULL;
    pthread_mutex_lock(&lock);
    for (struct retired **link = &retired; *link != NULL;) {
        struct retired *entry = *link;
        if (ready(&entry->ring)) {
            *link = entry->next;
            entry->next = free_now;
            free_now = entry;
        } else {
            link = &entry->next;
        }
    }
    pthread_mutex_unlock(&lock);
    while (free_now != NULL) {
        struct retired *next = free_now->next;
        free_ring(&free_now->ring);
        free(free_now);
        free_now = next;
    }
}

void silo_plan_ring_retire(const struct silo_plan_ring *ring) {
    struct retired *entry = malloc(sizeof *entry); /* owned by the list */
    if (entry == NULL)
        return; /* out of memory: the ring is never freed */
    entry->ring = *ring;
    pthread_mutex_lock(&lock);
    entry->next = retired;
    retired = entry;
    pthread_mutex_unlock(&lock);
    silo_plan_rings_sweep();
}
