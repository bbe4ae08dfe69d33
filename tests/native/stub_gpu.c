/* A libcuda and libamdhip64 for machines without a GPU: it loads, launches, copies and times as far
 * as the API can tell, refuses what a driver would refuse, and records what launches received.
 * Device memory is host memory. Python reads and steers it through the stub_* functions
 * (tests/gpu_stub.py). -DSTUB_OLD leaves out a function that old drivers do not have. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    NOT_FOUND = 500,
    CAPTURE_UNSUPPORTED = 900,
    INVALID_CLUSTER = 912,
};

/* ---- what tests see; the same layout stands in tests/gpu_stub.py ---- */

struct record {
    uint64_t count; /* launches of the function */
    uint32_t grid[3], block[3];
    uint32_t shared, attribute_count;
    uint64_t stream, context;
    int32_t device, cooperative;
    uint32_t attribute_ids[8];
    uint32_t attribute_values[8][3];
    uint32_t parameter_count;
    int32_t max_dynamic, non_portable, cache; /* what was asked of the function; -1: nothing */
    uint32_t sizes[MAX_PARAMETERS];
    uint8_t data[MAX_PARAMETERS][128];
};

typedef void callback(struct record *record, void **parameters);

/* Of a kernel's name, whatever module has it; kept to the end. */
struct entry {
    struct entry *next;
    char name[128];
    struct record record;
    uint64_t cost; /* virtual nanoseconds of a launch */
    callback *run;
    int static_shared, max_threads; /* -1: as in the code */
};

struct context {
    int device;
    bool primary;
};

struct module {
    uint32_t magic;
    int device;
    void *context; /* NULL: HIP */
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool recording = true;
static int watched = 1; /* recording, or some failure is set: launches look twice */
static struct failure failures[32];
static int failure_count;
static struct entry *entries;
static struct memory *memories;
static struct context primary[MAX_DEVICES], other[MAX_DEVICES];
static int retained[MAX_DEVICES];
static int live_modules, live_events, live_streams, unloads;
static uint64_t allocated, clock_ns = 1000;
static bool started, started_hip, capture_broken;
static uint64_t captures[8];
static int capture_status[8], capture_count;
static struct {
    int device, id, value;
} overrides[64];
static int override_count;
static uint64_t total_memory = 1ULL << 36;

static _Thread_local void *stack[16];
static _Thread_local int depth;
static _Thread_local int capture_mode;
static _Thread_local int hip_device, hip_error;

static int fails(const char *symbol) {
    int code = 0;
    if (LIKELY(!watched))
        return 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < failure_count && code == 0; i++)
        if (failures[i].times != 0 && strcmp(failures[i].symbol, symbol) == 0) {
            failures[i].times -= failures[i].times > 0;
            code = failures[i].code;
        }
    pthread_mutex_unlock(&lock);
    return code;
}

#define FAIL()                                                                                     \
    do {                                                                                           \
        int failed_ = fails(__func__);                                                             \
        if (failed_ != 0)                                                                          \
            return failed_;                                                                        \
    } while (0)

static struct entry *entry_of(const char *name) {
    pthread_mutex_lock(&lock);
    struct entry *entry = entries;
    while (entry != NULL && strcmp(entry->name, name) != 0)
        entry = entry->next;
    if (entry == NULL) {
        entry = calloc(1, sizeof *entry); /* kept to the end */
        snprintf(entry->name, sizeof entry->name, "%s", name);
        entry->cost = 1000;
        entry->static_shared = entry->max_threads = -1;
        entry->record.max_dynamic = entry->record.non_portable = entry->record.cache = -1;
        entry->next = entries;
        entries = entry;
    }
    pthread_mutex_unlock(&lock);
    return entry;
}

/* ---- steering ---- */

API void stub_record(int on) {
    recording = on != 0;
    watched = recording || failure_count > 0;
}

API void stub_fail(const char *symbol, int code, int times) {
    pthread_mutex_lock(&lock);
    for (int i = failure_count - 1; i >= 0; i--) /* make room: all, or those that are spent */
        if (symbol == NULL || failures[i].times == 0)
            failures[i] = failures[--failure_count];
    if (symbol != NULL && failure_count < 32) {
        snprintf(failures[failure_count].symbol, 64, "%s", symbol);
        failures[failure_count].code = code;
        failures[failure_count++].times = times;
    }
    watched = recording || failure_count > 0;
    pthread_mutex_unlock(&lock);
}

API struct record *stub_last(const char *name) {
    return &entry_of(name)->record;
}

