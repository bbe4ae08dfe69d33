/* The DLPack 1.x structs, declared by hand, so that DLPack need not be installed: their ABI is
 * stable. */
#ifndef SILO_DLPACK_H
#define SILO_DLPACK_H

#include <stdint.h>

enum silo_device_type {
    SILO_DEVICE_UNKNOWN = 0, /* an address, or an array whose class does not report its device */
    SILO_DEVICE_CPU = 1,
    SILO_DEVICE_CUDA = 2,
    SILO_DEVICE_CUDA_HOST = 3,
    SILO_DEVICE_OPENCL = 4,
    SILO_DEVICE_VULKAN = 7,
    SILO_DEVICE_METAL = 8,
    SILO_DEVICE_ROCM = 10,
    SILO_DEVICE_ROCM_HOST = 11,
    SILO_DEVICE_EXTENSION = 12, /* DLPack's type for devices without a type of their own */
    SILO_DEVICE_CUDA_MANAGED = 13,
    SILO_DEVICE_ONEAPI = 14,
};

enum silo_type_code {
    SILO_INT = 0,
    SILO_UINT = 1,
    SILO_FLOAT = 2,
    SILO_BFLOAT = 4,
    SILO_COMPLEX = 5,
    SILO_BOOL = 6,
    SILO_FLOAT8_E3M4 = 7, /* the first of the float types below 16 bits */
    SILO_FLOAT8_E4M3B11FNUZ = 9,
    SILO_FLOAT8_E4M3FN = 10,
    SILO_FLOAT8_E4M3FNUZ = 11,
    SILO_FLOAT8_E5M2 = 12,
    SILO_FLOAT8_E5M2FNUZ = 13,
};

struct dl_device {
    int32_t type;
    int32_t id;
};

struct dl_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t ndim;
    struct dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL if the array is contiguous in row-major order */
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
};

#define DL_FLAG_READ_ONLY ((uint64_t)1)

struct dl_managed_versioned {
    uint32_t major;
    uint32_t minor;
    void *context;
    void (*deleter)(struct dl_managed_versioned *);
    uint64_t flags;
    struct dl_tensor tensor;
};

/* DLPack's C exchange API of a tensor class, from the capsule "dlpack_exchange_api" in
 * `type.__dlpack_c_exchange_api__`. */
struct dl_exchange {
    uint32_t major;
    uint32_t minor;
    struct dl_exchange *previous;
    void *allocate;
    int (*managed_from_object)(void *, struct dl_managed_versioned **);
    int (*managed_to_object)(struct dl_managed_versioned *, void **);
    /* the tensor borrows from the object; may be NULL */
    int (*tensor_from_object)(void *, struct dl_tensor *);
    int (*current_stream)(int32_t, int32_t, void **);
};

_Static_assert(sizeof(struct dl_tensor) == 48, "DLPack ABI");
_Static_assert(sizeof(struct dl_managed_versioned) == 80, "DLPack ABI");

#endif
