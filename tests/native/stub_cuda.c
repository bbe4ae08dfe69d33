#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stub_gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local void *stack[16];
static _Thread_local int depth;

static void *current(void) {
    return depth > 0 ? stack[depth - 1] : NULL;
}

static int current_index(void) {
    const struct context *context = current();
    return context != NULL ? context->device : -1;
}

int current_context(void **context, int *device) {
    *context = current();
    *device = current_index();
    return *context != NULL ? 0 : INVALID_CONTEXT;
}

#define NEED_CONTEXT()                                                                             \
    do {                                                                                           \
        FAIL();                                                                                    \
        if (current() == NULL)                                                                     \
            return INVALID_CONTEXT;                                                                \
    } while (0)

#ifndef STUB_OLD
API int cuLaunchKernelEx(const struct config *config, struct function *function, void **parameters,
                         void **extra) {
    (void)extra;
    if (LIKELY(!watched))
        return 0;
    NEED_CONTEXT();
    if (current() != function->module->context)
        return INVALID_HANDLE;
    return recording ? record_launch(config, function, parameters, current(), current_index(), 0)
                     : 0;
}
#endif

API int cuLaunchKernel(struct function *function, unsigned gx, unsigned gy, unsigned gz,
                       unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                       void **parameters, void **extra) {
    (void)extra;
    if (LIKELY(!watched))
        return 0;
    NEED_CONTEXT();
    const struct config config = {{gx, gy, gz}, {bx, by, bz}, shared, stream, NULL, 0};
    return recording ? record_launch(&config, function, parameters, current(), current_index(), 0)
                     : 0;
}

API int cuInit(unsigned flags) {
    (void)flags;
    FAIL();
    if (devices() == 0)
        return NO_DEVICE;
    started = true;
    return 0;
}

API int cuDriverGetVersion(int *version) {
    FAIL();
    const char *text = getenv("STUB_CUDA_VERSION");
    *version = text != NULL ? atoi(text) : 13000;
    return 0;
}

API int cuDeviceGetCount(int *count) {
    FAIL();
    *count = devices();
    return started ? 0 : NOT_INITIALIZED;
}

API int cuDeviceGet(int *device, int ordinal) {
    FAIL();
    *device = ordinal;
    return ordinal >= 0 && ordinal < devices() ? 0 : INVALID_DEVICE;
}

API int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    FAIL();
    snprintf(name, (size_t)length, "Stub H100");
    return 0;
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    FAIL();
    *bytes = total_memory;
    return 0;
}

API int cuDeviceGetUuid_v2(uint8_t *uuid, int device) {
    FAIL();
    for (int i = 0; i < 16; i++)
        uuid[i] = (uint8_t)(16 * device + i);
    return 0;
}

API int cuDeviceGetAttribute(int *value, int id, int device) {
    static const int known[128] = {
        [1] = 1024,    [2] = 1024,  [3] = 1024,     [4] = 64,      [5] = INT32_MAX, [6] = 65535,
        [7] = 65535,   [8] = 49152, [10] = 32,      [12] = 65536,  [13] = 1980000,  [16] = 132,
        [33] = 0x1A,   [34] = 0,    [36] = 2619000, [37] = 5120,   [38] = 52428800, [39] = 2048,
        [50] = 0,      [75] = 9,    [76] = 0,       [81] = 233472, [82] = 65536,    [95] = 1,
        [97] = 232448, [120] = 1,
    };
    FAIL();
    if (!overridden(value, id, device))
        *value = id >= 0 && id < 128 ? known[id] : 0;
    return *value == INT32_MIN ? INVALID_VALUE : 0;
}

API int cuDevicePrimaryCtxRetain(void **context, int device) {
    FAIL();
    primary[device].device = device;
    primary[device].primary = true;
    count_live(&retained[device], 1);
    *context = &primary[device];
    return 0;
}

API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = retained[device] > 0;
    return 0;
}

API int cuCtxGetCurrent(void **context) {
    if (watched)
        FAIL();
    *context = current();
    return 0;
}

API int cuCtxSetCurrent(void *context) {
    FAIL();
    if (context == NULL) {
        depth -= depth > 0;
    } else {
        if (depth == 0)
            depth = 1;
        stack[depth - 1] = context;
    }
    return 0;
}

API int cuCtxPushCurrent_v2(void *context) {
    FAIL();
    if (context == NULL || depth == 16)
        return INVALID_VALUE;
    stack[depth++] = context;
    return 0;
}

API int cuCtxPopCurrent_v2(void **context) {
    FAIL();
    if (depth == 0)
        return INVALID_CONTEXT;
    *context = stack[--depth];
    return 0;
}

API int cuCtxGetDevice(int *device) {
    NEED_CONTEXT();
    *device = current_index();
    return 0;
}

