/* The CUDA driver: fills the function table of gpu.h with libcuda's functions, and launches. */
#include "cuda_driver.h"

#include "dlpack.h"
#include "gpu_library.h"
#include "gpu_symbols.h"

#include <stdio.h>

/* Functions of libcuda that only this file calls. `resolve` fills them once, before it sets
 * `silo_cuda.open`. */
#define POINTER(...) SILO_CUDA_COLUMNS(SILO_GPU_POINTER, __VA_ARGS__)
static struct {
    SILO_GPU_SYMBOLS(POINTER)
} cu;

/* ---- launch ---- */

SILO_INLINE int launch_here(const struct silo_launch *launch) {
    const struct silo_function *function = launch->function;
    /* The grid limits keep these products below 2^32. */
    const struct cuda_launch_config config = {
        .grid = {launch->grid[0] * function->per_program[0],
                 launch->grid[1] * function->per_program[1],
                 launch->grid[2] * function->per_program[2]},
        .block = {function->block[0], function->block[1], function->block[2]},
        .shared_bytes = function->shared_bytes,
        .stream = launch->stream,
        .attributes = function->attributes,
        .attribute_count = function->attribute_count,
    };
    return cu.launch_config(&config, function->handle, launch->params, NULL);
}

/* Launches with the device's context made current, if another context is current: a launch on the
 * null stream would otherwise go to the stream of the other context. */
static SILO_NOINLINE int launch_elsewhere(const struct silo_launch *launch) {
    void *popped;
    int code = cu.context_push(launch->function->device->context);
    if (code != 0)
        return code;
    code = launch_here(launch);
    cu.context_pop(&popped);
    return code;
}

/* Launches on a thread that has no current context, or whose current context was destroyed.
 * Afterwards the device's context stays current on the thread. */
static SILO_NOINLINE int launch_first(const struct silo_launch *launch) {
    int code = cu.context_set(launch->function->device->context);
    return code != 0 ? code : launch_here(launch);
}

static SILO_NOINLINE int launch_in_context(const struct silo_launch *launch) {
    const void *context = launch->function->device->context;
    void *current = NULL;
    int code = cu.context_get(&current);
    if (SILO_UNLIKELY(code != 0))
        return code == CUDA_INVALID_CONTEXT ? launch_first(launch) : code;
    if (SILO_UNLIKELY(current != context))
        return current == NULL ? launch_first(launch) : launch_elsewhere(launch);
    code = launch_here(launch);
    return SILO_UNLIKELY(code == CUDA_INVALID_CONTEXT) ? launch_first(launch) : code;
}

/* With one device there is one primary context, and the current context is not checked: the launch
 * either works, or fails before it starts and is repeated with the context made current. */
static SILO_HOT int cuda_launch(const struct silo_launch *launch) {
    if (SILO_UNLIKELY(silo_cuda.device_count != 1))
        return launch_in_context(launch);
    const int code = launch_here(launch);
    if (SILO_LIKELY(code == 0))
        return 0;
    return code == CUDA_INVALID_CONTEXT || code == CUDA_INVALID_HANDLE ||
                   code == CUDA_CONTEXT_IS_DESTROYED
               ? launch_in_context(launch)
               : code;
}

static int refuse_launch(const struct cuda_launch_config *config, void *function, void **parameters,
                         void **extra) {
    (void)config, (void)function, (void)parameters, (void)extra;
    return CUDA_NOT_INITIALIZED;
}

static int refuse_context(void **context) {
    (void)context;
    return CUDA_NOT_INITIALIZED;
}

static int refuse_context_set(void *context) {
    (void)context;
    return CUDA_NOT_INITIALIZED;
}

static int refuse_graph(void *executable, void *stream) {
    (void)executable, (void)stream;
    return CUDA_NOT_INITIALIZED;
}

static void abandon(void) {
    cu.launch_config = refuse_launch;
    cu.graph_launch = refuse_graph;
    cu.context_get = refuse_context;
    cu.context_set = cu.context_push = refuse_context_set;
}

/* ---- errors ---- */

