/* Loaded code, its functions and scratch memory without Python, on the stub driver: argv has the
 * stub's path, "cuda" or "hip", and perhaps "threads". For the sanitizers; says "done" where all is
 * right. */
#include "binary.h"
#include "cpu_driver.h"
#include "cuda_driver.h"
#include "gpu_forked.h"
#include "hip_driver.h"
#include "scratch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s; last error %d: %s\n", __LINE__, #condition, error.code,  \
                    error.text);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { MODULES, ALLOCATIONS };

static silo_error error;
static void *stub;
static int64_t (*stub_count)(int what);
static void (*stub_fail)(const char *symbol, int code, int times);
static void (*stub_capture)(uint64_t stream, int status);
static void (*stub_memory)(uint64_t bytes);
static bool cuda;

static void *symbol(const char *name) {
    void *found = dlsym(stub, name);
    if (found == NULL) {
        fprintf(stderr, "the stub has no %s\n", name);
        exit(1);
    }
    return found;
}

static bool failed(int code, const char *text) {
    const bool as_said = error.code == code && strstr(error.text, text) != NULL;
    if (!as_said)
        fprintf(stderr, "expected %d with \"%s\"; got %d: %s\n", code, text, error.code,
                error.text);
    silo_error_clear(&error);
    return as_said;
}

/* ---- drivers and devices ---- */

static struct silo_gpu_device *check_device(const char *path) {
    CHECK(silo_gpu_named("vulkan", &error) == NULL);
    CHECK(failed(SILO_ERROR_NO_DRIVER, "there is no GPU driver 'vulkan'"));
    struct silo_gpu *gpu = silo_gpu_named(cuda ? "cuda" : "hip", &error);
    CHECK(gpu != NULL && silo_gpu_opened(gpu, 0) == NULL);
    CHECK(silo_gpu_open(gpu, "/no/such/library.so", &error) == -1);
    CHECK(failed(SILO_ERROR_NO_DRIVER, "name it with silo_options."));
    CHECK(silo_gpu_open(gpu, path, NULL) == 0 && silo_gpu_open(gpu, path, &error) == 0);
    CHECK(silo_gpu_open(gpu, "/another.so", &error) == -1);
    CHECK(failed(SILO_ERROR_NO_DRIVER, "cannot be opened from '/another.so' as well"));
    CHECK(silo_gpu_device(gpu, 9, &error) == NULL);
    CHECK(failed(SILO_ERROR_NO_DEVICE, "there is no device"));
    CHECK(silo_gpu_device(gpu, -1, NULL) == NULL);
    struct silo_gpu_facts facts;
    CHECK(silo_gpu_describe(gpu, 0, &facts, &error) == 0 && facts.sm_count > 0);
    struct silo_gpu_device *device = silo_gpu_device(gpu, 0, &error);
    CHECK(device != NULL && silo_gpu_opened(gpu, 0) == device);
    CHECK(silo_gpu_opened(gpu, SILO_MAX_GPUS) == NULL && silo_gpu_opened(gpu, -1) == NULL);
    return device;
}

static void check_codes(const struct silo_gpu *gpu) {
    CHECK(silo_gpu_fail(&error, gpu, SILO_ERROR_LAUNCH, "x", 1) == -1 && error.driver_code == 1);
    CHECK(failed(SILO_ERROR_LAUNCH, "x: "));
    silo_gpu_fail(&error, gpu, SILO_ERROR_LAUNCH, "x", SILO_GPU_LAUNCH_FAILED);
    CHECK(failed(SILO_ERROR_FAULT, "(719)"));
    silo_gpu_fail(&error, gpu, SILO_ERROR_LAUNCH, "x", SILO_GPU_OUT_OF_MEMORY);
    CHECK(failed(SILO_ERROR_MEMORY, "(2)"));
    silo_gpu_fail(NULL, gpu, SILO_ERROR_LAUNCH, "x", SILO_GPU_OUT_OF_MEMORY);
}

/* ---- code ---- */

static struct silo_binary *load(struct silo_gpu_device *device, const char *text) {
    return silo_binary_load(device, text, strlen(text), NULL, &error);
}

static const char add[] = "// stub: params=8,4\n.visible .entry add()";

static const struct silo_function usual = {
    .block = {128, 1, 1}, .cluster = {1, 1, 1}, .scratch_align = 1, .profile_align = 1};

