/* Reads torch tensors without Python. It uses the C functions that torch keeps stable for
 * AOTInductor (aoti_torch_*), found by dlsym in the library that torch has loaded, on the
 * at::Tensor inside the Python object. At start, the offset of that at::Tensor is found by
 * comparison with a handle that torch returns. */
#ifndef SILO_TORCH_SHIM_H
#define SILO_TORCH_SHIM_H

#include "adapter.h"
#include "dtypes.h"
#include "python.h"

/* The values of c10::DeviceType for which DLPack has a type. */
enum silo_torch_device_type {
    SILO_TORCH_CPU = 0,
    SILO_TORCH_CUDA = 1, /* also for AMD's GPUs */
    SILO_TORCH_OPENCL = 4,
    SILO_TORCH_HIP = 6,
    SILO_TORCH_VULKAN = 10,
    SILO_TORCH_XPU = 12,
    SILO_TORCH_MPS = 13,
};

struct silo_torch {
    ptrdiff_t offset; /* offset of the at::Tensor in the PyObject; 0 if the shim is off */
    /* Offsets in the TensorImpl of the dtype (16 bits) and of the device (type and index, 8 bits
     * each). If they are 0, they were not found and the functions below are called. */
    ptrdiff_t dtype_offset, device_offset;
    int32_t (*data_ptr)(void *, void **);
    int32_t (*dtype)(void *, int32_t *);
    int32_t (*device_type)(void *, int32_t *);
    int32_t (*device_index)(void *, int32_t *);
    int32_t (*dim)(void *, int64_t *);
    int32_t (*sizes)(void *, int64_t **);
    int32_t (*strides)(void *, int64_t **);
    int32_t (*storage_bytes)(void *, int64_t *); /* NULL if this torch lacks it */
    int32_t (*current_stream)(int32_t, void **); /* NULL if torch is built without GPUs */
    /* The C++ function at::hasCallbacks, which returns whether a profiler or another observer
     * records the operators that this thread calls. NULL if this torch lacks it. */
    bool (*observed)(void);
    int32_t gpu_type;            /* DLPack device type of torch's "cuda": CUDA or ROCM */
    PyTypeObject *tensor;        /* torch.Tensor if its objects are read by the shim, else NULL */
    struct silo_adapter adapter; /* adapter of torch.Tensor */
    /* Offsets in a plain TensorImpl of the number of axes and, for at most SILO_TORCH_AXES axes, of
     * extents and strides; 0 if not found. Other tensor classes (nested, sparse, wrapped) override
     * the functions that return these values, and the memory at these offsets is missing or means
     * something else. */
    ptrdiff_t rank_offset, sizes_offset, strides_offset;
    /* Offset in the TensorImpl of the tensor's dispatch keys (64 bits), and the keys of views whose
     * memory differs from their values (negated, conjugated). Both are 0 if not found; then no
     * tensor is refused. */
    ptrdiff_t keys_offset;
    uint64_t other_values;
    const void *plain; /* the first word of a plain TensorImpl: its virtual table */
};

/* The greatest rank for which extents and strides are stored in the TensorImpl itself. */
#define SILO_TORCH_AXES 5

extern struct silo_torch silo_torch;
/* Maps each c10::ScalarType to its dtype; the dtype has 0 bits if c10 does not define the number,
 * or Silo does not support the type. */
extern const struct silo_dtype silo_torch_dtypes[64];

SILO_INLINE struct silo_dtype silo_torch_dtype(int32_t scalar_type) {
    return silo_torch_dtypes[scalar_type & 63];
}

/* Returns the DLPack device type of a c10::DeviceType other than the CPU and CUDA. */
int32_t silo_torch_other_device(int32_t device_type);

/* Returns the DLPack device type of a c10::DeviceType. It is never SILO_DEVICE_UNKNOWN, because
 * every tensor has a device. */
SILO_INLINE int32_t silo_torch_device(int32_t device_type) {
    if (SILO_LIKELY(device_type == SILO_TORCH_CUDA))
        return silo_torch.gpu_type;
    return device_type == SILO_TORCH_CPU ? SILO_DEVICE_CPU : silo_torch_other_device(device_type);
}

/* Turns the shim on after a test with one tensor; `handle` is an at::Tensor* of the same tensor.
 * Returns the offset of the at::Tensor, or 0 if it was not found. */
ptrdiff_t silo_torch_open(const char *library, PyObject *tensor, void *handle, bool rocm);

/* Finds where tensors store their dtype, device, extents and strides, by comparing the memory of
 * `tensors` with the results of torch's functions. An offset is used only if no other one fits all
 * tensors. */
void silo_torch_probe(PyObject *const *tensors, Py_ssize_t count);

/* Finds where tensors store their dispatch keys; `keys` are the keys of `tensors`, and
 * `other_values` are the keys of views whose memory differs from their values. */
void silo_torch_probe_keys(PyObject *const *tensors, const uint64_t *keys, Py_ssize_t count,
                           uint64_t other_values);

/* Finds the function that returns torch's current stream. `library` is the path of torch's library
 * for GPUs (libtorch_cuda.so). Returns false if the library is not loaded or lacks the function. */
bool silo_torch_open_stream(const char *library);

/* Turns the shim off. */
void silo_torch_close(void);

SILO_INLINE void *silo_torch_handle(PyObject *tensor) {
    return (char *)tensor + silo_torch.offset;
}

/* Returns whether the memory of a tensor differs from its values, because the tensor is a negated
 * or conjugated view. */
SILO_INLINE bool silo_torch_holds_others(void *handle) {
    const char *implementation;
    uint64_t keys;
    memcpy(&implementation, handle, sizeof implementation);
    memcpy(&keys, implementation + silo_torch.keys_offset, sizeof keys);
    return (keys & silo_torch.other_values) != 0;
}

/* Stores the c10::ScalarType of a tensor; returns nonzero if torch cannot tell. */
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

/* Reads the address, dtype and device of a tensor; returns nonzero if torch cannot tell, or if the
 * memory differs from the values. */
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

/* Stores pointers to the extents and strides inside a tensor. Returns its number of axes, or -1 if
 * torch's functions must be called instead. */
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
