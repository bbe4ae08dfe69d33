#include "binary.h"

#include "cpu_driver.h"
#include "dlpack.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- retired modules ---- */

/* A module on a GPU that is no longer referenced, but whose launches may still run. */
struct silo_gpu_retired {
    struct silo_gpu_retired *next; /* owned */
    void *module, *image;          /* owned */
};

/* Guards the lists of retired modules. Held for a few instructions, never during a driver call. */
static pthread_mutex_t retiring = PTHREAD_MUTEX_INITIALIZER;

void silo_gpu_retired_renew(void) {
    pthread_mutex_init(&retiring, NULL);
}

static struct silo_gpu_retired *take_retired(struct silo_gpu_device *device) {
    pthread_mutex_lock(&retiring);
    struct silo_gpu_retired *list = device->retired;
    device->retired = NULL;
    pthread_mutex_unlock(&retiring);
    return list;
}

static void put_retired(struct silo_gpu_device *device, struct silo_gpu_retired *list) {
    struct silo_gpu_retired *last = list;
    if (list == NULL)
        return;
    while (last->next != NULL)
        last = last->next;
    pthread_mutex_lock(&retiring);
    last->next = device->retired;
    device->retired = list;
    pthread_mutex_unlock(&retiring);
}

/* Unloads the device's retired modules after waiting for all work on the device. A module that
 * cannot be unloaded now, because another thread captures a graph, waits for the next sweep. The
 * caller has made the device's context current. A running kernel may itself be waiting for a
 * callback on the host, so the caller must not hold a lock that such a callback takes. */
static void sweep(struct silo_gpu_device *device) {
    struct silo_gpu_retired *list = take_retired(device);
    struct silo_gpu_retired *remaining = NULL;
    if (list != NULL && device->gpu->drain() != 0) {
        put_retired(device, list);
        return;
    }
    while (list != NULL) {
        struct silo_gpu_retired *next = list->next;
        const int code = device->gpu->module_unload(list->module);
        if (code >= SILO_GPU_CAPTURES) {
            list->next = remaining;
            remaining = list;
        } else { /* the module is unloaded, or vanished with its context or driver */
            free(list->image);
            free(list);
        }
        list = next;
    }
    put_retired(device, remaining);
}

/* Moves the module and image that the binary owns to the device's list of retired modules. */
static void retire(struct silo_binary *binary) {
    struct silo_gpu_retired *entry = malloc(sizeof *entry); /* owned by the list */
    struct silo_gpu_scope scope;
    if (entry == NULL)
        return; /* out of memory: the module stays loaded */
    *entry = (struct silo_gpu_retired){NULL, binary->handle, binary->image};
    put_retired(binary->device, entry);
    if (silo_gpu_enter(binary->device, &scope) == 0) {
        sweep(binary->device);
        silo_gpu_leave(&scope);
    }
}

/* ---- loading ---- */

static const char *image_kind(const unsigned char *data, size_t size) {
    static const unsigned char elf[] = {0x7F, 'E', 'L', 'F'}, fat[] = {0x50, 0xED, 0x55, 0xBA};
    if (size >= sizeof elf && memcmp(data, elf, sizeof elf) == 0)
        return "an ELF object";
    if (size >= sizeof fat && memcmp(data, fat, sizeof fat) == 0)
        return "a fat binary";
    if (size >= 24 && memcmp(data, "__CLANG_OFFLOAD_BUNDLE__", 24) == 0)
        return "an offload bundle";
    for (size_t i = 0; i < size; i++)
        if (data[i] < 9)
            return "of no format that is known here";
    return "text, taken for PTX";
}

static const char *load_advice(int code) {
    switch (code) {
    case SILO_GPU_INVALID_IMAGE:
        return "the bytes are not code of this driver: damaged, or made for another kind of device";
    case SILO_GPU_NO_BINARY:
        return "it was compiled for another architecture: compile it for this device";
    case SILO_GPU_INVALID_PTX:
        return "the PTX is wrong or meant for a newer architecture";
    case SILO_GPU_NO_COMPILER:
        return "the driver has no PTX compiler here: load a cubin for this device";
    case SILO_GPU_NEWER_PTX:
        return "the PTX is newer than the driver: load a cubin for this device, or update the "
               "driver";
    case SILO_GPU_OUT_OF_MEMORY:
        return "the device has no memory left for code";
    default:
        return "";
    }
}

/* Returns the major version of the CUDA tools that assembled a cubin, or 0 if the cubin does not
 * state it. */
static int assembler_major(const char *image, size_t size) {
    static const char phrase[] = "Cuda compilation tools, release ";
    const size_t length = sizeof phrase - 1;
    for (size_t offset = 0; offset + length < size; offset++)
        if (image[offset] == phrase[0] && memcmp(image + offset, phrase, length) == 0)
            return atoi(image + offset + length);
    return 0;
}