static bool is_fault(int code) {
    switch (code) {
    case CUDA_ILLEGAL_ADDRESS:
    case CUDA_LAUNCH_TIMEOUT:
    case CUDA_ASSERT:
    case CUDA_HARDWARE_STACK_ERROR:
    case CUDA_ILLEGAL_INSTRUCTION:
    case CUDA_MISALIGNED_ADDRESS:
    case CUDA_INVALID_ADDRESS_SPACE:
    case CUDA_INVALID_PROGRAM_COUNTER:
    case CUDA_LAUNCH_FAILED:
    case CUDA_TENSOR_MEMORY_LEAK:
    case CUDA_UNCORRECTABLE_ECC:
        return true;
    default:
        return false;
    }
}

static const char *advice(int code) {
    if (is_fault(code))
        return "; it may come from an earlier kernel on this device, and nothing more runs there "
               "in "
               "this process: its CUDA context is unusable from now on (compute-sanitizer finds "
               "the "
               "kernel)";
    switch (code) {
    case CUDA_NOT_INITIALIZED:
        return "; a process made by fork() cannot use CUDA after its parent did: start it with "
               "'spawn'";
    case CUDA_STUB_LIBRARY:
        return "; the library found is the toolkit's stub: put the driver's own libcuda.so.1 first";
    case CUDA_NO_DEVICE:
        return "; the driver sees no GPU: look at nvidia-smi, CUDA_VISIBLE_DEVICES and, in a "
               "container, whether GPUs are passed in";
    case CUDA_SYSTEM_NOT_READY:
        return "; the fabric manager of this machine is not running, or not ready yet";
    case CUDA_SYSTEM_DRIVER_MISMATCH:
        return "; the kernel module and libcuda are of different versions: restart the machine, or "
               "take a stale libcuda out of the library path";
    case CUDA_COMPAT_NOT_SUPPORTED:
        return "; this GPU cannot use the forward-compatibility libcuda: take it out of the "
               "library "
               "path";
    case CUDA_LAUNCH_OUT_OF_RESOURCES:
        return "; the block needs more registers or threads than the device has";
    default:
        return "";
    }
}

static const char *cuda_error_text(int code) {
    static _Thread_local char text[512]; /* valid until this thread's next call */
    const char *name = NULL, *message = NULL;
    if (cu.find_error_name == NULL || cu.find_error_name(code, &name) != 0 || name == NULL)
        name = "unknown CUDA error";
    if (cu.find_error_string == NULL || cu.find_error_string(code, &message) != 0 ||
        message == NULL)
        message = "no description";
    snprintf(text, sizeof text, "%s: %s%s", name, message, advice(code));
    return text;
}

static const struct silo_driver cuda_driver = {
    .name = "cuda",
    .device_types =
        1U << SILO_DEVICE_CUDA | 1U << SILO_DEVICE_CUDA_HOST | 1U << SILO_DEVICE_CUDA_MANAGED,
    .launch = cuda_launch,
    .error_text = cuda_error_text,
};

/* ---- contexts ---- */

static int set_device(struct silo_gpu_device *device) {
    return cu.context_set(device->context);
}

static int current_device(int32_t *index) {
    int device, code = cu.device_now(&device);
    if (code == 0)
        *index = device; /* a CUdevice is the device's index */
    return code;
}

static int enter(struct silo_gpu_device *device, struct silo_gpu_scope *scope) {
    void *current = NULL;
    *scope = (struct silo_gpu_scope){.gpu = &silo_cuda, .previous = 0, .mode = -1};
    if (cu.context_get(&current) != 0 || current != device->context) {
        const int code = cu.context_push(device->context);
        if (code != 0)
            return code;
        scope->previous = 1;
    }
    int mode = CUDA_CAPTURE_RELAXED;
    if (cu.capture_mode(&mode) == 0)
        scope->mode = mode;
    return 0;
}

static void leave(struct silo_gpu_scope *scope) {
    void *popped;
    if (scope->mode >= 0)
        cu.capture_mode(&scope->mode);
    if (scope->previous)
        cu.context_pop(&popped);
}

/* Waits for all work of the context by freeing memory, which is allowed in the relaxed capture
 * mode. Synchronising the context would break a capture on any of its streams. */
static int drain(void) {
    uint64_t address = 0;
    const int code = silo_cuda.memory_alloc(&address, 1);
    return code != 0 ? code : silo_cuda.memory_free(address);
}

