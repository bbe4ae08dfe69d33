#include "torch_shim.h"

#include <dlfcn.h>

struct silo_torch silo_torch;

/* c10::ScalarType in torch's own numbering, which it keeps fixed. */
const struct silo_dtype silo_torch_dtypes[64] = {
    [0] = {1, 8},    [1] = {0, 8},   [2] = {0, 16},  [3] = {0, 32},  [4] = {0, 64},
    [5] = {2, 16},   [6] = {2, 32},  [7] = {2, 64},  [8] = {5, 32},  [9] = {5, 64},
    [10] = {5, 128}, [11] = {6, 8},  [15] = {4, 16}, [23] = {12, 8}, [24] = {10, 8},
    [25] = {13, 8},  [26] = {11, 8}, [27] = {1, 16}, [28] = {1, 32}, [29] = {1, 64},
};

/* dlsym gives a data pointer; copying its bits is the portable way to a function pointer. */
static bool resolve(void *library, const char *name, void *slot) {
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

ptrdiff_t silo_torch_open(const char *library, PyObject *tensor, void *handle, bool rocm) {
    struct silo_torch found = {.gpu_type = rocm ? SILO_DEVICE_ROCM : SILO_DEVICE_CUDA};
    void *lib = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (lib == NULL)
        return 0;
    if (!resolve(lib, "aoti_torch_get_data_ptr", &found.data_ptr) ||
        !resolve(lib, "aoti_torch_get_dtype", &found.dtype) ||
        !resolve(lib, "aoti_torch_get_device_type", &found.device_type) ||
        !resolve(lib, "aoti_torch_get_device_index", &found.device_index) ||
        !resolve(lib, "aoti_torch_get_dim", &found.dim) ||
        !resolve(lib, "aoti_torch_get_sizes", &found.sizes) ||
        !resolve(lib, "aoti_torch_get_strides", &found.strides))
        return 0;
    resolve(lib, "aoti_torch_get_storage_size", &found.storage_bytes);
    void *implementation;
    memcpy(&implementation, handle, sizeof implementation); /* the first word of an at::Tensor */
    /* An object smaller than the search would be read past its end; torch's is larger than 40
     * bytes. */
    for (ptrdiff_t offset = (ptrdiff_t)sizeof(PyObject); offset <= 32; offset += 8) {
        void *word;
        memcpy(&word, (char *)tensor + offset, sizeof word);
        if (word == implementation) {
            found.offset = offset;
            break;
        }
    }
    if (found.offset != 0)
        silo_torch = found;
    return found.offset;
}

/* Bytes of a TensorImpl that are searched: those of torch 2.13 have no more, older ones do. */
#define SEARCHED 176

/* The only offset at which `size` bytes equal `wanted[i]` in every tensor i; 0: none, or several.
 */
static ptrdiff_t find(PyObject *const *tensors, const uint16_t *wanted, Py_ssize_t count,
                      ptrdiff_t step) {
    ptrdiff_t found = 0;
    for (ptrdiff_t at = 8; at + 2 <= SEARCHED; at += step) {
        Py_ssize_t i = 0;
        for (; i < count; i++) {
            const char *implementation;
            uint16_t word;
            memcpy(&implementation, silo_torch_handle(tensors[i]), sizeof implementation);
            memcpy(&word, implementation + at, sizeof word);
            if (word != wanted[i])
                break;
        }
        if (i == count && found != 0)
            return 0;
        if (i == count)
            found = at;
    }
    return found;
}

void silo_torch_probe(PyObject *const *tensors, Py_ssize_t count) {
    uint16_t types[64], devices[64];
    if (count > 64 || silo_torch.offset == 0)
        return;
    for (Py_ssize_t i = 0; i < count; i++) {
        void *handle = silo_torch_handle(tensors[i]);
        int32_t type, device, index;
        if (silo_torch.dtype(handle, &type) != 0 || silo_torch.device_type(handle, &device) != 0 ||
            silo_torch.device_index(handle, &index) != 0)
            return;
        types[i] = (uint16_t)type;
        devices[i] = (uint16_t)((device & 0xff) | (index & 0xff) << 8); /* type first in memory */
    }
    silo_torch.dtype_offset = find(tensors, types, count, 2);
    silo_torch.device_offset = find(tensors, devices, count, 1);
}

int32_t silo_torch_other_device(int32_t device_type) {
    switch (device_type) { /* c10/core/DeviceType.h; what has no type of its own is an extension */
    case 4:
        return SILO_DEVICE_OPENCL;
    case 6:
        return SILO_DEVICE_ROCM;
    case 10:
        return SILO_DEVICE_VULKAN;
    case 12:
        return SILO_DEVICE_ONEAPI;
    case 13:
        return SILO_DEVICE_METAL;
    default:
        return SILO_DEVICE_EXTENSION;
    }
}

bool silo_torch_open_stream(const char *library) {
    void *lib = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return lib != NULL &&
           resolve(lib, "aoti_torch_get_current_cuda_stream", &silo_torch.current_stream);
}

void silo_torch_close(void) {
    silo_torch.offset = silo_torch.dtype_offset = silo_torch.device_offset = 0;
    silo_torch.current_stream = NULL;
    silo_torch.tensor = NULL;
}
