/* torch through the C functions it keeps stable for AOTInductor (aoti_torch_*), found by dlsym in
 * the library that torch has already loaded, and applied to the at::Tensor inside the Python
 * object. The tensor's place is found at start by comparing with a handle that torch returns. */
#ifndef SILO_TORCH_SHIM_H
#define SILO_TORCH_SHIM_H

#include "adapter.h"
#include "dtypes.h"
#include "python.h"

/* c10::DeviceType: those that DLPack has a type for. */
enum silo_torch_device_type {
    SILO_TORCH_CPU = 0,
    SILO_TORCH_CUDA = 1, /* AMD's GPUs too */
    SILO_TORCH_OPENCL = 4,
    SILO_TORCH_HIP = 6,
    SILO_TORCH_VULKAN = 10,
    SILO_TORCH_XPU = 12,
    SILO_TORCH_MPS = 13,
};

struct silo_torch {
    ptrdiff_t offset; /* of the at::Tensor in the PyObject; 0: the shim is off */
    /* Offsets in the TensorImpl of the dtype (16 bits) and of the device (type and index, 8 bits
     * each); 0: not found, and the functions below are called. */
    ptrdiff_t dtype_offset, device_offset;
    int32_t (*data_ptr)(void *, void **);
    int32_t (*dtype)(void *, int32_t *);
    int32_t (*device_type)(void *, int32_t *);
    int32_t (*device_index)(void *, int32_t *);
    int32_t (*dim)(void *, int64_t *);
    int32_t (*sizes)(void *, int64_t **);
    int32_t (*strides)(void *, int64_t **);
    int32_t (*storage_bytes)(void *, int64_t *); /* NULL: not in this torch */
    int32_t (*current_stream)(int32_t, void **); /* NULL: torch is built without a GPU */
    /* at::hasCallbacks, of C++: whether a profiler or another observer records the operators that
     * this thread calls; NULL: not in this torch */
    bool (*observed)(void);
    int32_t gpu_type;            /* DLPack device type of torch's "cuda": CUDA or ROCM */
    PyTypeObject *tensor;        /* torch.Tensor, if its objects are read this way; else NULL */
    struct silo_adapter adapter; /* of these */
    /* The place in a TensorImpl of the plain class of its number of axes and, up to SILO_TORCH_AXES
     * of them, extents and strides; 0: not found. Other classes (nested, sparse, wrapped tensors)
     * have functions of their own for these, and the memory is absent or has another meaning. */
    ptrdiff_t rank_offset, sizes_offset, strides_offset;
    /* The tensor's dispatch keys (64 bits) in the TensorImpl, and the keys of views whose memory
     * holds other values: negated, conjugated. 0, 0: not found, so that nothing is refused. */
    ptrdiff_t keys_offset;
    uint64_t other_values;
    const void *plain; /* the first word of a TensorImpl of that class: its table of functions */
};

/* The most axes whose extents and strides are in the TensorImpl itself. */
#define SILO_TORCH_AXES 5

extern struct silo_torch silo_torch;
extern const struct silo_dtype silo_torch_dtypes[64]; /* by c10::ScalarType; bits 0: none */

SILO_INLINE struct silo_dtype silo_torch_dtype(int32_t scalar_type) {
    return silo_torch_dtypes[scalar_type & 63];
}

/* The DLPack device type of a c10::DeviceType other than the CPU's and CUDA's. */
int32_t silo_torch_other_device(int32_t device_type);

/* The DLPack device type of a c10::DeviceType. Never SILO_DEVICE_UNKNOWN: every tensor has a
 * device.
 */
SILO_INLINE int32_t silo_torch_device(int32_t device_type) {
    if (SILO_LIKELY(device_type == SILO_TORCH_CUDA))
        return silo_torch.gpu_type;
    return device_type == SILO_TORCH_CPU ? SILO_DEVICE_CPU : silo_torch_other_device(device_type);
}

