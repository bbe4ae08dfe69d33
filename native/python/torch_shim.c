#include "torch_shim.h"

#include <dlfcn.h>

struct silo_torch silo_torch;

/* c10::ScalarType, with torch's numbers, which do not change. */
enum torch_dtype {
    TORCH_BYTE = 0,
    TORCH_CHAR = 1,
    TORCH_SHORT = 2,
    TORCH_INT = 3,
    TORCH_LONG = 4,
    TORCH_HALF = 5,
    TORCH_FLOAT = 6,
    TORCH_DOUBLE = 7,
    TORCH_COMPLEX_HALF = 8,
    TORCH_COMPLEX_FLOAT = 9,
    TORCH_COMPLEX_DOUBLE = 10,
    TORCH_BOOL = 11,
    TORCH_BFLOAT16 = 15,
    TORCH_FLOAT8_E5M2 = 23,
    TORCH_FLOAT8_E4M3FN = 24,
    TORCH_FLOAT8_E5M2FNUZ = 25,
    TORCH_FLOAT8_E4M3FNUZ = 26,
    TORCH_UINT16 = 27,
    TORCH_UINT32 = 28,
    TORCH_UINT64 = 29,
};

const struct silo_dtype silo_torch_dtypes[64] = {
    [TORCH_BYTE] = {SILO_UINT, 8},
    [TORCH_CHAR] = {SILO_INT, 8},
    [TORCH_SHORT] = {SILO_INT, 16},
    [TORCH_INT] = {SILO_INT, 32},
    [TORCH_LONG] = {SILO_INT, 64},
    [TORCH_HALF] = {SILO_FLOAT, 16},
    [TORCH_FLOAT] = {SILO_FLOAT, 32},
    [TORCH_DOUBLE] = {SILO_FLOAT, 64},
    [TORCH_COMPLEX_HALF] = {SILO_COMPLEX, 32},
    [TORCH_COMPLEX_FLOAT] = {SILO_COMPLEX, 64},
    [TORCH_COMPLEX_DOUBLE] = {SILO_COMPLEX, 128},
    [TORCH_BOOL] = {SILO_BOOL, 8},
    [TORCH_BFLOAT16] = {SILO_BFLOAT, 16},
    [TORCH_FLOAT8_E5M2] = {SILO_FLOAT8_E5M2, 8},
    [TORCH_FLOAT8_E4M3FN] = {SILO_FLOAT8_E4M3FN, 8},
    [TORCH_FLOAT8_E5M2FNUZ] = {SILO_FLOAT8_E5M2FNUZ, 8},
    [TORCH_FLOAT8_E4M3FNUZ] = {SILO_FLOAT8_E4M3FNUZ, 8},
    [TORCH_UINT16] = {SILO_UINT, 16},
    [TORCH_UINT32] = {SILO_UINT, 32},
    [TORCH_UINT64] = {SILO_UINT, 64},
};

/* Finds the symbol `name` in a library, stores its address in `*slot` and returns whether it
 * exists. dlsym returns a data pointer; its bits are copied, because that is the portable way to
 * get a function pointer. */
