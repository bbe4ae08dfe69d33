#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stub_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
bool recording = true, started, started_hip;
int watched = 1;
struct context primary[MAX_DEVICES];
int retained[MAX_DEVICES];
int live_modules, live_events, live_streams, unloads, capture_count;
uint64_t clock_ns = 1000, total_memory = 1ULL << 36;
_Thread_local int capture_mode;

static struct failure failures[32];
static int failure_count;
static struct entry *entries;
static struct memory *memories;
static struct context other[MAX_DEVICES];
static uint64_t allocated;
static bool capture_broken;
static uint64_t captures[8];
static int capture_status[8];
static struct {
    int device, id, value;
} overrides[64];
static int override_count;

int fails(const char *symbol) {
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

struct entry *entry_of(const char *name) {
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

void break_context(int code) {
    static const char *const symbols[] = {"cuEventQuery", "cuGraphLaunch", "cuStreamSynchronize",
                                          "cuMemAlloc_v2", "cuLaunchKernelEx"};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        stub_fail(symbols[i], code, -1);
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

int devices(void) {
    const char *text = getenv("STUB_DEVICES");
    const int count = text != NULL ? atoi(text) : 1;
    return count < 0 ? 0 : count > MAX_DEVICES ? MAX_DEVICES : count;
}

bool overridden(int *value, int id, int device) {
    for (int i = override_count - 1; i >= 0; i--)
        if (overrides[i].id == id && overrides[i].device == device) {
            *value = overrides[i].value;
            return true;
        }
    return false;
}

/* What a driver forbids while someone captures. */
int forbidden(bool always) {
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

int allocate(uint64_t *address, size_t bytes, enum kind kind, int device) {
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

void free_memory(size_t *available, size_t *total) {
    pthread_mutex_lock(&lock);
    *available = total_memory - allocated;
    *total = total_memory;
    pthread_mutex_unlock(&lock);
}

int release(uint64_t address) {
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
int find_kind(uint64_t address, int *device) {
    pthread_mutex_lock(&lock);
    const struct memory *memory = *find_memory(address);
    const int kind = memory != NULL ? (int)memory->kind : 0;
    *device = memory != NULL ? memory->device : -2;
    pthread_mutex_unlock(&lock);
    return kind;
}

int stream_status(uint64_t stream) {
    int status = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < capture_count; i++)
        if (captures[i] == stream)
            status = capture_status[i];
    pthread_mutex_unlock(&lock);
    return status;
}

void count_live(int *counter, int change) {
    pthread_mutex_lock(&lock);
    *counter += change;
    pthread_mutex_unlock(&lock);
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

const char *error_name(int code, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *text = errors[i].text;
            return errors[i].name;
        }
    return NULL;
}