/* ---- devices ---- */

static int facts(int32_t index, struct silo_gpu_facts *out) {
    *out = (struct silo_gpu_facts){.major = 0};
    int device, code = cu.device_get(&device, index);
    size_t memory = 0;
    if (code == 0)
        code = cu.device_name(out->name, sizeof out->name, device);
    if (code == 0)
        code = cu.device_memory(&memory, device);
    if (code != 0)
        return code;
    out->total_memory = memory;
    out->name[sizeof out->name - 1] = '\0';
#define QUESTION(member, need, name) {&out->member, CUDA_##name, SILO_GPU_IS_##need},
    const struct silo_gpu_question questions[] = {SILO_GPU_QUESTIONS(QUESTION)};
    code =
        silo_gpu_ask(cu.device_attribute, device, questions, sizeof questions / sizeof *questions);
    if (code != 0)
        return code;
    /* Drivers before 11.8 lack this attribute. */
    if (cu.device_attribute(&out->cluster_launch, CUDA_CLUSTER_LAUNCH, device) != 0)
        out->cluster_launch = 0;
    out->programmatic_launch = out->major >= 9;
    if (cu.device_uuid == NULL || cu.device_uuid(out->uuid, device) != 0)
        memset(out->uuid, 0, sizeof out->uuid);
    snprintf(out->arch, sizeof out->arch, "sm_%d%d", out->major, out->minor);
    return 0;
}

static int context(struct silo_gpu_device *device) {
    const int code = cu.device_get(&device->ordinal, device->index);
    return code != 0 ? code : cu.primary_retain(&device->context, device->ordinal);
}

/* ---- modules and functions ---- */

static int module_load(void **module, const void *image, char *log, size_t log_bytes) {
    int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)log_bytes};
    log[0] = '\0';
    const int code = cu.module_load_jit(module, image, 2, options, values);
    log[log_bytes - 1] = '\0';
    return code;
}

static int module_function(void **function, void *module, const char *name) {
    /* With lazy loading, the driver would load the code at the first launch, where a capture may
     * forbid it. */
    const int code = cu.module_function(function, module, name);
    return code == 0 && cu.function_load != NULL ? cu.function_load(*function) : code;
}

static int function_limits(void *function, int *static_shared, int *max_threads) {
    const int code = cu.function_get(static_shared, CUDA_FUNCTION_STATIC_SHARED, function);
    return code != 0 ? code : cu.function_get(max_threads, CUDA_FUNCTION_MAX_THREADS, function);
}

static struct cuda_launch_attribute *add_attribute(struct silo_function *function, int id) {
    struct cuda_launch_attribute *list = (struct cuda_launch_attribute *)function->attributes;
    struct cuda_launch_attribute *attribute = &list[function->attribute_count++];
    *attribute = (struct cuda_launch_attribute){.id = id};
    return attribute;
}

static int function_prepare(const struct silo_gpu_device *device, struct silo_function *function,
                            int static_shared) {
    _Static_assert(sizeof(struct cuda_launch_attribute) == SILO_ATTRIBUTE_BYTES, "attributes");
    const uint64_t blocks =
        (uint64_t)function->cluster[0] * function->cluster[1] * function->cluster[2];
    int code = 0;
    if ((uint64_t)static_shared + function->shared_bytes > (uint64_t)device->shared_block) {
        code = cu.function_cache(function->handle, CUDA_CACHE_PREFER_SHARED);
        if (code == 0)
            code = cu.function_set(function->handle, CUDA_FUNCTION_MAX_DYNAMIC_SHARED,
                                   device->shared_optin - static_shared);
    }
    if (code == 0 && blocks > 8) /* every device with clusters supports 8 blocks */
        code = cu.function_set(function->handle, CUDA_FUNCTION_NON_PORTABLE_CLUSTER, 1);
    if (code != 0)
        return code;
    function->attribute_count = 0;
    if (blocks > 1) {
        memcpy(add_attribute(function, CUDA_ATTRIBUTE_CLUSTER_DIMENSION)->value.values,
               function->cluster, sizeof function->cluster);
        add_attribute(function, CUDA_ATTRIBUTE_CLUSTER_SCHEDULING)->value.values[0] =
            CUDA_CLUSTER_SPREAD;
    }
    if (function->cooperative)
        add_attribute(function, CUDA_ATTRIBUTE_COOPERATIVE)->value.values[0] = 1;
    if (function->pdl)
        add_attribute(function, CUDA_ATTRIBUTE_PROGRAMMATIC_SERIALIZATION)->value.values[0] = 1;
    return 0;
}

