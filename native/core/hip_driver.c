/* The HIP runtime: fills the function table of gpu.h with libamdhip64's functions, and launches.
 * Written from its headers and tested with a stub; not run on hardware yet. */
#include "hip_driver.h"

#include "dlpack.h"
#include "gpu_library.h"
#include "gpu_symbols.h"

#include <stdio.h>

/* Functions of the runtime that only this file calls. `resolve` fills them once, before it sets
 * `silo_hip.open`. */
#define POINTER(...) SILO_HIP_COLUMNS(SILO_GPU_POINTER, __VA_ARGS__)
static struct {
    SILO_GPU_SYMBOLS(POINTER)
} hip;

/* Clears the runtime's last error of this thread. Other code in the thread that asks for the last
 * error would otherwise take this one for an error of its own. */
static int forget_error(int code) {
    if (code != 0)
        hip.last_error();
    return code;
}

/* ---- launch ---- */

SILO_INLINE int launch_here(const struct silo_launch *launch) {
    const struct silo_function *function = launch->function;
    if (function->cooperative)
        return hip.launch_cooperative(function->handle, launch->grid[0], launch->grid[1],
                                      launch->grid[2], function->block[0], function->block[1],
                                      function->block[2], function->shared_bytes, launch->stream,
                                      launch->params);
    return hip.launch_grid(function->handle, launch->grid[0], launch->grid[1], launch->grid[2],
                           function->block[0], function->block[1], function->block[2],
                           function->shared_bytes, launch->stream, launch->params, NULL);
}

static int hip_launch(const struct silo_launch *launch) {
    int current, code = hip.device_now(&current);
    const int device = launch->function->device->index;
    if (SILO_LIKELY(code == 0 && current == device))
        return forget_error(launch_here(launch));
    if (code == 0)
        code = hip.device_set(device);
    if (code == 0) {
        code = launch_here(launch);
        hip.device_set(current);
    }
    return forget_error(code);
}

static int refuse_device(int *device) {
    (void)device;
    return SILO_GPU_NOT_INITIALIZED;
}

static int no_error(void) {
    return 0;
}

/* Launches fail from now on, because each launch first calls device_now. */
static void abandon(void) {
    hip.device_now = refuse_device;
    hip.last_error = no_error;
}

static bool is_fault(int code) {
    return code == SILO_GPU_ILLEGAL_ADDRESS || code == SILO_GPU_ASSERT ||
           code == SILO_GPU_LAUNCH_FAILED;
}

static const char *hip_error_text(int code) {
    static _Thread_local char text[512]; /* valid until this thread's next call */
    const char *name = hip.error_name != NULL ? hip.error_name(code) : "unknown HIP error";
    const char *message = hip.error_string != NULL ? hip.error_string(code) : "no description";
    const char *advice = "";
    if (hip.last_error != NULL)
        hip.last_error(); /* clears the runtime's last error, because it is reported here */
    if (code == SILO_GPU_NO_DEVICE)
        advice = "; the runtime sees no GPU: look at rocminfo, HIP_VISIBLE_DEVICES and the rights "
                 "on /dev/kfd";
    else if (code == SILO_GPU_NOT_INITIALIZED)
        advice = "; a process made by fork() cannot use HIP after its parent did: start it with "
                 "'spawn'";
    else if (is_fault(code))
        advice = "; it may come from an earlier kernel on this device, and nothing more runs there "
                 "in this process";
    snprintf(text, sizeof text, "%s: %s%s", name, message, advice);
    return text;
}

static const struct silo_driver hip_driver = {
    .name = "hip",
    .device_types = 1U << SILO_DEVICE_ROCM | 1U << SILO_DEVICE_ROCM_HOST,
    .launch = hip_launch,
    .error_text = hip_error_text,
};

/* ---- devices: HIP has a current device for each thread, and no contexts ---- */

static int set_device(struct silo_gpu_device *device) {
    return forget_error(hip.device_set(device->index));
}

static int current_device(int32_t *index) {
    int device, code = hip.device_now(&device);
    if (code == 0)
        *index = device;
    return forget_error(code);
}

static int enter(struct silo_gpu_device *device, struct silo_gpu_scope *scope) {
    *scope = (struct silo_gpu_scope){.gpu = &silo_hip, .previous = -1, .mode = -1};
    int current, code = hip.device_now(&current);
    if (code == 0 && current != device->index) {
        code = hip.device_set(device->index);
        scope->previous = current;
    }
    if (code != 0)
        return forget_error(code);
    int mode = HIP_CAPTURE_RELAXED;
    if (hip.capture_mode(&mode) == 0)
        scope->mode = mode;
    return 0;
}

static void leave(struct silo_gpu_scope *scope) {
    if (scope->mode >= 0)
        hip.capture_mode(&scope->mode);
    if (scope->previous >= 0)
        hip.device_set(scope->previous);
}

/* Waits for the device's work by freeing memory, which is allowed while another thread captures (as
 * in cuda_driver.c). */
static int drain(void) {
    uint64_t address = 0;
    const int code = silo_hip.memory_alloc(&address, 1);
    return forget_error(code != 0 ? code : silo_hip.memory_free(address));
}

static int device_attribute(int *value, int attribute, int device) {
    return forget_error(hip.device_attribute(value, attribute, device));
}

