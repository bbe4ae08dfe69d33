/* libcuda, of which launches are counted, and those that a stream captures into a graph: a library
 * that needs libcuda.so.1, so that every other function is found in that one. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

/* As in cuda.h: CUlaunchConfig. */
struct config {
    uint32_t grid[3], block[3], shared;
    void *stream, *attributes;
    uint32_t count;
};

typedef int launch(const struct config *, void *, void **, void **);
typedef int is_capturing(void *, int *);

VISIBLE int64_t counted_launches, counted_captured;

VISIBLE int cuLaunchKernelEx(const struct config *config, void *function, void **params,
                             void **extra);

/* `slot` is the address of a pointer to a function. */
static void find(const char *name, void *slot) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library != NULL ? dlsym(library, name) : NULL;
    if (symbol == NULL)
        abort();
    memcpy(slot, &symbol, sizeof symbol);
}

int cuLaunchKernelEx(const struct config *config, void *function, void **params, void **extra) {
    static launch *real;
    static is_capturing *capturing;
    int status = 0;
    if (real == NULL) {
        find("cuStreamIsCapturing", &capturing);
        find("cuLaunchKernelEx", &real);
    }
    if (capturing(config->stream, &status) == 0 && status == 1)
        __atomic_add_fetch(&counted_captured, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&counted_launches, 1, __ATOMIC_RELAXED);
    return real(config, function, params, extra);
}
