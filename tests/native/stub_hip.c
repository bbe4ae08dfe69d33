#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stub_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int hip_device, hip_error;

/* Those of libcuda that do the same. */
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuFuncGetAttribute(int *value, int attribute, const struct function *function);
int cuEventDestroy_v2(struct event *event);
int cuEventElapsedTime(float *milliseconds, struct event *begin, struct event *end);

static int hip(int code) {
    if (code != 0)
        hip_error = code;
    return code;
}

#define HIP_FAIL()                                                                                 \
    do {                                                                                           \
        int failed_ = fails(__func__);                                                             \
        if (failed_ != 0)                                                                          \
            return hip(failed_);                                                                   \
    } while (0)

API int hipInit(unsigned flags) {
    (void)flags;
    HIP_FAIL();
    if (devices() == 0)
        return hip(NO_DEVICE);
    started_hip = true;
    return 0;
}

API int hipDriverGetVersion(int *version) {
    HIP_FAIL();
    *version = 70125424;
    return 0;
}

API const char *hipGetErrorName(int code) {
    static _Thread_local char text[64];
    const char *words, *found = error_name(code, &words);
    snprintf(text, sizeof text, "hipError%s", found != NULL ? found : "Unknown");
    return text;
}

API const char *hipGetErrorString(int code) {
    const char *text = "unknown error";
    error_name(code, &text);
    return text;
}

API int hipGetLastError(void) {
    const int code = hip_error;
    hip_error = 0;
    return code;
}

API int hipPeekAtLastError(void) {
    return hip_error;
}

API int hipGetDeviceCount(int *count) {
    HIP_FAIL();
    *count = devices();
    return 0;
}

API int hipDeviceTotalMem(size_t *bytes, int device) {
    (void)device;
    HIP_FAIL();
    *bytes = total_memory;
    return 0;
}

API int hipDeviceGetAttribute(int *value, int id, int device) {
    static const int known[128] = {
        [5] = 2100000, [10] = 1,     [19] = 4194304,   [23] = 9,       [26] = 1024,
        [27] = 1024,   [28] = 1024,  [29] = INT32_MAX, [30] = 65536,   [31] = 65536,
        [56] = 1024,   [57] = 2048,  [59] = 8192,      [60] = 1300000, [61] = 4,
        [63] = 304,    [67] = 5,     [68] = 0,         [69] = 0,       [71] = 65536,
        [72] = 131072, [74] = 65536, [75] = 65536,     [76] = 65536,   [87] = 64,
    };
    HIP_FAIL();
    if (!overridden(value, id, device))
        *value = id >= 0 && id < 128 ? known[id] : 0;
    return hip(*value == INT32_MIN ? INVALID_VALUE : 0);
}

API int hipGetDevicePropertiesR0600(char *properties, int device) {
    const char *arch = getenv("STUB_HIP_ARCH");
    HIP_FAIL();
    memset(properties, 0, 1472);
    snprintf(properties, 256, "Stub MI300");
    for (int i = 0; i < 16; i++)
        properties[256 + i] = (char)(16 * device + i);
    snprintf(properties + 1160, 256, "%s", arch != NULL ? arch : "gfx942:sramecc+:xnack-");
    return 0;
}

API int hipGetDevice(int *device) {
    *device = hip_device;
    return 0;
}

API int hipSetDevice(int device) {
    HIP_FAIL();
    if (device < 0 || device >= devices())
        return hip(INVALID_DEVICE);
    hip_device = device;
    return 0;
}

API int hipThreadExchangeStreamCaptureMode(int *mode) {
    return cuThreadExchangeStreamCaptureMode(mode);
}

API int hipModuleLoadData(struct module **module, const void *image) {
    HIP_FAIL();
    const int code = forbidden(false);
    return hip(code != 0 ? code : load(module, image, 224, hip_device, NULL, NULL, 0));
}

API int hipModuleUnload(struct module *module) {
    HIP_FAIL();
    const int code = forbidden(false);
    return hip(code != 0 ? code : unload(module));
}

API int hipModuleGetFunction(void **function, struct module *module, const char *name) {
    HIP_FAIL();
    return hip(find_function(function, module, name));
}

API int hipFuncGetAttribute(int *value, int attribute, const struct function *function) {
    HIP_FAIL();
    return hip(cuFuncGetAttribute(value, attribute, function));
}

static int hip_launch(struct function *function, const struct config *config, void **parameters,
                      int cooperative) {
    if (function->module->device != hip_device)
        return INVALID_HANDLE;
    for (int axis = 0; axis < 3; axis++)
        if ((uint64_t)config->grid[axis] * config->block[axis] > UINT32_MAX)
            return INVALID_VALUE;
    return recording ? record_launch(config, function, parameters, NULL, hip_device, cooperative)
                     : 0;
}

