/* GPU drivers in a child made by fork(). A driver that the parent had started is unusable in the
 * child: its threads and connections are missing, and calls into it fail or wait for ever. So the
 * child replaces the functions that launches and the table of gpu.h call by functions that return
 * an error. Other processes pay nothing for this, while a flag would have to be tested at each
 * launch. */
#include "gpu_forked.h"

#include "binary.h"
#include "device.h"
#include "memory_types.h"
#include "plan_ring.h"

#include <pthread.h>

static int refuse_enter(struct silo_gpu_device *device, struct silo_gpu_scope *scope) {
    (void)device, (void)scope;
    return SILO_GPU_NOT_INITIALIZED;
}

static int refuse_capturing(void *stream, int *status) {
    (void)stream, (void)status;
    return SILO_GPU_NOT_INITIALIZED;
}

static int refuse_locate(uint64_t address, int32_t *type, int32_t *index) {
    (void)address, (void)type, (void)index;
    return SILO_GPU_NOT_INITIALIZED;
}

static int refuse_device(int32_t *index) {
    (void)index;
    return SILO_GPU_NOT_INITIALIZED;
}

static int refuse_query(void *event) {
    (void)event;
    return SILO_GPU_NOT_INITIALIZED;
}

static int refuse_elapsed(float *milliseconds, void *begin, void *end) {
    (void)milliseconds, (void)begin, (void)end;
    return SILO_GPU_NOT_INITIALIZED;
}

static void abandon(struct silo_gpu *gpu) {
    if (!gpu->begun)
        return;
    gpu->inherited = true;
    gpu->abandon();
    /* No other function needs to be replaced, because all are called only after `enter` succeeded.
     */
    gpu->enter = refuse_enter;
    gpu->stream_capturing = refuse_capturing;
    gpu->locate = refuse_locate;
    gpu->current_device = refuse_device;
    gpu->event_query = refuse_query;
    gpu->event_elapsed = refuse_elapsed;
}

/* The handler in the child. The child has a single thread, so that no other thread reads the
 * function tables while the handler writes them. */
static void in_child(void) {
    silo_gpu_locks_renew();
    silo_gpu_retired_renew();
    silo_plan_rings_renew();
    for (struct silo_gpu *const *gpu = silo_gpus; *gpu != NULL; gpu++)
        abandon(*gpu);
}

int silo_gpu_forked_init(void) {
    return pthread_atfork(NULL, NULL, in_child);
}
