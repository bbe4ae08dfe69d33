/* Makes torch's CPU tensors look like GPU tensors, for the stub driver. Everything is read by
 * torch's own functions; only the device is replaced (type CUDA, index 0), and the current stream
 * is the null stream, torch's default. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CUDA = 1 };

static int32_t (*device_type)(void *, int32_t *);
static int32_t (*device_index)(void *, int32_t *);

static int resolve(void *library, const char *name, void *slot) {
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Must be called first; `path` is the torch library in this process. Returns 0, or -1 if the
 * library is not loaded or lacks a function. */
int torch_as_gpu_open(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    return library != NULL && resolve(library, "aoti_torch_get_device_type", &device_type) &&
                   resolve(library, "aoti_torch_get_device_index", &device_index)
               ? 0
               : -1;
}

int32_t aoti_torch_get_device_type(void *tensor, int32_t *out) {
    const int32_t code = device_type(tensor, out);
    *out = CUDA;
    return code;
}

int32_t aoti_torch_get_device_index(void *tensor, int32_t *out) {
    const int32_t code = device_index(tensor, out);
    *out = 0;
    return code;
}

int32_t aoti_torch_get_current_cuda_stream(int32_t index, void **stream) {
    (void)index;
    *stream = NULL;
    return 0;
}