static int facts(int32_t index, struct silo_gpu_facts *out) {
    *out = (struct silo_gpu_facts){.major = 0};
    struct hip_properties properties = {.name = ""};
    size_t memory = 0;
    int code = hip.properties(&properties, index);
    if (code == 0)
        code = hip.device_memory(&memory, index);
    if (code != 0)
        return forget_error(code);
    out->total_memory = memory;
    snprintf(out->name, sizeof out->name, "%.127s", properties.name);
    snprintf(out->arch, sizeof out->arch, "%.127s", properties.arch);
    memcpy(out->uuid, properties.uuid, sizeof out->uuid);
#define QUESTION(member, need, name) {&out->member, HIP_##name, SILO_GPU_IS_##need},
    const struct silo_gpu_question questions[] = {SILO_GPU_QUESTIONS(QUESTION)};
    return silo_gpu_ask(device_attribute, index, questions, sizeof questions / sizeof *questions);
}

static int context(struct silo_gpu_device *device) {
    device->ordinal = device->index;
    return 0;
}

/* ---- modules and functions ---- */

static int module_load(void **module, const void *image, char *log, size_t log_bytes) {
    (void)log_bytes;
    log[0] = '\0'; /* no messages: the runtime compiles nothing here */
    return forget_error(hip.module_load_data(module, image));
}

static int function_limits(void *function, int *static_shared, int *max_threads) {
    int code = hip.function_get(static_shared, HIP_FUNCTION_STATIC_SHARED, function);
    if (code == 0)
        code = hip.function_get(max_threads, HIP_FUNCTION_MAX_THREADS, function);
    return forget_error(code);
}

static int function_prepare(const struct silo_gpu_device *device, struct silo_function *function,
                            int static_shared) {
    (void)device, (void)static_shared; /* all shared memory (LDS) can be used without opting in */
    function->attribute_count = 0;
    return 0;
}

/* ---- memory ---- */

static int host_alloc(void **memory, size_t bytes) {
    return forget_error(hip.host_alloc_flags(memory, bytes, HIP_HOST_PORTABLE));
}

static int memory_alloc_async(uint64_t *address, size_t bytes, void *stream) {
    if (hip.memory_alloc_async == NULL || hip.memory_free_async == NULL)
        return SILO_GPU_NOT_SUPPORTED;
    return forget_error(hip.memory_alloc_async(address, bytes, stream));
}

static int memory_free_async(uint64_t address, void *stream) {
    return forget_error(hip.memory_free_async(address, stream));
}

static int copy(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    return forget_error(hip.copy_kind((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes,
                                      HIP_COPY_DEFAULT, stream));
}

static int event_query(void *event) {
    return forget_error(hip.event_query(event));
}

static int locate(uint64_t address, int32_t *type, int32_t *index) {
    struct hip_pointer_attributes attributes = {.type = 0};
    const int code = forget_error(hip.pointer_facts(&attributes, (const void *)(uintptr_t)address));
    *type = SILO_DEVICE_CPU;
    *index = 0;
    if (code == HIP_INVALID_VALUE) /* memory unknown to the runtime */
        return 0;
    if (code != 0)
        return code;
    switch (attributes.type) {
    case HIP_MEMORY_DEVICE:
    case HIP_MEMORY_MANAGED: /* reported as device memory: DLPack has no type for ROCm managed
                                memory */
        *type = SILO_DEVICE_ROCM;
        break;
    case HIP_MEMORY_HOST:
        *type = SILO_DEVICE_ROCM_HOST;
        break;
    default:
        return 0;
    }
    *index = attributes.device < 0 ? 0 : attributes.device;
    return 0;
}

/* ---- opening ---- */

#define SILO_GPU_OWN hip
#define SILO_GPU_TABLE silo_hip
#define SYMBOL(...) SILO_HIP_COLUMNS(SILO_GPU_SYMBOL, __VA_ARGS__)
static const char *resolve(void *library) {
    const struct silo_gpu_symbol symbols[] = {SILO_GPU_SYMBOLS(SYMBOL)};
    return silo_gpu_find(library, symbols, sizeof symbols / sizeof *symbols);
}

static int start(void) {
    int code = hip.init(0);
    if (code == 0)
        code = hip.version(&silo_hip.version);
    return code != 0 ? code : hip.device_count(&silo_hip.device_count);
}

struct silo_gpu silo_hip = {
    .driver = &hip_driver,
    .name = "hip",
    .memory_type = SILO_DEVICE_ROCM,
    .host_type = SILO_DEVICE_ROCM_HOST,
    .libraries = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"},
    .setting = "silo_options.hip_library",
    .counts_threads = true,
    .oldest = "ROCm 6.0",
    .reads_image = true,
    .set_device = set_device,
    .host_alloc = host_alloc,
    .memory_alloc_async = memory_alloc_async,
    .memory_free_async = memory_free_async,
    .copy = copy,
    .event_query = event_query,
    .module_load = module_load,
    .locate = locate,
    .current_device = current_device,
    .is_fault = is_fault,
    .drain = drain,
    .abandon = abandon,
    .resolve = resolve,
    .start = start,
    .facts = facts,
    .context = context,
    .enter = enter,
    .leave = leave,
    .function_limits = function_limits,
    .function_prepare = function_prepare,
};