static void check_functions(struct silo_binary *binary) {
    struct silo_function function = usual;
    CHECK(silo_binary_function(binary, "k", "add", &function, &error) == 0);
    CHECK(function.handle != NULL && function.device == binary->device);
    CHECK(function.grid_limit[0] > 0);
    function = usual;
    CHECK(silo_binary_function(binary, "k", "none", &function, &error) == -1);
    CHECK(failed(SILO_ERROR_LOAD, "k: the code has no kernel 'none'"));
    function = usual;
    function.shared_bytes = 1 << 24;
    CHECK(silo_binary_function(binary, "k", "add", &function, &error) == -1);
    CHECK(failed(SILO_ERROR_LIMIT, "bytes of shared memory a block"));
    function = usual;
    function.block[0] = 0; /* never set */
    CHECK(silo_binary_function(binary, "k", "add", &function, &error) == -1);
    CHECK(failed(SILO_ERROR_LIMIT, "blocks of 0 x 1 x 1 threads"));
    function = usual;
    function.cluster[1] = 32;
    CHECK(silo_binary_function(binary, "k", "add", &function, NULL) == -1);
    const int64_t block[3] = {1, 70000, 1};
    CHECK(silo_function_set_block(&function, "k", block, &error) == -1);
    CHECK(failed(SILO_ERROR_LIMIT, "k: a block of 1 x 70000 x 1 threads cannot be"));
    stub_fail(cuda ? "cuModuleGetFunction" : "hipModuleGetFunction", SILO_GPU_LAUNCH_FAILED, 1);
    function = usual;
    CHECK(silo_binary_function(binary, "k", "add", &function, &error) == -1);
    CHECK(failed(SILO_ERROR_FAULT, "cannot prepare a kernel"));
}

static void check_binaries(struct silo_gpu_device *device) {
    const int64_t before = stub_count(MODULES);
    CHECK(load(device, "\x01 no code") == NULL);
    CHECK(failed(SILO_ERROR_LOAD, "cannot load code (9 bytes, of no format that is known here)"));
    struct silo_binary *binary = load(device, add);
    CHECK(binary != NULL && binary->driver == device->gpu->driver);
    check_functions(binary);
    struct silo_parameter_place places[1];
    struct silo_function function = usual;
    CHECK(silo_binary_function(binary, "k", "add", &function, &error) == 0);
    const int64_t count = silo_binary_places(binary, &function, places, 1);
    CHECK(cuda ? count == 2 && places[0].offset == 0 && places[0].size == 8 : count == -1);
    silo_binary_retain(binary);
    silo_binary_release(binary);
    CHECK(stub_count(MODULES) == before + 1);
    silo_binary_release(binary);
    CHECK(stub_count(MODULES) == before);

    /* Another stream captures: the module waits for the next sweep. */
    binary = load(device, add);
    CHECK(binary != NULL);
    stub_fail(cuda ? "cuModuleUnload" : "hipModuleUnload", SILO_GPU_CAPTURES, 1);
    silo_binary_release(binary);
    CHECK(stub_count(MODULES) == before + 1);
    binary = load(device, add);
    CHECK(binary != NULL && stub_count(MODULES) == before + 1);

    /* Its launch is captured: it stays for good. */
    void *stream = (void *)0x1000;
    silo_binary_launched_on(binary, stream);
    CHECK(!binary->captured);
    stub_capture(0x1000, 1);
    silo_binary_launched_on(binary, stream);
    CHECK(binary->captured);
    stub_capture(0x1000, 0);
    silo_binary_release(binary);
    CHECK(stub_count(MODULES) == before + 1);
    silo_binary_release(NULL);
}

static void check_cpu(void) {
    const struct silo_function none = {.handle = NULL};
    struct silo_function function = none;
    CHECK(silo_binary_load(NULL, "no object", 9, NULL, &error) == NULL);
    CHECK(failed(SILO_ERROR_LOAD, "cannot load the CPU code (9 bytes): "));
    CHECK(silo_binary_load(NULL, "no object", 9, "/no/such/folder", NULL) == NULL);
    struct silo_binary *binary = silo_binary_at((const void *)(uintptr_t)check_cpu, &error);
    CHECK(binary != NULL && binary->driver == &silo_cpu_driver && binary->device == NULL);
    CHECK(silo_binary_function(binary, "k", "any", &function, &error) == 0);
    CHECK(function.handle == (void *)(uintptr_t)check_cpu && strcmp(function.name, "k") == 0);
    CHECK(silo_binary_places(binary, &function, NULL, 0) == -1);
    silo_binary_release(binary);
}