/* ---- memory ---- */

static int host_alloc(void **memory, size_t bytes) {
    return cu.host_alloc_flags(memory, bytes, CUDA_HOST_PORTABLE);
}

static int ask_pointer(uint64_t address, int *type, int *managed, int *device) {
    int attributes[] = {CUDA_POINTER_MEMORY_TYPE, CUDA_POINTER_IS_MANAGED, CUDA_POINTER_DEVICE};
    void *data[] = {type, managed, device};
    return cu.pointer_attributes(3, attributes, data, address);
}

static int locate(uint64_t address, int32_t *type, int32_t *index) {
    int memory = 0, device = 0;
    int managed = 0; /* the driver writes only the lowest byte */
    int code = ask_pointer(address, &memory, &managed, &device);
    if (code == CUDA_INVALID_CONTEXT) { /* the calling thread has no context */
        for (int i = 0; i < silo_cuda.device_count && code == CUDA_INVALID_CONTEXT; i++) {
            struct silo_gpu_scope scope;
            struct silo_gpu_device *opened =
                __atomic_load_n(&silo_cuda.devices[i], __ATOMIC_ACQUIRE);
            if (opened == NULL || enter(opened, &scope) != 0)
                continue;
            code = ask_pointer(address, &memory, &managed, &device);
            leave(&scope);
        }
    }
    *type = SILO_DEVICE_CPU;
    *index = 0;
    if (code != 0 && code != CUDA_INVALID_VALUE && code != CUDA_INVALID_CONTEXT)
        return code;
    if (code != 0 || memory == 0)
        return 0; /* memory unknown to the driver */
    *type = managed & 0xFF               ? SILO_DEVICE_CUDA_MANAGED
            : memory == CUDA_MEMORY_HOST ? SILO_DEVICE_CUDA_HOST
                                         : SILO_DEVICE_CUDA;
    *index = device < 0 ? 0 : device; /* -1: managed memory without a preferred device */
    return 0;
}

/* ---- graphs ---- */

static int graph_create(void **graph) {
    return cu.graph_create(graph, 0);
}

static struct cuda_kernel_node node_of(const struct silo_launch *launch) {
    const struct silo_function *function = launch->function;
    return (struct cuda_kernel_node){
        .function = function->handle,
        .grid = {launch->grid[0] * function->per_program[0],
                 launch->grid[1] * function->per_program[1],
                 launch->grid[2] * function->per_program[2]},
        .block = {function->block[0], function->block[1], function->block[2]},
        .shared_bytes = function->shared_bytes,
        .params = launch->params,
    };
}

static int graph_add(void *graph, const struct silo_launch *launch, void *const *after,
                     size_t after_count, void **node) {
    const struct cuda_kernel_node params = node_of(launch);
    const struct cuda_launch_attribute *attributes =
        (const struct cuda_launch_attribute *)launch->function->attributes;
    int code = cu.graph_add(node, graph, after, after_count, &params);
    for (uint32_t i = 0; i < launch->function->attribute_count && code == 0; i++)
        /* this attribute works on streams only, not in graphs */
        if (attributes[i].id != CUDA_ATTRIBUTE_PROGRAMMATIC_SERIALIZATION)
            code = cu.graph_attribute(*node, attributes[i].id, &attributes[i].value);
    return code;
}

static int graph_add_graph(void *graph, void *child, void *const *after, size_t after_count,
                           void **node) {
    return cu.graph_add_graph(node, graph, after, after_count, child);
}

static int graph_let_update(void *node, uint64_t *handle) {
    struct cuda_updatable_value value = {.updatable = 1};
    int code = cu.graph_attribute(node, CUDA_ATTRIBUTE_DEVICE_UPDATABLE, &value);
    if (code == 0)
        code = cu.graph_attribute_of(node, CUDA_ATTRIBUTE_DEVICE_UPDATABLE, &value);
    *handle = value.handle;
    return code == 0 && value.handle == 0 ? CUDA_NOT_SUPPORTED : code;
}

