/* The floor of a launch: a C loop over cuLaunchKernelEx with everything made beforehand. Built by
 * floor.py, without headers of a vendor. Functions return 0 or the driver's error code; -1 if the
 * driver's library lacks a function. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* CUlaunchConfig of the driver's stable ABI. */
struct config {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    void *stream;
    void *attributes;
    uint32_t attribute_count;
};

_Static_assert(sizeof(struct config) == 56, "CUlaunchConfig");

enum { MAX_PARAMETERS = 128 };

static int (*init)(unsigned);
static int (*device_get)(int *, int);
static int (*retain)(void **, int);
static int (*set_current)(void *);
static int (*load)(void **, const void *);
static int (*get_function)(void **, void *, const char *);
static int (*launch)(const struct config *, void *, void **, void **);
static int (*synchronize)(void);

/* Finds a function of the driver. dlsym returns a data pointer; its bits are copied, because that
 * is the portable way to get a function pointer. */
static int resolve(void *library, const char *name, void *slot) {
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Opens the driver and makes the primary context of a device current. Both stay until the process
 * ends. */
int floor_open(const char *path, int index) {
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL || !resolve(library, "cuInit", &init) ||
        !resolve(library, "cuDeviceGet", &device_get) ||
        !resolve(library, "cuDevicePrimaryCtxRetain", &retain) ||
        !resolve(library, "cuCtxSetCurrent", &set_current) ||
        !resolve(library, "cuModuleLoadData", &load) ||
        !resolve(library, "cuModuleGetFunction", &get_function) ||
        !resolve(library, "cuLaunchKernelEx", &launch) ||
        !resolve(library, "cuCtxSynchronize", &synchronize))
        return -1;
    void *context;
    int device, code = init(0);
    if (code == 0)
        code = device_get(&device, index);
    if (code == 0)
        code = retain(&context, device);
    return code ? code : set_current(context);
}

/* Loads a kernel, which stays loaded until the process ends. */
int floor_load(const void *image, const char *entry, void **function) {
    void *module;
    int code = load(&module, image);
    return code ? code : get_function(function, module, entry);
}

int floor_synchronize(void) {
    return synchronize();
}

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Makes `launches` launches. Stores in `out` the nanoseconds of wall time and of this thread's CPU
 * time. `values` has an 8-byte slot for each of the kernel's `count` parameters. */
int floor_burst(void *function, const uint32_t grid[3], uint32_t threads, uint32_t shared_bytes,
                void *stream, uint64_t *values, uint32_t count, uint32_t launches,
                uint64_t out[2]) {
    void *params[MAX_PARAMETERS];
    if (count > MAX_PARAMETERS)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        params[i] = &values[i];
    const struct config config = {
        .grid = {grid[0], grid[1], grid[2]},
        .block = {threads, 1, 1},
        .shared_bytes = shared_bytes,
        .stream = stream,
    };
    int code = 0;
    const uint64_t cpu = now(CLOCK_THREAD_CPUTIME_ID);
    const uint64_t wall = now(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < launches && code == 0; i++)
        code = launch(&config, function, params, NULL);
    out[0] = now(CLOCK_MONOTONIC) - wall;
    out[1] = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return code;
}
