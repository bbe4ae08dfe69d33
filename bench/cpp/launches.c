/* Measures silo_launch beside a C loop that launches without Silo. Built and run by programs.py.
 *
 *     launches DEVICE BUNDLE KERNEL POINTERS INTEGERS ROUNDS BURST [LIBRARY IMAGE ENTRY THREADS
 *              SHARED PARAMETERS PROGRAMS]
 *
 * DEVICE is cpu or cuda; INTEGERS are separated by commas. Every round measures a burst of the
 * floor (the C loop), a burst of silo_launch, and a burst of silo_launch whose first integer is 0,
 * so that the declared grid is empty. The floor calls the entry of the shared object IMAGE (cpu) or
 * cuLaunchKernelEx (cuda). Prints one JSON object: for each of the three, the nanoseconds a call of
 * every round. */
#include "program.h"

#include <stdbool.h>

enum { MAX_ARGUMENTS = 64, ELEMENTS = 1024, SKIPPED = 2, WARMUP = 50 };

typedef int32_t cpu_entry(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end,
                          void *scratch, void *context);

struct bare {
    bool present, on_gpu;
    cpu_entry *entry;
    void *function, *scratch;
    uint32_t threads, shared, parameters, programs;
    uint64_t values[MAX_ARGUMENTS];
};

static void *file(const char *path) {
    FILE *stream = fopen(path, "rb");
    if (stream == NULL || fseek(stream, 0, SEEK_END) != 0)
        stop(path, "cannot be read");
    const long bytes = ftell(stream);
    char *data = calloc(1, (size_t)bytes + 1);
    rewind(stream);
    if (data == NULL || fread(data, 1, (size_t)bytes, stream) != (size_t)bytes)
        stop(path, "cannot be read");
    fclose(stream);
    return data;
}

/* Turns off the recording of the stub driver, because a stub that records each launch is slower. A
 * real driver lacks this function. */
static void record_nothing(const char *library) {
    void (*record)(int);
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *found = opened ? dlsym(opened, "stub_record") : NULL;
    if (found == NULL)
        return;
    memcpy(&record, &found, sizeof found);
    record(0);
}

static double floor_ns(struct bare *bare, uint32_t burst) {
    if (bare->on_gpu) {
        const uint32_t grid[3] = {bare->programs, 1, 1};
        uint64_t out[2];
        if (floor_burst(bare->function, grid, bare->threads, bare->shared, NULL, bare->values,
                        bare->parameters, burst, out) != 0)
            stop("the floor", "the driver refuses the launch");
        floor_synchronize();
        return (double)out[0] / burst;
    }
    void *params[MAX_ARGUMENTS];
    for (uint32_t i = 0; i < bare->parameters; i++)
        params[i] = &bare->values[i];
    const uint32_t grid[3] = {bare->programs, 1, 1};
    int32_t code = 0;
    const uint64_t begin = now();
    for (uint32_t i = 0; i < burst; i++)
        code |= bare->entry(params, grid, 0, bare->programs, bare->scratch, NULL);
    const uint64_t taken = now() - begin;
    if (code != 0)
        stop("the floor", "the kernel failed");
    return (double)taken / burst;
}

static double launch_ns(silo_kernel *kernel, const silo_queue *queue, const silo_argument *args,
                        size_t count, uint32_t burst) {
    silo_error error = {0};
    int code = 0;
    const uint64_t begin = now();
    for (uint32_t i = 0; i < burst && code == 0; i++)
        code = silo_launch(kernel, queue, args, count, NULL, &error);
    const uint64_t taken = now() - begin;
    if (code != 0)
        stop(error.text, error.details != NULL ? error.details : "");
    if (queue->device != SILO_CPU)
        floor_synchronize();
    return (double)taken / burst;
}

static void print(const char *name, const double *samples, int rounds, const char *end) {
    printf("\"%s\": [", name);
    for (int i = 0; i < rounds; i++)
        printf("%s%.2f", i > 0 ? ", " : "", samples[i]);
    printf("]%s", end);
}