/* Turn the shim on after checking it on one tensor; the offset found, 0 where it does not fit.
 * `handle` is an at::Tensor* holding the same tensor. */
ptrdiff_t silo_torch_open(const char *library, PyObject *tensor, void *handle, bool rocm);

/* Find where tensors keep dtype, device, extents and strides, by comparing the memory of these with
 * the results of torch's functions; each is used only if exactly one place fits all tensors. */
void silo_torch_probe(PyObject *const *tensors, Py_ssize_t count);

/* Find where tensors keep their dispatch keys, which `keys` holds for each tensor; `other_values`
 * are the keys of views whose memory holds other values. */
void silo_torch_probe_keys(PyObject *const *tensors, const uint64_t *keys, Py_ssize_t count,
                           uint64_t other_values);

/* Ask torch for its current stream through the library with its GPU part; false if that is not
 * loaded or lacks the function. */
bool silo_torch_open_stream(const char *library);

/* Turn it off. */
void silo_torch_close(void);

SILO_INLINE void *silo_torch_handle(PyObject *tensor) {
    return (char *)tensor + silo_torch.offset;
}

/* Whether the memory of a tensor differs from its values, because it is a view that negates or
 * conjugates. */
SILO_INLINE bool silo_torch_holds_others(void *handle) {
    const char *implementation;
    uint64_t keys;
    memcpy(&implementation, handle, sizeof implementation);
    memcpy(&keys, implementation + silo_torch.keys_offset, sizeof keys);
    return (keys & silo_torch.other_values) != 0;
}

/* The c10::ScalarType of a tensor; nonzero if torch cannot answer. */
SILO_INLINE int32_t silo_torch_read_dtype(void *handle, int32_t *scalar_type) {
    if (SILO_UNLIKELY(silo_torch.dtype_offset == 0))
        return silo_torch.dtype(handle, scalar_type);
    const char *implementation;
    uint16_t type;
    memcpy(&implementation, handle, sizeof implementation);
    memcpy(&type, implementation + silo_torch.dtype_offset, sizeof type);
    *scalar_type = type;
    return 0;
}

/* Torch's answer about a tensor; nonzero if it cannot answer. */
SILO_INLINE int32_t silo_torch_read(void *handle, void **data, int32_t *scalar_type,
                                    int32_t *device_type, int32_t *device_id) {
    const char *implementation;
    memcpy(&implementation, handle, sizeof implementation);
    int32_t failed = silo_torch.data_ptr(handle, data) | silo_torch_holds_others(handle);
    failed |= silo_torch_read_dtype(handle, scalar_type);
    if (SILO_LIKELY(silo_torch.device_offset != 0)) {
        *device_type = (int8_t)implementation[silo_torch.device_offset];
        *device_id = (int8_t)implementation[silo_torch.device_offset + 1];
    } else {
        failed |= silo_torch.device_type(handle, device_type) |
                  silo_torch.device_index(handle, device_id);
    }
    return failed;
}

/* Extents and strides of a tensor, in place; returns its number of axes, or -1: torch's functions
 * are to be called.
 */
SILO_INLINE int32_t silo_torch_extents(void *handle, const int64_t **sizes,
                                       const int64_t **strides) {
    const char *implementation;
    const void *first;
    uint64_t rank;
    memcpy(&implementation, handle, sizeof implementation);
    memcpy(&first, implementation, sizeof first);
    if (SILO_UNLIKELY(silo_torch.rank_offset == 0 || first != silo_torch.plain))
        return -1;
    memcpy(&rank, implementation + silo_torch.rank_offset, sizeof rank);
    *sizes = (const int64_t *)(const void *)(implementation + silo_torch.sizes_offset);
    *strides = (const int64_t *)(const void *)(implementation + silo_torch.strides_offset);
    return SILO_LIKELY(rank <= SILO_TORCH_AXES) ? (int32_t)rank : -1;
}

#endif
