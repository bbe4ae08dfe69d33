/* The libraries of GPU drivers: by dlopen, so that none is needed to build or to start. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>

void *silo_gpu_library(const struct silo_gpu *gpu, const char *path, const char **opened,
                       char *error, size_t error_bytes) {
    const char *const given[] = {path, NULL};
    const char *const *names = path != NULL ? given : gpu->libraries;
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

const char *silo_gpu_find(void *library, const struct silo_gpu_symbol *symbols, size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL && !symbols[i].optional)
            return symbols[i].name;
        /* A function pointer has the bits of the data pointer that dlsym gives. */
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    return NULL;
}