API void stub_params(const char *name, int count, const uint32_t *sizes) {
    struct record *record = &entry_of(name)->record;
    record->parameter_count = (uint32_t)count;
    memcpy(record->sizes, sizes, (size_t)count * sizeof *sizes);
}

API void stub_function(const char *name, int static_shared, int max_threads) {
    struct entry *entry = entry_of(name);
    entry->static_shared = static_shared;
    entry->max_threads = max_threads;
}

API void stub_cost(const char *name, uint64_t nanoseconds) {
    entry_of(name)->cost = nanoseconds;
}

API void stub_run(const char *name, callback *run) {
    entry_of(name)->run = run;
}

API void stub_attribute(int device, int id, int value) {
    if (override_count < 64) {
        overrides[override_count].device = device;
        overrides[override_count].id = id;
        overrides[override_count++].value = value;
    }
}

API void stub_memory(uint64_t bytes) {
    total_memory = bytes;
}

/* Status 0 ends the capture. */
API void stub_capture(uint64_t stream, int status) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < capture_count; i++)
        if (captures[i] == stream) {
            captures[i] = captures[--capture_count];
            capture_status[i] = capture_status[capture_count];
        }
    if (status != 0 && capture_count < 8) {
        captures[capture_count] = stream;
        capture_status[capture_count++] = status;
    }
    pthread_mutex_unlock(&lock);
}

static void add_memory(uint64_t address, uint64_t size, enum kind kind, int device, bool owned) {
    struct memory *memory = malloc(sizeof *memory);
    *memory = (struct memory){memories, address, size, kind, device, owned};
    memories = memory;
}

API void stub_register(uint64_t address, uint64_t size, int kind, int device) {
    pthread_mutex_lock(&lock);
    add_memory(address, size, (enum kind)kind, device, false);
    pthread_mutex_unlock(&lock);
}

API void stub_advance(uint64_t nanoseconds) {
    __atomic_add_fetch(&clock_ns, nanoseconds, __ATOMIC_RELAXED);
}

API void *stub_other_context(int device) {
    other[device].device = device;
    return &other[device];
}

API void *stub_primary(int device) {
    return &primary[device];
}

enum { MODULES, ALLOCATIONS, BYTES, CONTEXTS, EVENTS, STREAMS, UNLOADS, BROKEN, STARTED };