static int fail_load(silo_error *error, const struct silo_gpu_device *device, const char *image,
                     size_t size, const char *log, int code) {
    const struct silo_gpu *gpu = device->gpu;
    char older[160];
    int length = (int)strlen(log);
    while (length > 0 && (log[length - 1] == '\n' || log[length - 1] == ' '))
        length--;
    const char *advice = load_advice(code);
    const int major = assembler_major(image, size), driver_major = gpu->version / 1000;
    if (major > driver_major) { /* within a major version, older drivers load newer cubins */
        snprintf(older, sizeof older,
                 "it was made by CUDA %d and the driver is for CUDA %d: update the driver, or "
                 "compile it with a toolkit of CUDA %d",
                 major, driver_major, driver_major);
        advice = older;
    }
    return silo_fail_long(error, silo_gpu_code(gpu, code, SILO_ERROR_LOAD), code,
                          "cannot load code (%zu bytes, %s) on %s:%d, which is %s (%s): %s (%d)"
                          "%s%s%s%.*s",
                          size, image_kind((const unsigned char *)image, size), gpu->name,
                          (int)device->index, device->name, device->arch,
                          gpu->driver->error_text(code), code, *advice ? "; " : "", advice,
                          length ? "\n" : "", length, log);
}

/* Loads `image` as a module and takes ownership of it. A zero byte follows its `size` bytes. */
static int load_on_gpu(struct silo_binary *binary, char *image, size_t size, silo_error *error) {
    struct silo_gpu_device *device = binary->device;
    struct silo_gpu_scope scope;
    char log[4096] = "";
    int code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        sweep(device);
        code = device->gpu->module_load(&binary->handle, image, log, sizeof log);
        silo_gpu_leave(&scope);
    }
    if (code != 0)
        fail_load(error, device, image, size, log, code);
    else if (device->gpu->reads_image)
        binary->image = image;
    if (binary->image == NULL)
        free(image);
    return code == 0 ? 0 : -1;
}

static int load_on_cpu(struct silo_binary *binary, const void *data, size_t size,
                       const char *directory, silo_error *error) {
    char message[512];
    binary->handle = silo_cpu_open(data, size, directory, message, sizeof message);
    return binary->handle != NULL
               ? 0
               : silo_fail(error, SILO_ERROR_LOAD, "cannot load the CPU code (%zu bytes): %s", size,
                           message);
}