API int cuCtxSynchronize(void) {
    NEED_CONTEXT();
    run_queued(-1);
    return forbidden(true);
}

/* Triton's own driver module is linked against these. */
API int cuCtxGetLimit(size_t *value, int limit) {
    (void)limit;
    NEED_CONTEXT();
    *value = 0;
    return 0;
}

API int cuCtxSetLimit(int limit, size_t value) {
    (void)limit, (void)value;
    NEED_CONTEXT();
    return 0;
}

API int cuThreadExchangeStreamCaptureMode(int *mode) {
    FAIL();
    const int previous = capture_mode;
    capture_mode = *mode;
    *mode = previous;
    return 0;
}

API int cuModuleLoadDataEx(struct module **module, const void *image, unsigned count, int *options,
                           void **values) {
    char *log = NULL;
    size_t log_bytes = 0;
    NEED_CONTEXT();
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == 5)
            log = values[i];
        if (options[i] == 6)
            log_bytes = (size_t)values[i];
    }
    const int code = forbidden(false);
    return code != 0 ? code : load(module, image, 190, current_index(), current(), log, log_bytes);
}

API int cuModuleLoadData(struct module **module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

API int cuModuleUnload(struct module *module) {
    NEED_CONTEXT();
    const int code = forbidden(false);
    if (code != 0)
        return code;
    return module->context == current() ? unload(module) : INVALID_CONTEXT;
}

API int cuModuleGetFunction(void **function, struct module *module, const char *name) {
    NEED_CONTEXT();
    return find_function(function, module, name);
}

/* As text that was written for the stub says, or a cubin; of other code it tells nothing. */
API int cuFuncGetParamInfo(const struct function *function, size_t index, size_t *offset,
                           size_t *size) {
    NEED_CONTEXT();
    if (!function->described)
        return NOT_SUPPORTED;
    if (index >= function->count)
        return INVALID_VALUE;
    *offset = 0;
    for (size_t i = 0;; i++) {
        *size = function->sizes[i];
        *offset = (*offset + *size - 1) / *size * *size;
        if (i == index)
            return 0;
        *offset += *size;
    }
}

API int cuFuncLoad(void *function) {
    (void)function;
    NEED_CONTEXT();
    return 0;
}

API int cuFuncGetAttribute(int *value, int attribute, const struct function *function) {
    FAIL();
    *value = attribute == 0 ? function->max_threads : attribute == 1 ? function->static_shared : 0;
    return 0;
}

API int cuFuncSetAttribute(struct function *function, int attribute, int value) {
    FAIL();
    if (attribute == 8) {
        if (value < 0 || value + function->static_shared > 232448)
            return INVALID_VALUE;
        function->max_dynamic = function->entry->record.max_dynamic = value;
    } else if (attribute == 14) {
        function->non_portable = function->entry->record.non_portable = value;
    }
    return 0;
}

API int cuFuncSetCacheConfig(struct function *function, int preference) {
    FAIL();
    function->entry->record.cache = preference;
    return 0;
}

API int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    NEED_CONTEXT();
    const int code = forbidden(false);
    return code != 0 ? code : allocate(address, bytes, DEVICE, current_index());
}

API int cuMemFree_v2(uint64_t address) {
    NEED_CONTEXT();
    const int code = forbidden(false);
    run_queued(-1); /* it waits for all work */
    return code != 0 ? code : release(address);
}

/* In order with the stream, and recorded by a capture: so never forbidden. */
API int cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream) {
    (void)stream;
    NEED_CONTEXT();
    return allocate(address, bytes, DEVICE, current_index());
}

API int cuMemFreeAsync(uint64_t address, void *stream) {
    (void)stream;
    NEED_CONTEXT();
    return release(address);
}

API int cuMemGetInfo_v2(size_t *available, size_t *total) {
    NEED_CONTEXT();
    free_memory(available, total);
    return 0;
}

API int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    uint64_t address = 0;
    NEED_CONTEXT();
    const int code = allocate(&address, bytes, PINNED, current_index());
    *memory = (void *)(uintptr_t)address;
    return code;
}

API int cuMemFreeHost(void *memory) {
    FAIL();
    return release((uint64_t)(uintptr_t)memory);
}

API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    (void)stream;
    NEED_CONTEXT();
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return 0;
}

API int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void *stream) {
    (void)stream;
    NEED_CONTEXT();
    memset((void *)(uintptr_t)address, value, bytes);
    return 0;
}

API int cuPointerGetAttributes(unsigned count, const int *attributes, void **data,
                               uint64_t address) {
    int device;
    FAIL();
    const int kind = find_kind(address, &device);
    for (unsigned i = 0; i < count; i++)
        switch (attributes[i]) {
        case 2:
            *(unsigned *)data[i] = kind == 0 ? 0 : kind == PINNED ? 1 : 2;
            break;
        case 8:
            *(bool *)data[i] = kind == MANAGED;
            break;
        case 9:
            *(int *)data[i] = device;
            break;
        default:
            return INVALID_VALUE;
        }
    return 0;
}

