/* The part of the CUDA driver's ABI that Silo uses, declared by hand. NVIDIA keeps these numbers
 * and layouts fixed: programs built with an old cuda.h run on every later driver. */
#ifndef SILO_CUDA_ABI_H
#define SILO_CUDA_ABI_H

#include <stdint.h>

enum cuda_error {
    CUDA_SUCCESS = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_DEINITIALIZED = 4,
    CUDA_STUB_LIBRARY = 34,
    CUDA_DEVICE_UNAVAILABLE = 46,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_IMAGE = 200,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_NO_BINARY_FOR_GPU = 209,
    CUDA_UNCORRECTABLE_ECC = 214,
    CUDA_INVALID_PTX = 218,
    CUDA_JIT_COMPILER_NOT_FOUND = 221,
    CUDA_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_NOT_FOUND = 500,
    CUDA_NOT_READY = 600,
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_LAUNCH_TIMEOUT = 702,
    CUDA_INVALID_HANDLE = 400,
    CUDA_CONTEXT_IS_DESTROYED = 709,
    CUDA_ASSERT = 710,
    CUDA_HARDWARE_STACK_ERROR = 714,
    CUDA_ILLEGAL_INSTRUCTION = 715,
    CUDA_MISALIGNED_ADDRESS = 716,
    CUDA_INVALID_ADDRESS_SPACE = 717,
    CUDA_INVALID_PROGRAM_COUNTER = 718,
    CUDA_LAUNCH_FAILED = 719,
    CUDA_TENSOR_MEMORY_LEAK = 721,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_SYSTEM_NOT_READY = 802,
    CUDA_SYSTEM_DRIVER_MISMATCH = 803,
    CUDA_COMPAT_NOT_SUPPORTED = 804,
};

enum cuda_device_attribute {
    CUDA_MAX_THREADS_PER_BLOCK = 1,
    CUDA_MAX_BLOCK_X = 2,
    CUDA_MAX_BLOCK_Y = 3,
    CUDA_MAX_BLOCK_Z = 4,
    CUDA_MAX_GRID_X = 5,
    CUDA_MAX_GRID_Y = 6,
    CUDA_MAX_GRID_Z = 7,
    CUDA_SHARED_PER_BLOCK = 8,
    CUDA_WARP_SIZE = 10,
    CUDA_REGISTERS_PER_BLOCK = 12,
    CUDA_CLOCK_KHZ = 13,
    CUDA_SM_COUNT = 16,
    CUDA_PCI_BUS = 33,
    CUDA_PCI_DEVICE = 34,
    CUDA_MEMORY_CLOCK_KHZ = 36,
    CUDA_MEMORY_BUS_BITS = 37,
    CUDA_L2_BYTES = 38,
    CUDA_MAX_THREADS_PER_SM = 39,
    CUDA_PCI_DOMAIN = 50,
    CUDA_MAJOR = 75,
    CUDA_MINOR = 76,
    CUDA_SHARED_PER_SM = 81,
    CUDA_REGISTERS_PER_SM = 82,
    CUDA_COOPERATIVE_LAUNCH = 95,
    CUDA_SHARED_OPTIN = 97,
    CUDA_CLUSTER_LAUNCH = 120,
};

enum cuda_function_attribute {
    CUDA_FUNCTION_MAX_THREADS = 0,
    CUDA_FUNCTION_STATIC_SHARED = 1,
    CUDA_FUNCTION_MAX_DYNAMIC_SHARED = 8,
    CUDA_FUNCTION_NON_PORTABLE_CLUSTER = 14,
};

enum cuda_pointer_attribute {
    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_POINTER_IS_MANAGED = 8,
    CUDA_POINTER_DEVICE = 9,
};

enum { CUDA_MEMORY_HOST = 1, CUDA_MEMORY_DEVICE = 2 };
enum { CUDA_CACHE_PREFER_SHARED = 1 };
enum { CUDA_CAPTURE_RELAXED = 2 };
enum { CUDA_HOST_PORTABLE = 1 };
enum { CUDA_JIT_ERROR_LOG = 5, CUDA_JIT_ERROR_LOG_BYTES = 6 };

enum cuda_launch_attribute_id {
    CUDA_ATTRIBUTE_COOPERATIVE = 2,
    CUDA_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CUDA_ATTRIBUTE_CLUSTER_SCHEDULING = 5,
    CUDA_ATTRIBUTE_PROGRAMMATIC_SERIALIZATION = 6,
    CUDA_ATTRIBUTE_DEVICE_UPDATABLE = 13, /* attribute of a graph node; since CUDA 12.4 */
};

enum { CUDA_CLUSTER_SPREAD = 1 };

struct cuda_launch_attribute {
    int32_t id;
    uint32_t padding;
    union {
        uint8_t bytes[64];
        uint64_t align;
        uint32_t values[16];
    } value;
};

struct cuda_launch_config {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    void *stream;
    const void *attributes;
    uint32_t attribute_count;
};

/* The value of the attribute CUDA_ATTRIBUTE_DEVICE_UPDATABLE: the union in struct
 * cuda_launch_attribute, as a type of its own. */
struct cuda_updatable_value {
    int32_t updatable; /* set to 1 */
    uint32_t padding;
    uint64_t handle; /* CUgraphDeviceNode, written by the driver */
    uint64_t rest[6];
};

/* CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h. */
struct cuda_kernel_node {
    void *function;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    void **params;
    void **extra;
    void *kernel; /* read if `function` is NULL */
    void *context;
};

struct cuda_tensor_map {
    _Alignas(64) uint64_t opaque[16];
};

_Static_assert(sizeof(struct cuda_launch_attribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(struct cuda_launch_config) == 56, "CUlaunchConfig");
_Static_assert(sizeof(struct cuda_updatable_value) == 64, "CUlaunchAttributeValue");
_Static_assert(sizeof(struct cuda_kernel_node) == 72, "CUDA_KERNEL_NODE_PARAMS_v2");
_Static_assert(sizeof(struct cuda_tensor_map) == 128 && _Alignof(struct cuda_tensor_map) == 64,
               "CUtensorMap");

#endif