/* A driver's compiler says more than an error's text holds. */
static void check_long_text(void) {
    char many[3000];
    memset(many, 'x', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    CHECK(silo_fail_long(&error, SILO_ERROR_LOAD, 5, "%s!", many) == -1 && error.driver_code == 5);
    CHECK(strlen(error.text) == sizeof error.text - 1);
    CHECK(strcmp(error.text + sizeof error.text - 5, "x...") == 0);
    CHECK(error.details != NULL && strlen(error.details) == sizeof many);
    silo_error_clear(&error);
    CHECK(error.details == NULL && error.code == SILO_OK);
    for (size_t i = 0; i + 3 < sizeof many; i += 3)
        memcpy(many + i, "\xE2\x82\xAC", 3); /* the euro sign: never cut within */
    many[sizeof many - 3] = '\0';
    for (int shift = 0; shift < 3; shift++) {
        silo_fail_at(&error, SILO_ERROR_DAMAGED, many, 7, "%.*s%s", shift, "ab", many);
        const size_t cut = strlen(error.text) - 3;
        CHECK(cut % 3 == (size_t)shift && strcmp(error.text + cut, "...") == 0);
        CHECK((strlen(error.field) - 3) % 3 == 0 && error.offset == 7 && error.details == NULL);
    }
    CHECK(strcmp(silo_code_name(SILO_ERROR_WRONG_DEVICE), "wrong device") == 0);
    CHECK(strcmp(silo_code_name(12345), "unknown error") == 0);
}

/* ---- scratch memory ---- */

static uint64_t given, given_back;

static int give(void *context, const silo_scratch *wanted, void **memory) {
    *memory = (void *)(uintptr_t)given;
    return context == NULL ? (int)wanted->bytes : 0;
}

static void take_back(void *context, const silo_scratch *wanted, void *memory) {
    (void)context, (void)wanted;
    given_back = (uint64_t)(uintptr_t)memory;
}

static void check_given(struct silo_gpu_device *device) {
    struct silo_scratch_source source = {&error, give, take_back};
    struct silo_lease lease;
    given = 4096;
    CHECK(silo_scratch_take(&source, device, NULL, "k", 10, 4096, &lease, &error) == 0);
    CHECK(lease.address == 4096 && given_back == 0);
    silo_scratch_give(&source, device, &lease);
    CHECK(given_back == 4096);
    given = 4100;
    CHECK(silo_scratch_take(&source, device, NULL, "k", 10, 8, &lease, &error) == -1);
    CHECK(failed(SILO_ERROR_MEMORY, "k needs 10 bytes of scratch memory at a multiple of 8 bytes; "
                                    "the allocator gave address 4100"));
    CHECK(given_back == 4100);
    given = 0;
    CHECK(silo_scratch_take(&source, device, NULL, "k", 10, 0, &lease, &error) == -1);
    CHECK(failed(SILO_ERROR_MEMORY, "the allocator gave address 0"));
    source.context = NULL;
    CHECK(silo_scratch_take(&source, device, NULL, "k", 10, 8, &lease, &error) == -1);
    CHECK(failed(SILO_ERROR_MEMORY, "the allocator returned 10"));
}

static void check_own(struct silo_gpu_device *device) {
    const char *pool = cuda ? "cuMemAllocAsync" : "hipMallocAsync";
    const int64_t before = stub_count(ALLOCATIONS);
    struct silo_lease lease;
    void *stream = (void *)0x2000;
    for (uint32_t alignment = 1; alignment <= 65536; alignment *= 16) {
        CHECK(silo_scratch_take(NULL, device, stream, "k", 100, alignment, &lease, &error) == 0);
        CHECK(lease.address % alignment == 0 && !lease.waits);
        memset((void *)(uintptr_t)lease.address, 1, 100); /* the stub's memory is the host's */
        CHECK(stub_count(ALLOCATIONS) == before + 1);
        silo_scratch_give(NULL, device, &lease);
        CHECK(stub_count(ALLOCATIONS) == before);
    }
    stub_fail(pool, SILO_GPU_NOT_SUPPORTED, 1);
    CHECK(silo_scratch_take(NULL, device, stream, "k", 100, 16, &lease, &error) == 0);
    CHECK(lease.waits);
    silo_scratch_give(NULL, device, &lease);
    CHECK(stub_count(ALLOCATIONS) == before);
    stub_capture(0x2000, 1);
    CHECK(silo_scratch_take(NULL, device, stream, "k", 100, 16, &lease, &error) == 0);
    silo_scratch_give(NULL, device, &lease); /* the capture records both */
    stub_fail(pool, SILO_GPU_NOT_SUPPORTED, 1);
    CHECK(silo_scratch_take(NULL, device, stream, "k", 100, 16, &lease, &error) == -1);
    CHECK(failed(SILO_ERROR_CAPTURING, "k needs 100 bytes of scratch memory, which this"));
    stub_capture(0x2000, 0);
    stub_memory(1000);
    CHECK(silo_scratch_take(NULL, device, stream, "k", 1001, 16, &lease, &error) == -1);
    CHECK(error.driver_code == SILO_GPU_OUT_OF_MEMORY);
    CHECK(failed(SILO_ERROR_MEMORY, "k: cannot take 1001 bytes of scratch memory on "));
    stub_memory(UINT64_C(1) << 36);
    CHECK(stub_count(ALLOCATIONS) == before);
}

static void check_total(void) {
    int64_t bytes = 0;
    CHECK(silo_scratch_total("k", (int64_t[]){3, 4, 5}, 7, &bytes, &error) == 0 && bytes == 420);
    const int64_t large[] = {INT32_MAX, INT32_MAX, INT32_MAX};
    CHECK(silo_scratch_total("k", large, 7, &bytes, &error) == -1);
    CHECK(failed(SILO_ERROR_GRID, "needs more than 2^63 bytes"));
    CHECK(silo_scratch_total("k", (int64_t[]){1, 1, 1}, UINT64_MAX, &bytes, NULL) == -1);
}

/* ---- a child of fork() ---- */

static void check_fork(struct silo_gpu_device *device) {
    struct silo_binary *binary = load(device, add);
    CHECK(binary != NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct silo_lease lease;
        struct silo_function function = usual;
        CHECK(silo_gpu_device(device->gpu, 0, &error) == NULL);
        CHECK(failed(SILO_ERROR_FORKED, "which fork() made after its parent"));
        CHECK(silo_gpu_opened(device->gpu, 0) == NULL);
        CHECK(silo_binary_function(binary, "k", "add", &function, &error) == -1);
        CHECK(failed(SILO_ERROR_FORKED, "cannot prepare a kernel"));
        CHECK(silo_scratch_take(NULL, device, NULL, "k", 8, 8, &lease, &error) == -1);
        CHECK(failed(SILO_ERROR_FORKED, "cannot take 8 bytes"));
        CHECK(load(device, add) == NULL);
        CHECK(failed(SILO_ERROR_FORKED, "cannot load code"));
        silo_binary_release(binary);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    silo_binary_release(binary);
    binary = load(device, add); /* in the parent all goes on */
    CHECK(binary != NULL);
    const int64_t before = stub_count(MODULES);
    silo_gpu_end();
    silo_binary_release(binary);
    CHECK(silo_gpu_ending() && stub_count(MODULES) == before);
}

/* ---- threads ---- */

enum { THREADS = 4, TURNS = 200 };

static void *load_and_let_go(void *argument) {
    struct silo_gpu *gpu = argument;
    silo_error own;
    for (int turn = 0; turn < TURNS; turn++) {
        struct silo_gpu_device *device = silo_gpu_device(gpu, turn % 2, &own);
        struct silo_binary *binary =
            device != NULL ? silo_binary_load(device, add, sizeof add - 1, NULL, &own) : NULL;
        struct silo_function function = usual;
        struct silo_lease lease;
        if (binary == NULL || silo_binary_function(binary, "k", "add", &function, &own) != 0 ||
            silo_scratch_take(NULL, device, NULL, "k", 64, 64, &lease, &own) != 0)
            return "failed";
        silo_binary_retain(binary);
        silo_binary_launched_on(binary, (void *)0x3000);
        silo_scratch_give(NULL, device, &lease);
        silo_binary_release(binary);
        silo_binary_release(binary);
    }
    return NULL;
}

/* All that is not there yet is made by several at one time. */
static void check_threads(const char *path) {
    struct silo_gpu *gpu = cuda ? &silo_cuda : &silo_hip;
    pthread_t threads[THREADS];
    CHECK(silo_gpu_open(gpu, path, &error) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, load_and_let_go, gpu) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *said = NULL;
        CHECK(pthread_join(threads[i], &said) == 0 && said == NULL);
    }
    CHECK(stub_count(MODULES) == 0 && stub_count(ALLOCATIONS) == 0);
}

int main(int argc, char **argv) {
    if (argc < 3 || (stub = dlopen(argv[1], RTLD_NOW)) == NULL)
        return 2;
    void *const found[] = {symbol("stub_count"), symbol("stub_fail"), symbol("stub_capture"),
                           symbol("stub_memory")};
    memcpy(&stub_count, &found[0], sizeof *found);
    memcpy(&stub_fail, &found[1], sizeof *found);
    memcpy(&stub_capture, &found[2], sizeof *found);
    memcpy(&stub_memory, &found[3], sizeof *found);
    cuda = strcmp(argv[2], "cuda") == 0;
    if (argc > 3) {
        check_threads(argv[1]);
        puts("done");
        return 0;
    }
    CHECK(silo_gpu_forked_init() == 0);
    check_long_text();
    struct silo_gpu_device *device = check_device(argv[1]);
    check_codes(device->gpu);
    check_binaries(device);
    check_cpu();
    check_total();
    check_given(device);
    check_own(device);
    check_fork(device);
    puts("done");
    return 0;
}