int main(int argc, char **argv) {
    if (argc != 8 && argc != 15)
        stop("launches", "wrong number of arguments");
    const bool on_gpu = strcmp(argv[1], "cuda") == 0;
    const int pointers = atoi(argv[4]), rounds = atoi(argv[6]);
    const uint32_t burst = (uint32_t)atoi(argv[7]);
    const char *library = argc == 15 && on_gpu ? argv[8] : NULL;
    if (on_gpu && (library == NULL || floor_open(library, 0) != 0))
        stop(on_gpu && library != NULL ? library : "cuda", "no device");

    if (on_gpu)
        record_nothing(library);

    silo_argument args[MAX_ARGUMENTS];
    uint64_t values[MAX_ARGUMENTS] = {0};
    size_t count = 0, integers = 0;
    for (int i = 0; i < pointers; i++) {
        const size_t bytes = ELEMENTS * sizeof(float);
        void *memory = on_gpu ? device_memory(library, bytes) : aligned_alloc(64, bytes);
        values[count] = (uint64_t)(uintptr_t)memory;
        args[count++] = silo_pointer(memory, SILO_FLOAT32);
    }
    for (char *text = strtok(argv[5], ","); text != NULL && count < MAX_ARGUMENTS;
         text = strtok(NULL, ",")) {
        values[count] = (uint64_t)atoll(text);
        args[count++] = silo_int(atoll(text));
        integers++;
    }
    silo_argument empty[MAX_ARGUMENTS];
    memcpy(empty, args, sizeof args);
    if (integers > 0)
        empty[pointers] = silo_int(0);

    silo_options options = {.size = sizeof options, .vouch = vouch, .cuda_library = library};
    silo_bundle *bundle;
    silo_kernel *kernel;
    silo_error error = {0};
    if (silo_open(argv[2], &options, &bundle, &error) != 0 ||
        silo_find(bundle, argv[3], &kernel, &error) != 0)
        stop(argv[2], error.text);
    const silo_queue queue = {on_gpu ? SILO_CUDA : SILO_CPU, 0, NULL};

    struct bare bare = {.present = argc == 15, .on_gpu = on_gpu};
    if (bare.present) {
        bare.threads = (uint32_t)atoi(argv[11]);
        bare.shared = (uint32_t)atoi(argv[12]);
        bare.parameters = (uint32_t)atoi(argv[13]);
        bare.programs = (uint32_t)atoi(argv[14]);
        memcpy(bare.values, values, sizeof values);
        if (bare.parameters > MAX_ARGUMENTS)
            stop("launches", "too many parameters");
        if (on_gpu && floor_load(file(argv[9]), argv[10], &bare.function) != 0)
            stop(argv[9], "the driver refuses it");
        if (!on_gpu) {
            resolve_function(argv[9], argv[10], &bare.entry);
            bare.scratch = aligned_alloc(64, 1 << 20);
        }
    }

    /* A call with an empty grid loads no code, so each such call chooses a variant anew until a
     * warm-up or a call with a grid has loaded one. */
    if (silo_warmup(kernel, &queue, empty, count, NULL, &error) != 0)
        stop(argv[3], error.text);
    const uint32_t warm = WARMUP;
    launch_ns(kernel, &queue, args, count, warm);
    double *samples = calloc((size_t)rounds * 3, sizeof *samples);
    if (samples == NULL)
        stop("launches", "out of memory");
    double *under = samples, *launched = samples + rounds, *guarded = samples + 2 * rounds;
    for (int i = -SKIPPED; i < rounds; i++) {
        const double one = bare.present ? floor_ns(&bare, burst) : 0;
        const double two = launch_ns(kernel, &queue, args, count, burst);
        const double three = integers > 0 ? launch_ns(kernel, &queue, empty, count, burst) : 0;
        if (i >= 0)
            under[i] = one, launched[i] = two, guarded[i] = three;
    }
    printf("{");
    if (bare.present)
        print("floor", under, rounds, ", ");
    if (integers > 0)
        print("empty", guarded, rounds, ", ");
    print("launch", launched, rounds, "}\n");
    free(samples);
    silo_close(bundle);
    return 0;
}