static bool resolve(void *library, const char *name, void *slot) {
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

ptrdiff_t silo_torch_open(const char *library, PyObject *tensor, void *handle, bool rocm) {
    struct silo_torch opened = {.gpu_type = rocm ? SILO_DEVICE_ROCM : SILO_DEVICE_CUDA};
    void *lib = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (lib == NULL)
        return 0;
    if (!resolve(lib, "aoti_torch_get_data_ptr", &opened.data_ptr) ||
        !resolve(lib, "aoti_torch_get_dtype", &opened.dtype) ||
        !resolve(lib, "aoti_torch_get_device_type", &opened.device_type) ||
        !resolve(lib, "aoti_torch_get_device_index", &opened.device_index) ||
        !resolve(lib, "aoti_torch_get_dim", &opened.dim) ||
        !resolve(lib, "aoti_torch_get_sizes", &opened.sizes) ||
        !resolve(lib, "aoti_torch_get_strides", &opened.strides))
        return 0;
    resolve(lib, "aoti_torch_get_storage_size", &opened.storage_bytes);
    resolve(lib, "_ZN2at12hasCallbacksEv", &opened.observed);
    void *implementation;
    /* The first word of an at::Tensor points to its TensorImpl. */
    memcpy(&implementation, handle, sizeof implementation);
    /* The search would read past the end of a smaller object, but torch's has more than 40 bytes.
     */
    for (ptrdiff_t offset = (ptrdiff_t)sizeof(PyObject); offset <= 32; offset += 8) {
        void *word;
        memcpy(&word, (char *)tensor + offset, sizeof word);
        if (word == implementation) {
            opened.offset = offset;
            break;
        }
    }
    if (opened.offset != 0)
        silo_torch = opened;
    return opened.offset;
}

/* Bytes of a TensorImpl that are searched: the size in torch 2.13, the smallest of all versions. */
#define SEARCHED 176

/* Returns the only offset at which the 16-bit word equals words[i] in each tensor i; 0 if there is
 * none, or several. */
static ptrdiff_t find(PyObject *const *tensors, const uint16_t *words, Py_ssize_t count,
                      ptrdiff_t step) {
    ptrdiff_t offset = 0;
    for (ptrdiff_t offset_in_tensor = 8; offset_in_tensor + 2 <= SEARCHED;
         offset_in_tensor += step) {
        Py_ssize_t i = 0;
        for (; i < count; i++) {
            const char *implementation;
            uint16_t word;
            memcpy(&implementation, silo_torch_handle(tensors[i]), sizeof implementation);
            memcpy(&word, implementation + offset_in_tensor, sizeof word);
            if (word != words[i])
                break;
        }
        if (i == count && offset != 0)
            return 0;
        if (i == count)
            offset = offset_in_tensor;
    }
    return offset;
}

struct extents_offsets {
    ptrdiff_t rank, sizes, strides;
    const void *plain;
};

/* Finds where one tensor stores its extents. Returns false if they are not stored as in a plain
 * tensor. */
static bool offsets_of(PyObject *tensor, struct extents_offsets *offsets) {
    void *handle = silo_torch_handle(tensor);
    const char *implementation, *rank_address;
    int64_t rank, *sizes, *strides;
    memcpy(&implementation, handle, sizeof implementation);
    memcpy(&offsets->plain, implementation, sizeof offsets->plain);
    if (silo_torch.dim(handle, &rank) | silo_torch.sizes(handle, &sizes) |
        silo_torch.strides(handle, &strides))
        return false;
    /* Subtracted as integers, because torch may return a pointer outside the TensorImpl. */
    offsets->sizes = (ptrdiff_t)((uintptr_t)sizes - (uintptr_t)implementation);
    offsets->strides = (ptrdiff_t)((uintptr_t)strides - (uintptr_t)implementation);
    offsets->rank = offsets->sizes - (ptrdiff_t)sizeof rank;
    if (offsets->rank < 8 || offsets->strides - offsets->sizes != SILO_TORCH_AXES * 8 ||
        offsets->strides + SILO_TORCH_AXES * 8 > SEARCHED)
        return false;
    rank_address = implementation + offsets->rank;
    return rank <= SILO_TORCH_AXES && memcmp(rank_address, &rank, sizeof rank) == 0;
}

/* Finds where tensors store their extents. The offsets are used only if tensors of every rank up to
 * SILO_TORCH_AXES agree, and if `tensors` also has one of a higher rank: such a tensor stores its
 * rank at the same place but its extents elsewhere. */
static void find_extents(PyObject *const *tensors, Py_ssize_t count) {
    struct extents_offsets first, other;
    uint32_t ranks = 0;
    silo_torch.rank_offset = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        void *handle = silo_torch_handle(tensors[i]);
        int64_t rank;
        if (silo_torch.dim(handle, &rank) != 0 || rank < 0)
            return;
        if (rank > SILO_TORCH_AXES) {
            const char *implementation;
            memcpy(&implementation, handle, sizeof implementation);
            if (ranks == 0 || memcmp(implementation + first.rank, &rank, sizeof rank) != 0)
                return;
            ranks |= 1U << (SILO_TORCH_AXES + 1);
            continue;
        }
        if (!offsets_of(tensors[i], ranks == 0 ? &first : &other) ||
            (ranks != 0 && memcmp(&first, &other, sizeof first) != 0))
            return;
        ranks |= 1U << rank;
    }
    if (ranks != (1U << (SILO_TORCH_AXES + 2)) - 1)
        return;
    silo_torch.plain = first.plain;
    silo_torch.sizes_offset = first.sizes;
    silo_torch.strides_offset = first.strides;
    silo_torch.rank_offset = first.rank;
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
        /* Packed as in a tensor's memory: first byte: device type; second byte: index. */
        devices[i] = (uint16_t)((device & 0xff) | (index & 0xff) << 8);
    }
    silo_torch.dtype_offset = find(tensors, types, count, 2);
    silo_torch.device_offset = find(tensors, devices, count, 1);
    find_extents(tensors, count);
}

void silo_torch_probe_keys(PyObject *const *tensors, const uint64_t *keys, Py_ssize_t count,
                           uint64_t other_values) {
    ptrdiff_t offset = 0;
    for (ptrdiff_t offset_in_tensor = 8; silo_torch.offset != 0 && offset_in_tensor + 8 <= SEARCHED;
         offset_in_tensor += 8) {
        Py_ssize_t i = 0;
        for (; i < count; i++) {
            const char *implementation;
            memcpy(&implementation, silo_torch_handle(tensors[i]), sizeof implementation);
            if (memcmp(implementation + offset_in_tensor, &keys[i], sizeof keys[i]) != 0)
                break;
        }
        if (i == count && offset != 0)
            return;
        if (i == count)
            offset = offset_in_tensor;
    }
    silo_torch.keys_offset = offset;
    silo_torch.other_values = offset != 0 ? other_values : 0;
}

int32_t silo_torch_other_device(int32_t device_type) {
    static const int32_t types[] = {
        [SILO_TORCH_OPENCL] = SILO_DEVICE_OPENCL, [SILO_TORCH_HIP] = SILO_DEVICE_ROCM,
        [SILO_TORCH_VULKAN] = SILO_DEVICE_VULKAN, [SILO_TORCH_XPU] = SILO_DEVICE_ONEAPI,
        [SILO_TORCH_MPS] = SILO_DEVICE_METAL,
    };
    const bool is_known = device_type >= 0 && (size_t)device_type < sizeof types / sizeof *types &&
                          types[device_type] != SILO_DEVICE_UNKNOWN;
    /* DLPack has no type for the device. */
    return is_known ? types[device_type] : SILO_DEVICE_EXTENSION;
}

bool silo_torch_open_stream(const char *library) {
    void *lib = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return lib != NULL &&
           resolve(lib, "aoti_torch_get_current_cuda_stream", &silo_torch.current_stream);
}

void silo_torch_close(void) {
    silo_torch.offset = silo_torch.dtype_offset = silo_torch.device_offset = 0;
    silo_torch.rank_offset = silo_torch.keys_offset = 0;
    silo_torch.other_values = 0;
    silo_torch.current_stream = NULL;
    silo_torch.tensor = NULL;
}
