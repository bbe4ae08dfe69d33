/* Measures a fresh process from opening the bundle to the first result. Built and run by
 * programs.py.
 *
 *     first DEVICE BUNDLE KERNEL COUNT [LIBRARY]
 *
 * The kernel computes out = x + y of COUNT elements of float32. On a GPU the context and the arrays
 * are made before the clock starts, without libsilo. Prints one JSON object: the nanoseconds of
 * each step. */
#include "program.h"

#include <stdbool.h>

static void copy(const char *library, const void *to, const void *from, size_t bytes) {
    int (*start)(uint64_t, uint64_t, size_t, void *);
    resolve_function(library, "cuMemcpyAsync", &start);
    if (start((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes, NULL) != 0 ||
        floor_synchronize() != 0)
        stop(library, "arrays cannot be copied");
}

static void *zeros(size_t bytes) {
    void *made = calloc(1, bytes);
    if (made == NULL)
        stop("first", "out of memory");
    return made;
}

/* Makes three arrays; the first holds 0, 1, 2, ..., the second 1, 1, 1, ..., the third zeros. */
static void fill(const char *library, size_t count, void *arrays[3]) {
    const size_t bytes = count * sizeof(float);
    float *values[3] = {zeros(bytes), zeros(bytes), zeros(bytes)};
    for (size_t i = 0; i < count; i++) {
        values[0][i] = (float)i;
        values[1][i] = 1.0f;
    }
    for (int i = 0; i < 3; i++) {
        arrays[i] = values[i];
        if (library == NULL)
            continue;
        arrays[i] = device_memory(library, bytes);
        copy(library, arrays[i], values[i], bytes);
        free(values[i]);
    }
}

static bool right(const char *library, const void *array, size_t count) {
    const size_t bytes = count * sizeof(float);
    float *made = zeros(bytes);
    if (library != NULL)
        copy(library, made, array, bytes);
    else
        memcpy(made, array, bytes);
    bool same = true;
    for (size_t i = 0; i < count && same; i++)
        same = made[i] == (float)i + 1.0f;
    free(made);
    return same;
}

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6)
        stop("first", "wrong number of arguments");
    const bool on_gpu = strcmp(argv[1], "cuda") == 0;
    const char *library = argc == 6 && on_gpu ? argv[5] : NULL;
    if (on_gpu && (library == NULL || floor_open(library, 0) != 0))
        stop("cuda", "no device");
    const size_t count = (size_t)atoll(argv[4]);
    void *arrays[3];
    fill(library, count, arrays);
    if (on_gpu)
        floor_synchronize();
    const silo_queue queue = {on_gpu ? SILO_CUDA : SILO_CPU, 0, NULL};
    const silo_argument args[] = {silo_pointer(arrays[0], SILO_FLOAT32),
                                  silo_pointer(arrays[1], SILO_FLOAT32),
                                  silo_pointer(arrays[2], SILO_FLOAT32), silo_int((int64_t)count)};

    silo_bundle *bundle;
    silo_kernel *kernel;
    silo_error error = {0};
    const uint64_t begin = now();
    const silo_options options = {.size = sizeof options, .vouch = vouch, .cuda_library = library};
    if (silo_open(argv[2], &options, &bundle, &error) != 0)
        stop(argv[2], error.text);
    const uint64_t opened = now();
    if (silo_find(bundle, argv[3], &kernel, &error) != 0)
        stop(argv[3], error.text);
    const uint64_t found = now();
    if (silo_launch(kernel, &queue, args, 4, NULL, &error) != 0)
        stop(error.text, error.details != NULL ? error.details : "");
    if (on_gpu)
        floor_synchronize();
    const uint64_t first = now();
    if (silo_launch(kernel, &queue, args, 4, NULL, &error) != 0)
        stop("a second launch", error.text);
    if (on_gpu)
        floor_synchronize();
    const uint64_t second = now();
    printf("{\"open\": %llu, \"find\": %llu, \"launch\": %llu, \"first result\": %llu, "
           "\"second launch\": %llu, \"right\": %s}\n",
           (unsigned long long)(opened - begin), (unsigned long long)(found - opened),
           (unsigned long long)(first - found), (unsigned long long)(first - begin),
           (unsigned long long)(second - first),
           right(library, arrays[2], count) ? "true" : "false");
    silo_close(bundle);
    return 0;
}