API int cuPointerGetAttribute(void *data, int attribute, uint64_t address) {
    int device;
    FAIL();
    if (find_kind(address, &device) == 0)
        return INVALID_VALUE;
    if (attribute == 3) {
        *(uint64_t *)data = address;
        return 0;
    }
    return cuPointerGetAttributes(1, &attribute, &data, address);
}

API int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    NEED_CONTEXT();
    *stream = malloc(16); /* owned by the caller */
    count_live(&live_streams, 1);
    return 0;
}

API int cuStreamDestroy_v2(void *stream) {
    NEED_CONTEXT();
    free(stream);
    count_live(&live_streams, -1);
    return 0;
}

API int cuStreamSynchronize(void *stream) {
    NEED_CONTEXT();
    run_queued(-1);
    return stream_status((uint64_t)(uintptr_t)stream) != 0 ? forbidden(true) : 0;
}

API int cuStreamIsCapturing(void *stream, int *status) {
    if (watched)
        FAIL();
    *status = LIKELY(capture_count == 0) ? 0 : stream_status((uint64_t)(uintptr_t)stream);
    return 0;
}

API int cuEventCreate(struct event **event, unsigned flags) {
    (void)flags;
    NEED_CONTEXT();
    *event = calloc(1, sizeof **event); /* owned by the caller */
    (*event)->device = current_index();
    count_live(&live_events, 1);
    return 0;
}

API int cuEventDestroy_v2(struct event *event) {
    FAIL();
    free(event);
    count_live(&live_events, -1);
    return 0;
}

API int cuEventRecord(struct event *event, void *stream) {
    (void)stream;
    NEED_CONTEXT();
    if (event->device != current_index())
        return INVALID_HANDLE;
    event->time = __atomic_load_n(&clock_ns, __ATOMIC_RELAXED);
    event->recorded = true;
    return 0;
}

API int cuEventQuery(struct event *event) {
    (void)event;
    FAIL();
    return 0;
}

API int cuEventSynchronize(struct event *event) {
    (void)event;
    FAIL();
    return 0;
}

API int cuEventElapsedTime(float *milliseconds, struct event *begin, struct event *end) {
    FAIL();
    if (!begin->recorded || !end->recorded)
        return INVALID_HANDLE;
    *milliseconds = (float)((double)(int64_t)(end->time - begin->time) * 1e-6);
    return 0;
}

API int cuTensorMapEncodeTiled(uint8_t *map, int dtype, uint32_t rank, void *address,
                               const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                               const uint32_t *element_strides, int interleave, int swizzle, int l2,
                               int fill) {
    FAIL();
    if ((uintptr_t)map % 64 != 0 || rank < 1 || rank > 5 || (uintptr_t)address % 16 != 0)
        return INVALID_VALUE;
    const uint8_t head[8] = {(uint8_t)dtype,   (uint8_t)rank, (uint8_t)interleave,
                             (uint8_t)swizzle, (uint8_t)l2,   (uint8_t)fill};
    memset(map, 0, 128);
    memcpy(map, head, sizeof head);
    memcpy(map + 8, &address, 8);
    memcpy(map + 16, sizes, 8 * rank);
    memcpy(map + 56, strides, 8 * (rank - 1));
    memcpy(map + 88, box, 4 * rank);
    memcpy(map + 108, element_strides, 4 * rank);
    return 0;
}

API int cuGetErrorName(int code, const char **name) {
    static _Thread_local char text[64];
    const char *words, *found = error_name(code, &words);
    snprintf(text, sizeof text, "CUDA_ERROR_%s", found != NULL ? found : "");
    *name = found != NULL ? text : NULL;
    return found != NULL ? 0 : INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **text) {
    *text = NULL;
    return error_name(code, text) != NULL ? 0 : INVALID_VALUE;
}

/* For programs that take their functions from here: what is not there succeeds and does nothing. */
static int succeed(void) {
    return 0;
}

API int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                            int *status) {
    (void)version, (void)flags;
    char name[128];
    void *self = dlopen(NULL, RTLD_NOW), *found = NULL;
    Dl_info info;
    if (dladdr((void *)(uintptr_t)cuInit, &info) != 0)
        self = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_NOW);
    for (int i = 0; i < 2 && found == NULL; i++) {
        snprintf(name, sizeof name, "%s%s", symbol, i == 0 ? "_v2" : "");
        found = dlsym(self, name);
    }
    *function = found != NULL ? found : (void *)(uintptr_t)succeed;
    if (status != NULL)
        *status = 0;
    return 0;
}

API int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