static struct silo_binary *make(struct silo_gpu_device *device, silo_error *error) {
    struct silo_binary *binary = calloc(1, sizeof *binary); /* freed with its last reference */
    if (binary == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    binary->driver = device != NULL ? device->gpu->driver : &silo_cpu_driver;
    binary->device = device;
    binary->references = 1;
    return binary;
}

struct silo_binary *silo_binary_load(struct silo_gpu_device *device, const void *data, size_t size,
                                     const char *directory, silo_error *error) {
    struct silo_binary *binary = make(device, error);
    int result = -1;
    if (binary == NULL)
        return NULL;
    if (device == NULL) {
        result = load_on_cpu(binary, data, size, directory, error);
    } else {
        char *image = malloc(size + 1); /* freed below, or owned by the binary */
        if (image == NULL) {
            silo_fail_memory(error);
        } else {
            memcpy(image, data, size);
            image[size] = '\0'; /* PTX is zero-terminated */
            result = load_on_gpu(binary, image, size, error);
        }
    }
    if (result == 0)
        return binary;
    free(binary);
    return NULL;
}

struct silo_binary *silo_binary_at(const void *address, silo_error *error) {
    struct silo_binary *binary = make(NULL, error);
    if (binary != NULL)
        binary->address = address;
    return binary;
}

struct silo_binary *silo_binary_of_module(struct silo_gpu_device *device, void *module,
                                          silo_error *error) {
    struct silo_gpu_scope scope;
    struct silo_binary *binary;
    const int code = silo_gpu_enter(device, &scope);
    if (code != 0) {
        silo_gpu_fail(error, device->gpu, SILO_ERROR_LOAD, "cannot use a module", code);
        return NULL;
    }
    const int elsewhere = device->gpu->memory_type == SILO_DEVICE_CUDA && scope.previous != 0;
    silo_gpu_leave(&scope);
    if (elsewhere) {
        silo_fail(error, SILO_ERROR_LOAD,
                  "the module is of another context than the primary one of %s:%d",
                  device->gpu->name, (int)device->index);
        return NULL;
    }
    binary = make(device, error);
    if (binary != NULL) {
        binary->handle = module;
        binary->borrowed = 1;
    }
    return binary;
}

void silo_binary_retain(struct silo_binary *binary) {
    __atomic_fetch_add(&binary->references, 1, __ATOMIC_RELAXED);
}

void silo_binary_release(struct silo_binary *binary) {
    if (binary == NULL || __atomic_sub_fetch(&binary->references, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    if (binary->device == NULL) {
        if (binary->handle != NULL)
            silo_cpu_close(binary->handle);
    } else if (!binary->borrowed && !__atomic_load_n(&binary->captured, __ATOMIC_RELAXED) &&
               !silo_gpu_ending()) {
        retire(binary);
    }
    free(binary);
}

void silo_binary_launched_on(struct silo_binary *binary, void *stream) {
    int status = 0;
    if (!__atomic_load_n(&binary->captured, __ATOMIC_RELAXED) &&
        binary->device->gpu->stream_capturing(stream, &status) == 0 && status != 0)
        __atomic_store_n(&binary->captured, 1, __ATOMIC_RELAXED);
}

/* ---- functions ---- */

int silo_function_set_block(struct silo_function *function, const char *kernel,
                            const int64_t block[3], silo_error *error) {
    for (int axis = 0; axis < 3; axis++)
        if (block[axis] < 1 || block[axis] > UINT16_MAX)
            return silo_fail(
                error, SILO_ERROR_LIMIT,
                "%s: a block of %lld x %lld x %lld threads cannot be; there are 1 to %d along each "
                "axis",
                kernel, (long long)block[0], (long long)block[1], (long long)block[2], UINT16_MAX);
    for (int axis = 0; axis < 3; axis++)
        function->block[axis] = (uint16_t)block[axis];
    return 0;
}

static int refuse(silo_error *error, const struct silo_gpu_device *device, const char *kernel,
                  const char *text) {
    return silo_fail(error, SILO_ERROR_LIMIT, "%s on %s:%d (%s, %s): %s", kernel, device->gpu->name,
                     (int)device->index, device->name, device->arch, text);
}

static int check_limits(const struct silo_gpu_device *device, const char *kernel,
                        const struct silo_function *function, int static_shared, int max_threads,
                        silo_error *error) {
    char text[256];
    const uint64_t shared = (uint64_t)static_shared + function->shared_bytes;
    if (shared > (uint64_t)device->shared_optin) {
        snprintf(text, sizeof text,
                 "it needs %llu bytes of shared memory a block (%d static, %u dynamic), the device "
                 "has %d: use smaller tiles or fewer pipeline stages",
                 (unsigned long long)shared, static_shared, function->shared_bytes,
                 device->shared_optin);
        return refuse(error, device, kernel, text);
    }
    const uint16_t *block = function->block;
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (threads > (uint64_t)max_threads) {
        snprintf(
            text, sizeof text,
            "it is launched with %llu threads a block (%u x %u x %u), the code allows 1 to %d: "
            "use fewer warps",
            (unsigned long long)threads, block[0], block[1], block[2], max_threads);
        return refuse(error, device, kernel, text);
    }
    return 0;
}

static int check_launch(const struct silo_gpu_device *device, const char *kernel,
                        const struct silo_function *function, silo_error *error) {
    char text[256];
    uint64_t blocks = 1;
    for (int axis = 0; axis < 3; axis++) {
        if (function->block[axis] < 1 || function->block[axis] > device->block_limit[axis]) {
            snprintf(text, sizeof text,
                     "it is launched with blocks of %u x %u x %u threads, the device takes 1 to %d "
                     "along %c",
                     function->block[0], function->block[1], function->block[2],
                     device->block_limit[axis], 'x' + axis);
            return refuse(error, device, kernel, text);
        }
        blocks = function->cluster[axis] <= 16 ? blocks * function->cluster[axis] : 0;
        if (blocks == 0 || blocks > 16) {
            snprintf(text, sizeof text,
                     "a cluster of %u x %u x %u blocks cannot be; there are 1 to 16 blocks in one",
                     function->cluster[0], function->cluster[1], function->cluster[2]);
            return refuse(error, device, kernel, text);
        }
    }
    if (blocks > 1 && !device->cluster_launch)
        return refuse(error, device, kernel,
                      "it is launched in clusters, which this device has not");
    if (function->cooperative && !device->cooperative_launch)
        return refuse(error, device, kernel,
                      "it needs a cooperative launch, which this device has not");
    if (function->pdl && !device->programmatic_launch)
        return refuse(error, device, kernel,
                      "it needs programmatic dependent launch, which this device has not");
    return 0;
}

static void set_grid_limit(const struct silo_gpu_device *device, struct silo_function *function) {
    const uint32_t *cluster = function->cluster;
    if (cluster[0] == 1 && cluster[1] == 1 && cluster[2] == 1)
        /* If a cluster is a single block, it makes no difference whether grids count clusters or
         * blocks. */
        function->counts_blocks = 0;
    for (int axis = 0; axis < 3; axis++) {
        function->per_program[axis] = function->counts_blocks ? 1 : cluster[axis];
        uint64_t limit = (uint64_t)device->grid_limit[axis];
        if (device->gpu->counts_threads) {
            const uint64_t most = UINT32_MAX / function->block[axis];
            limit = limit < most ? limit : most;
        }
        function->grid_limit[axis] = (uint32_t)(limit / function->per_program[axis]);
    }
}

static int cpu_function(struct silo_binary *binary, const char *kernel, const char *entry,
                        struct silo_function *function, silo_error *error) {
    char message[512];
    if (binary->handle != NULL)
        function->handle = silo_cpu_symbol(binary->handle, entry, message, sizeof message);
    else
        memcpy(&function->handle, &binary->address, sizeof function->handle);
    if (function->handle == NULL)
        return silo_fail(error, SILO_ERROR_LOAD, "%s", message);
    function->name = kernel;
    function->device = NULL;
    function->device_index = 0;
    function->memory_type = SILO_DEVICE_CPU;
    /* The ABI of CPU kernels has 32-bit grid dimensions; each launch checks that their product is
     * below 2^63. */
    for (int axis = 0; axis < 3; axis++)
        function->grid_limit[axis] = UINT32_MAX;
    return 0;
}

/* Fills `function` for code on a GPU, whose context the caller has made current. Returns 0, -1 with
 * `error` filled, or the driver's error code. */
static int prepare(struct silo_binary *binary, const char *kernel, const char *entry,
                   struct silo_function *function, silo_error *error) {
    struct silo_gpu_device *device = binary->device;
    struct silo_gpu *gpu = device->gpu;
    int static_shared = 0, max_threads = 0;
    int code = gpu->module_function(&function->handle, binary->handle, entry);
    if (code == 0)
        code = gpu->function_limits(function->handle, &static_shared, &max_threads);
    if (code != 0)
        return code;
    if (check_limits(device, kernel, function, static_shared, max_threads, error) != 0)
        return -1;
    return gpu->function_prepare(device, function, static_shared);
}

static int gpu_function(struct silo_binary *binary, const char *kernel, const char *entry,
                        struct silo_function *function, silo_error *error) {
    struct silo_gpu_device *device = binary->device;
    struct silo_gpu *gpu = device->gpu;
    struct silo_gpu_scope scope;
    function->device = device;
    function->memory_type = gpu->memory_type;
    function->device_index = device->index;
    if (check_launch(device, kernel, function, error) != 0)
        return -1;
    int code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        code = prepare(binary, kernel, entry, function, error);
        silo_gpu_leave(&scope);
    }
    if (code < 0)
        return -1;
    if (code == SILO_GPU_NOT_FOUND)
        return silo_fail_driver(
            error, SILO_ERROR_LOAD, code,
            "%s: the code has no kernel '%s': give the symbol as it stands in the binary (mangled, "
            "for C++ without extern \"C\"; cuobjdump -symbols or nm lists them)",
            kernel, entry);
    if (code != 0)
        return silo_gpu_fail(error, gpu, SILO_ERROR_LOAD, "cannot prepare a kernel", code);
    set_grid_limit(device, function);
    return 0;
}

int silo_binary_function(struct silo_binary *binary, const char *kernel, const char *entry,
                         struct silo_function *function, silo_error *error) {
    return binary->device != NULL ? gpu_function(binary, kernel, entry, function, error)
                                  : cpu_function(binary, kernel, entry, function, error);
}

int64_t silo_binary_places(const struct silo_binary *binary, const struct silo_function *function,
                           struct silo_parameter_place *places, size_t room) {
    struct silo_gpu_device *device = binary->device;
    struct silo_gpu_scope scope;
    if (device == NULL || device->gpu->function_parameter == NULL ||
        silo_gpu_enter(device, &scope) != 0)
        return -1;
    size_t index = 0;
    int code = 0;
    for (; index < SILO_MOST_PLACES; index++) {
        struct silo_parameter_place place = {0, 0};
        code = device->gpu->function_parameter(function->handle, index, &place.offset, &place.size);
        if (code != 0)
            break;
        if (index < room)
            places[index] = place;
    }
    silo_gpu_leave(&scope);
    /* The driver reports an invalid value for an index past the last parameter, which ends the
     * list; any other code means that the list could not be read. */
    return code == SILO_GPU_INVALID_VALUE ? (int64_t)index : -1;
}
