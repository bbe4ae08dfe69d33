/* A libcuda and libamdhip64 for machines without a GPU: it loads, launches, copies and times as far
 * as the API can tell, refuses what a driver would refuse, and records what launches received.
 * Device memory is host memory. Python reads and steers it through the stub_* functions
 * (tests/samples/gpu_stub.py). -DSTUB_OLD leaves out a function that old drivers do not have.
 *
 * stub_gpu.c: state and steering; stub_code.c: modules and launches; stub_graph.c: graphs of
 * CUDA; stub_cuda.c and stub_hip.c: the other functions of the drivers. */
#ifndef STUB_GPU_H
#define STUB_GPU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define MAX_DEVICES 8
#define MAX_PARAMETERS 256

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_SUPPORTED = 801,
    NOT_FOUND = 500,
    CAPTURE_UNSUPPORTED = 900,
    INVALID_CLUSTER = 912,
};

/* ---- what tests see; the same layout stands in tests/samples/gpu_stub.py ---- */

struct record {
    uint64_t count; /* number of launches of the function so far */
    uint32_t grid[3], block[3];
    uint32_t shared, attribute_count;
    uint64_t stream, context;
    int32_t device, cooperative;
    uint32_t attribute_ids[8];
    uint32_t attribute_values[8][3];
    uint32_t parameter_count;
    /* attributes that were set for the function; -1: not set */
    int32_t max_dynamic, non_portable, cache;
    uint32_t sizes[MAX_PARAMETERS];
    uint8_t data[MAX_PARAMETERS][128];
};

typedef void callback(struct record *record, void **parameters);

/* A kernel name, with the state that all modules with such a kernel share. Kept until the process
 * ends. */
struct entry {
    struct entry *next;
    char name[128];
    struct record record;
    uint64_t cost; /* nanoseconds that a launch takes on the virtual clock */
    callback *run;
    int static_shared, max_threads; /* -1: the values of the code */
};

struct context {
    int device;
    bool primary;
};

struct module {
    uint32_t magic;
    int device;
    void *context; /* NULL for a module of HIP */
    char *image;
    size_t size;
    bool elf;
    struct function *functions;
};

struct function {
    struct function *next;
    struct module *module;
    struct entry *entry;
    int static_shared, max_threads;
    int max_dynamic, non_portable;
    bool described; /* whether `count` and `sizes` of the parameters are known */
    uint32_t count, sizes[MAX_PARAMETERS];
};

enum kind { DEVICE = 2, PINNED = 1, MANAGED = 3 };

struct memory {
    struct memory *next;
    uint64_t address, size;
    enum kind kind;
    int device;
    bool owned;
};

struct event {
    uint64_t time;
    bool recorded;
    int device;
};

struct failure {
    char symbol[64];
    int code, times;
};

struct attribute {
    uint32_t id, padding;
    uint32_t values[16];
};

struct config {
    uint32_t grid[3], block[3], shared;
    void *stream;
    const struct attribute *attributes;
    uint32_t attribute_count;
};

#pragma GCC visibility push(hidden)

/* The stub's state. All variables but the first are guarded by `lock`. */
extern int watched; /* whether launches must be recorded or may have to fail; if not, they skip
                       these checks */
extern pthread_mutex_t lock;
extern bool recording, started, started_hip;
extern struct context primary[MAX_DEVICES];
extern int retained[MAX_DEVICES];
extern int live_modules, live_events, live_streams, unloads, capture_count;
extern uint64_t clock_ns, total_memory;
extern _Thread_local int capture_mode;

int fails(const char *symbol);
struct entry *entry_of(const char *name);
int devices(void);
bool overridden(int *value, int id, int device);
int forbidden(bool always); /* the error of a function that a driver forbids while a thread
                               captures; else 0 */
void free_memory(size_t *available, size_t *total);
int allocate(uint64_t *address, size_t bytes, enum kind kind, int device);
int release(uint64_t address);
/* kind of the memory at an address, and its device; 0 if unknown */
int find_kind(uint64_t address, int *device);
int stream_status(uint64_t stream);
void count_live(int *counter, int change);
const char *error_name(int code, const char **text); /* NULL if the code is unknown */

int load(struct module **out, const void *image, int machine, int device, void *context, char *log,
         size_t log_bytes);
int unload(struct module *module);
int find_function(void **out, struct module *module, const char *name);
int record_launch(const struct config *config, struct function *function, void **parameters,
                  void *context, int device, int cooperative);

int current_context(void **context, int *device); /* of CUDA; nonzero if no context is current */
void break_context(int code);                     /* makes the next calls fail with `code` */
int run_queued(int count); /* makes `count` launches of graphs that were held back (-1: all);
                              returns the first error */

#pragma GCC visibility pop

#define FAIL()                                                                                     \
    do {                                                                                           \
        int failed_ = fails(__func__);                                                             \
        if (failed_ != 0)                                                                          \
            return failed_;                                                                        \
    } while (0)

#endif