API int64_t stub_count(int what) {
    int64_t count = 0;
    pthread_mutex_lock(&lock);
    switch (what) {
    case MODULES:
        count = live_modules;
        break;
    case ALLOCATIONS:
        for (struct memory *memory = memories; memory != NULL; memory = memory->next)
            count += memory->owned;
        break;
    case BYTES:
        count = (int64_t)allocated;
        break;
    case CONTEXTS:
        for (int i = 0; i < MAX_DEVICES; i++)
            count += retained[i];
        break;
    case EVENTS:
        count = live_events;
        break;
    case STREAMS:
        count = live_streams;
        break;
    case UNLOADS:
        count = unloads;
        break;
    case BROKEN:
        count = capture_broken;
        break;
    case STARTED:
        count = started || started_hip;
        break;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- common parts ---- */

static int devices(void) {
    const char *text = getenv("STUB_DEVICES");
    const int count = text != NULL ? atoi(text) : 1;
    return count < 0 ? 0 : count > MAX_DEVICES ? MAX_DEVICES : count;
}

static bool overridden(int *value, int id, int device) {
    for (int i = override_count - 1; i >= 0; i--)
        if (overrides[i].id == id && overrides[i].device == device) {
            *value = overrides[i].value;
            return true;
        }
    return false;
}

/* What a driver forbids while someone captures. */
static int forbidden(bool always) {
    int code = 0;
    pthread_mutex_lock(&lock);
    if (capture_count > 0 && (always || capture_mode != 2)) {
        capture_broken = true;
        code = CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static struct memory **find_memory(uint64_t address) {
    struct memory **link = &memories;
    while (*link != NULL &&
           !(address >= (*link)->address && address - (*link)->address < (*link)->size))
        link = &(*link)->next;
    return link;
}

static int allocate(uint64_t *address, size_t bytes, enum kind kind, int device) {
    if (bytes == 0)
        return INVALID_VALUE;
    if (kind == DEVICE && (bytes > total_memory || allocated + bytes > total_memory))
        return OUT_OF_MEMORY;
    void *memory = NULL;
    if (posix_memalign(&memory, 512, bytes) != 0)
        return OUT_OF_MEMORY;
    memset(memory, 0xCD, bytes); /* nobody may count on zeros */
    pthread_mutex_lock(&lock);
    add_memory((uint64_t)(uintptr_t)memory, bytes, kind, device, true);
    allocated += bytes;
    pthread_mutex_unlock(&lock);
    *address = (uint64_t)(uintptr_t)memory;
    return 0;
}

static int release(uint64_t address) {
    pthread_mutex_lock(&lock);
    struct memory **link = find_memory(address);
    struct memory *memory = *link;
    int code = INVALID_VALUE;
    if (memory != NULL && memory->owned && memory->address == address) {
        *link = memory->next;
        allocated -= memory->size;
        free((void *)(uintptr_t)address);
        free(memory);
        code = 0;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* 0, or where the memory is. */
static int find_kind(uint64_t address, int *device) {
    pthread_mutex_lock(&lock);
    const struct memory *memory = *find_memory(address);
    const int kind = memory != NULL ? (int)memory->kind : 0;
    *device = memory != NULL ? memory->device : -2;
    pthread_mutex_unlock(&lock);
    return kind;
}

static int stream_status(uint64_t stream) {
    int status = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < capture_count; i++)
        if (captures[i] == stream)
            status = capture_status[i];
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- code: ELF objects of either vendor, or text with lines such as
 * "// stub: params=8,8,4 static_shared=100 max_threads=256 arch=sm_80 error=1" ---- */

static const char *directive(const struct module *module, const char *key) {
    if (module->elf)
        return NULL;
    const char *line = strstr(module->image, "// stub:");
    const char *found = line != NULL ? strstr(line, key) : NULL;
    return found != NULL ? found + strlen(key) : NULL;
}

static const Elf64_Shdr *section(const struct module *module, const char *name) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)module->image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(module->image + header->e_shoff);
    const char *strings = module->image + sections[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; i++)
        if (strcmp(strings + sections[i].sh_name, name) == 0)
            return &sections[i];
    return NULL;
}

/* The attributes that NVIDIA's assembler writes beside each kernel. */
static void read_cubin(struct function *function) {
    const struct module *module = function->module;
    char name[192];
    snprintf(name, sizeof name, ".nv.shared.%s", function->entry->name);
    const Elf64_Shdr *shared = section(module, name);
    if (shared != NULL)
        function->static_shared = (int)shared->sh_size;
    snprintf(name, sizeof name, ".nv.info.%s", function->entry->name);
    const Elf64_Shdr *info = section(module, name);
    if (info == NULL)
        return;
    const uint8_t *at = (const uint8_t *)module->image + info->sh_offset;
    const uint8_t *end = at + info->sh_size;
    while (at + 4 <= end) {
        const uint16_t value = (uint16_t)(at[2] | at[3] << 8);
        const uint8_t *data = at + 4;
        uint32_t words[3] = {0, 0, 0};
        if (at[0] == 4 && value >= 12)
            memcpy(words, data, sizeof words);
        if (at[0] == 4 && at[1] == 0x17) { /* one parameter: ordinal, size */
            const uint32_t ordinal = words[1] & 0xFFFF;
            if (ordinal < MAX_PARAMETERS) {
                function->sizes[ordinal] = words[2] >> 18;
                if (ordinal + 1 > function->count)
                    function->count = ordinal + 1;
            }
        } else if (at[0] == 4 && (at[1] == 0x05 || at[1] == 0x10)) { /* largest, or only, block */
            function->max_threads = (int)(words[0] * words[1] * words[2]);
        }
        at = data + (at[0] == 4 ? value : 0);
    }
}

static int load(struct module **out, const void *image, int machine, int device, void *context,
                char *log, size_t log_bytes) {
    struct module module = {.magic = 0x5750u, .device = device, .context = context};
    const Elf64_Ehdr *header = image;
    if (memcmp(image, ELFMAG, SELFMAG) == 0) {
        module.elf = true;
        module.size = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
        if (header->e_machine != machine)
            return INVALID_IMAGE;
    } else {
        module.size = strlen(image);
        if (module.size < 4 || (memcmp(image, "//", 2) != 0 && memcmp(image, ".ver", 4) != 0))
            return INVALID_IMAGE;
    }
    module.image = malloc(module.size + 1); /* owned by the module */
    memcpy(module.image, image, module.size);
    module.image[module.size] = '\0';
    const char *arch = directive(&module, "arch=");
    int code = 0;
    if (arch != NULL && strncmp(arch, "sm_90", 5) != 0)
        code = NO_BINARY;
    if (directive(&module, "error=") != NULL) {
        code = INVALID_PTX;
        if (log != NULL)
            snprintf(log, log_bytes,
                     "ptxas application ptx input, line 7; error   : Unknown opcode");
    }
    if (code != 0) {
        free(module.image);
        return code;
    }
    *out = malloc(sizeof **out);
    **out = module;
    pthread_mutex_lock(&lock);
    live_modules++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int unload(struct module *module) {
    if (module->magic != 0x5750u)
        abort(); /* unloaded twice */
    module->magic = 0;
    pthread_mutex_lock(&lock);
    live_modules--;
    unloads++;
    pthread_mutex_unlock(&lock);
    while (module->functions != NULL) {
        struct function *next = module->functions->next;
        free(module->functions);
        module->functions = next;
    }
    free(module->image);
    free(module);
    return 0;
}

static int find_function(void **out, struct module *module, const char *name) {
    const size_t length = strlen(name) + (module->elf ? 1 : 0); /* an ELF name ends with a zero */
    if (memmem(module->image, module->size, name, length) == NULL)
        return NOT_FOUND;
    struct function *function = calloc(1, sizeof *function); /* owned by the module */
    function->module = module;
    function->entry = entry_of(name);
    function->max_threads = 1024;
    function->max_dynamic = function->non_portable = -1;
    if (module->elf && ((Elf64_Ehdr *)module->image)->e_machine == 190)
        read_cubin(function);
    const char *text = directive(module, "static_shared=");
    if (text != NULL)
        function->static_shared = atoi(text);
    text = directive(module, "max_threads=");
    if (text != NULL)
        function->max_threads = atoi(text);
    text = directive(module, "params=");
    while (text != NULL && *text >= '0' && *text <= '9' && function->count < MAX_PARAMETERS) {
        function->sizes[function->count++] = (uint32_t)strtoul(text, (char **)&text, 10);
        text += *text == ',';
    }
    if (function->entry->static_shared >= 0)
        function->static_shared = function->entry->static_shared;
    if (function->entry->max_threads >= 0)
        function->max_threads = function->entry->max_threads;
    pthread_mutex_lock(&lock);
    if (function->count > 0) {
        function->entry->record.parameter_count = function->count;
        memcpy(function->entry->record.sizes, function->sizes, sizeof function->sizes);
    }
    function->next = module->functions;
    module->functions = function;
    pthread_mutex_unlock(&lock);
    *out = function;
    return 0;
}

/* ---- launching ---- */

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

static int check(const struct config *config, const struct function *function) {
    const uint64_t threads = (uint64_t)config->block[0] * config->block[1] * config->block[2];
    const uint32_t last = function->module->context != NULL ? 65535 : 65536;
    uint32_t blocks = 1;
    if (config->grid[0] == 0 || config->grid[1] == 0 || config->grid[2] == 0 || threads == 0 ||
        threads > (uint64_t)function->max_threads || config->grid[0] > INT32_MAX ||
        config->grid[1] > last || config->grid[2] > last)
        return INVALID_VALUE;
    for (uint32_t i = 0; i < config->attribute_count; i++)
        if (config->attributes[i].id == 4) {
            const uint32_t *cluster = config->attributes[i].values;
            for (int axis = 0; axis < 3; axis++) {
                if (cluster[axis] == 0 || config->grid[axis] % cluster[axis] != 0)
                    return INVALID_CLUSTER;
                blocks *= cluster[axis];
            }
        }
    if (blocks > (function->non_portable == 1 ? 16U : 8U))
        return INVALID_CLUSTER;
    if (function->module->context != NULL && config->shared > 0 &&
        (uint64_t)config->shared + (uint64_t)function->static_shared > 49152 &&
        (int64_t)config->shared > function->max_dynamic)
        return INVALID_VALUE;
    return 0;
}

static int record_launch(const struct config *config, struct function *function, void **parameters,
                         void *context, int device, int cooperative) {
    const int code = check(config, function);
    if (code != 0)
        return code;
    struct entry *entry = function->entry;
    struct record *record = &entry->record;
    pthread_mutex_lock(&lock);
    record->count++;
    memcpy(record->grid, config->grid, sizeof record->grid);
    memcpy(record->block, config->block, sizeof record->block);
    record->shared = config->shared;
    record->attribute_count = config->attribute_count;
    record->stream = (uint64_t)(uintptr_t)config->stream;
    record->context = (uint64_t)(uintptr_t)context;
    record->device = device;
    record->cooperative = cooperative;
    for (uint32_t i = 0; i < config->attribute_count && i < 8; i++) {
        record->attribute_ids[i] = config->attributes[i].id;
        memcpy(record->attribute_values[i], config->attributes[i].values, 12);
    }
    for (uint32_t i = 0; i < record->parameter_count; i++)
        memcpy(record->data[i], parameters[i], record->sizes[i] > 128 ? 128 : record->sizes[i]);
    clock_ns += entry->cost;
    callback *run = entry->run;
    pthread_mutex_unlock(&lock);
    if (run != NULL)
        run(record, parameters);
    return 0;
}

/* ---- libcuda ---- */

static void *current(void) {
    return depth > 0 ? stack[depth - 1] : NULL;
}

static int current_index(void) {
    const struct context *context = current();
    return context != NULL ? context->device : -1;
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
    *version = 13000;
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
        [1] = 1024,    [5] = INT32_MAX, [6] = 65535, [7] = 65535,   [8] = 49152, [10] = 32,
        [12] = 65536,  [13] = 1980000,  [16] = 132,  [33] = 0x1A,   [34] = 0,    [36] = 2619000,
        [37] = 5120,   [38] = 52428800, [39] = 2048, [50] = 0,      [75] = 9,    [76] = 0,
        [81] = 233472, [82] = 65536,    [95] = 1,    [97] = 232448, [120] = 1,
    };
    FAIL();
    if (!overridden(value, id, device))
        *value = id >= 0 && id < 128 ? known[id] : 0;
    return 0;
}

API int cuDevicePrimaryCtxRetain(void **context, int device) {
    FAIL();
    primary[device].device = device;
    primary[device].primary = true;
    pthread_mutex_lock(&lock);
    retained[device]++;
    pthread_mutex_unlock(&lock);
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
    return forbidden(true);
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
    return code != 0 ? code : release(address);
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
    pthread_mutex_lock(&lock);
    live_streams++;
    pthread_mutex_unlock(&lock);
    return 0;
}

API int cuStreamDestroy_v2(void *stream) {
    NEED_CONTEXT();
    free(stream);
    pthread_mutex_lock(&lock);
    live_streams--;
    pthread_mutex_unlock(&lock);
    return 0;
}

API int cuStreamSynchronize(void *stream) {
    NEED_CONTEXT();
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
    pthread_mutex_lock(&lock);
    live_events++;
    pthread_mutex_unlock(&lock);
    return 0;
}

API int cuEventDestroy_v2(struct event *event) {
    FAIL();
    free(event);
    pthread_mutex_lock(&lock);
    live_events--;
    pthread_mutex_unlock(&lock);
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

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "SUCCESS", "no error"},
    {INVALID_VALUE, "INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY, "NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_PTX, "INVALID_PTX", "a PTX JIT compilation failed"},
    {INVALID_HANDLE, "INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "NOT_FOUND", "named symbol not found"},
    {700, "ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "LAUNCH_FAILED", "unspecified launch failure"},
    {803, "SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {CAPTURE_UNSUPPORTED, "STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {INVALID_CLUSTER, "INVALID_CLUSTER_SIZE", "cluster misconfiguration"},
};

static int find_error(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return (int)i;
    return -1;
}

API int cuGetErrorName(int code, const char **name) {
    static _Thread_local char text[64];
    const int found = find_error(code);
    snprintf(text, sizeof text, "CUDA_ERROR_%s", found >= 0 ? errors[found].name : "");
    *name = found >= 0 ? text : NULL;
    return found >= 0 ? 0 : INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **text) {
    const int found = find_error(code);
    *text = found >= 0 ? errors[found].text : NULL;
    return found >= 0 ? 0 : INVALID_VALUE;
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

/* ---- libamdhip64 ---- */

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
    const int found = find_error(code);
    snprintf(text, sizeof text, "hipError%s", found >= 0 ? errors[found].name : "Unknown");
    return text;
}

API const char *hipGetErrorString(int code) {
    const int found = find_error(code);
    return found >= 0 ? errors[found].text : "unknown error";
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
        [5] = 2100000, [10] = 1,     [19] = 4194304, [23] = 9,    [29] = INT32_MAX, [30] = 65536,
        [31] = 65536,  [56] = 1024,  [57] = 2048,    [59] = 8192, [60] = 1300000,   [61] = 4,
        [63] = 304,    [67] = 5,     [68] = 0,       [69] = 0,    [71] = 65536,     [72] = 131072,
        [74] = 65536,  [75] = 65536, [76] = 65536,   [87] = 64,
    };
    HIP_FAIL();
    if (!overridden(value, id, device))
        *value = id >= 0 && id < 128 ? known[id] : 0;
    return 0;
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
    if ((uint64_t)config->grid[0] * config->block[0] > UINT32_MAX)
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
    pthread_mutex_lock(&lock);
    live_streams++;
    pthread_mutex_unlock(&lock);
    return 0;
}

API int hipStreamDestroy(void *stream) {
    HIP_FAIL();
    free(stream);
    pthread_mutex_lock(&lock);
    live_streams--;
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    live_events++;
    pthread_mutex_unlock(&lock);
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