API int hipModuleLaunchKernel(struct function *function, unsigned gx, unsigned gy, unsigned gz,
                              unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                              void **parameters, void **extra) {
    (void)extra;
    if (LIKELY(!watched))
        return 0;
    HIP_FAIL();
    const struct config config = {{gx, gy, gz}, {bx, by, bz}, shared, stream, NULL, 0};
    return hip(hip_launch(function, &config, parameters, 0));
}

API int hipModuleLaunchCooperativeKernel(struct function *function, unsigned gx, unsigned gy,
                                         unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                         unsigned shared, void *stream, void **parameters) {
    if (LIKELY(!watched))
        return 0;
    HIP_FAIL();
    const struct config config = {{gx, gy, gz}, {bx, by, bz}, shared, stream, NULL, 0};
    return hip(hip_launch(function, &config, parameters, 1));
}

API int hipMalloc(uint64_t *address, size_t bytes) {
    HIP_FAIL();
    const int code = forbidden(false);
    return hip(code != 0 ? code : allocate(address, bytes, DEVICE, hip_device));
}

API int hipFree(uint64_t address) {
    HIP_FAIL();
    const int code = forbidden(false);
    return hip(code != 0 ? code : release(address));
}

API int hipMallocAsync(uint64_t *address, size_t bytes, void *stream) {
    (void)stream;
    HIP_FAIL();
    return hip(allocate(address, bytes, DEVICE, hip_device));
}

API int hipFreeAsync(uint64_t address, void *stream) {
    (void)stream;
    HIP_FAIL();
    return hip(release(address));
}

API int hipMemGetInfo(size_t *available, size_t *total) {
    HIP_FAIL();
    free_memory(available, total);
    return 0;
}

API int hipHostMalloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    uint64_t address = 0;
    HIP_FAIL();
    const int code = allocate(&address, bytes, PINNED, hip_device);
    *memory = (void *)(uintptr_t)address;
    return hip(code);
}

API int hipHostFree(void *memory) {
    HIP_FAIL();
    return hip(release((uint64_t)(uintptr_t)memory));
}

API int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    (void)stream;
    HIP_FAIL();
    if (kind != 4)
        return hip(INVALID_VALUE);
    memcpy(to, from, bytes);
    return 0;
}

API int hipMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void *stream) {
    (void)stream;
    HIP_FAIL();
    memset((void *)(uintptr_t)address, value, bytes);
    return 0;
}

API int hipDeviceSynchronize(void) {
    HIP_FAIL();
    return hip(forbidden(true));
}

struct hip_pointer {
    int32_t type, device;
    void *device_pointer, *host_pointer;
    int32_t managed;
    uint32_t flags;
};

API int hipPointerGetAttributes(struct hip_pointer *attributes, uint64_t address) {
    int device;
    HIP_FAIL();
    const int kind = find_kind(address, &device);
    if (kind == 0)
        return hip(INVALID_VALUE);
    attributes->type = kind;
    attributes->device = device;
    return 0;
}

API int hipStreamCreateWithFlags(void **stream, unsigned flags) {
    (void)flags;
    HIP_FAIL();
    *stream = malloc(16); /* owned by the caller */
    count_live(&live_streams, 1);
    return 0;
}

API int hipStreamDestroy(void *stream) {
    HIP_FAIL();
    free(stream);
    count_live(&live_streams, -1);
    return 0;
}

API int hipStreamSynchronize(void *stream) {
    HIP_FAIL();
    return hip(stream_status((uint64_t)(uintptr_t)stream) != 0 ? forbidden(true) : 0);
}

API int hipStreamIsCapturing(void *stream, int *status) {
    *status = LIKELY(capture_count == 0) ? 0 : stream_status((uint64_t)(uintptr_t)stream);
    return 0;
}

API int hipEventCreateWithFlags(struct event **event, unsigned flags) {
    (void)flags;
    HIP_FAIL();
    *event = calloc(1, sizeof **event); /* owned by the caller */
    (*event)->device = hip_device;
    count_live(&live_events, 1);
    return 0;
}

API int hipEventDestroy(struct event *event) {
    HIP_FAIL();
    return cuEventDestroy_v2(event);
}

API int hipEventRecord(struct event *event, void *stream) {
    (void)stream;
    HIP_FAIL();
    event->time = __atomic_load_n(&clock_ns, __ATOMIC_RELAXED);
    event->recorded = true;
    return 0;
}

API int hipEventQuery(struct event *event) {
    (void)event;
    HIP_FAIL();
    return 0;
}

API int hipEventSynchronize(struct event *event) {
    (void)event;
    HIP_FAIL();
    return 0;
}

API int hipEventElapsedTime(float *milliseconds, struct event *begin, struct event *end) {
    HIP_FAIL();
    return hip(cuEventElapsedTime(milliseconds, begin, end));
}