static int graph_instantiate(void **executable, void *graph) {
    return cu.graph_instantiate(executable, graph, 0);
}

static int graph_upload(void *executable, void *stream) {
    return cu.graph_upload(executable, stream);
}

static SILO_NOINLINE int graph_launch_elsewhere(const struct silo_gpu_device *device,
                                                void *executable, void *stream) {
    void *current = NULL, *popped;
    int code = cu.context_get(&current);
    const bool is_current = code == 0 && current == device->context;
    if (!is_current)
        code = cu.context_push(device->context);
    if (code != 0)
        return code;
    code = cu.graph_launch(executable, stream);
    if (!is_current)
        cu.context_pop(&popped);
    return code;
}

/* With one device the current context is not checked, as in cuda_launch. */
static int graph_launch(const struct silo_gpu_device *device, void *executable, void *stream) {
    if (SILO_UNLIKELY(silo_cuda.device_count != 1))
        return graph_launch_elsewhere(device, executable, stream);
    const int code = cu.graph_launch(executable, stream);
    if (SILO_LIKELY(code == 0))
        return 0;
    return code == CUDA_INVALID_CONTEXT || code == CUDA_INVALID_HANDLE ||
                   code == CUDA_CONTEXT_IS_DESTROYED
               ? graph_launch_elsewhere(device, executable, stream)
               : code;
}

static int graph_set(void *executable, void *node, const struct silo_launch *launch) {
    const struct cuda_kernel_node params = node_of(launch);
    return cu.graph_set(executable, node, &params);
}

static int graph_enable(void *executable, void *node, unsigned enabled) {
    return cu.graph_enable(executable, node, enabled);
}

static int graph_free(void *executable) {
    return cu.graph_free(executable);
}

static int graph_destroy(void *graph) {
    return cu.graph_destroy(graph);
}

static const struct silo_gpu_graphs graphs = {
    .create = graph_create,
    .add = graph_add,
    .add_graph = graph_add_graph,
    .let_update = graph_let_update,
    .instantiate = graph_instantiate,
    .upload = graph_upload,
    .launch = graph_launch,
    .set = graph_set,
    .enable = graph_enable,
    .free = graph_free,
    .destroy = graph_destroy,
};

static bool has_graphs(void) {
    return cu.graph_create != NULL && cu.graph_add != NULL && cu.graph_add_graph != NULL &&
           cu.graph_attribute != NULL && cu.graph_attribute_of != NULL &&
           cu.graph_instantiate != NULL && cu.graph_upload != NULL && cu.graph_launch != NULL &&
           cu.graph_set != NULL && cu.graph_enable != NULL && cu.graph_free != NULL &&
           cu.graph_destroy != NULL;
}

/* ---- opening ---- */

#define SILO_GPU_OWN cu
#define SILO_GPU_TABLE silo_cuda
#define SYMBOL(...) SILO_CUDA_COLUMNS(SILO_GPU_SYMBOL, __VA_ARGS__)
static const char *resolve(void *library) {
    const struct silo_gpu_symbol symbols[] = {SILO_GPU_SYMBOLS(SYMBOL)};
    const char *missing = silo_gpu_find(library, symbols, sizeof symbols / sizeof *symbols);
    silo_cuda.graphs = has_graphs() ? &graphs : NULL;
    return missing;
}

static int start(void) {
    int code = cu.init(0);
    if (code == 0)
        code = cu.version(&silo_cuda.version);
    return code != 0 ? code : cu.device_count(&silo_cuda.device_count);
}

struct silo_gpu silo_cuda = {
    .driver = &cuda_driver,
    .name = "cuda",
    .memory_type = SILO_DEVICE_CUDA,
    .host_type = SILO_DEVICE_CUDA_HOST,
    .libraries = {"libcuda.so.1"},
    .setting = "silo_options.cuda_library",
    .array_interface = true,
    .oldest = "11.8 (520)",
    .set_device = set_device,
    .host_alloc = host_alloc,
    .module_load = module_load,
    .module_function = module_function,
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
