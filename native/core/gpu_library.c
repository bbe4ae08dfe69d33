/* Opens the libraries of GPU drivers with dlopen, so that building and starting need none of them.
 */
#include "gpu_library.h"

#include "gpu_symbols.h"
#include "loader_lock.h"

#include <dlfcn.h>
#include <stdio.h>

#define TYPES(...)                                                                                 \
    SILO_CUDA_COLUMNS(SILO_GPU_TYPE, __VA_ARGS__) SILO_HIP_COLUMNS(SILO_GPU_TYPE, __VA_ARGS__)
SILO_GPU_SYMBOLS(TYPES)

/* Opens the first library in `names` that can be opened, and sets `*opened` to its name. Returns
 * NULL if none can be opened, with the first reason in `error`. The caller holds the loader's lock.
 */
static void *open_first(const char *const *names, const char **opened, char *error,
                        size_t error_bytes) {
    void *library = NULL;
    for (; *names != NULL && library == NULL; names++) {
        library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        *opened = *names;
        if (library == NULL && error[0] == '\0') {
            const char *text = dlerror();
            snprintf(error, error_bytes, "%s", text != NULL ? text : "dlopen failed");
        }
    }
    return library;
}

void *silo_gpu_library(const struct silo_gpu *gpu, const char *path, const char **opened,
                       char *error, size_t error_bytes) {
    const char *const only[] = {path, NULL};
    void *library = NULL;
    silo_loader_take();
    if (silo_loader_usable())
        library = open_first(path != NULL ? only : gpu->libraries, opened, error, error_bytes);
    else
        snprintf(error, error_bytes, SILO_LOADER_LOST);
    silo_loader_give();
    return library;
}

const char *silo_gpu_find(void *library, const struct silo_gpu_symbol *symbols, size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL && !symbols[i].optional)
            return symbols[i].name;
        /* dlsym returns a data pointer; a function pointer has the same representation. */
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    return NULL;
}

int silo_gpu_ask(int (*get_attribute)(int *value, int attribute, int device), int device,
                 const struct silo_gpu_question *questions, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const int code = get_attribute(questions[i].value, questions[i].attribute, device);
        if (code != 0 && (!questions[i].optional || code != SILO_GPU_INVALID_VALUE))
            return code;
        if (code != 0)
            *questions[i].value = -1;
    }
    return 0;
}
