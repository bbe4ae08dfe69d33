/* The part of the HIP runtime's ABI that Silo uses, declared by hand after hip_runtime_api.h of
 * ROCm 7.1. Attribute numbers are positions in `hipDeviceAttribute_t`; its CUDA-compatible part is
 * the same since ROCm 6.0. The layout that `hipGetDevicePropertiesR0600` fills is fixed by its
 * name. */
#ifndef SILO_HIP_ABI_H
#define SILO_HIP_ABI_H

#include <stddef.h>
#include <stdint.h>

enum hip_error {
    HIP_SUCCESS = 0,
    HIP_INVALID_VALUE = 1,
    HIP_DEINITIALIZED = 4,
};

enum hip_device_attribute {
    HIP_CLOCK_KHZ = 5,
    HIP_COOPERATIVE_LAUNCH = 10,
    HIP_L2_BYTES = 19,
    HIP_MAJOR = 23,
    HIP_MAX_BLOCK_X = 26,
    HIP_MAX_BLOCK_Y = 27,
    HIP_MAX_BLOCK_Z = 28,
    HIP_MAX_GRID_X = 29,
    HIP_MAX_GRID_Y = 30,
    HIP_MAX_GRID_Z = 31,
    HIP_MAX_THREADS_PER_BLOCK = 56,
    HIP_MAX_THREADS_PER_SM = 57,
    HIP_MEMORY_BUS_BITS = 59,
    HIP_MEMORY_CLOCK_KHZ = 60,
    HIP_MINOR = 61,
    HIP_SM_COUNT = 63,
    HIP_PCI_BUS = 67,
    HIP_PCI_DEVICE = 68,
    HIP_PCI_DOMAIN = 69,
    HIP_REGISTERS_PER_BLOCK = 71,
    HIP_REGISTERS_PER_SM = 72,
    HIP_SHARED_PER_BLOCK = 74,
    HIP_SHARED_OPTIN = 75,
    HIP_SHARED_PER_SM = 76,
    HIP_WARP_SIZE = 87,
};

enum hip_function_attribute {
    HIP_FUNCTION_MAX_THREADS = 0,
    HIP_FUNCTION_STATIC_SHARED = 1,
};

enum { HIP_MEMORY_HOST = 1, HIP_MEMORY_DEVICE = 2, HIP_MEMORY_MANAGED = 3 };
enum { HIP_COPY_DEFAULT = 4 };
enum { HIP_CAPTURE_RELAXED = 2 };
enum { HIP_HOST_PORTABLE = 1 };

/* hipPointerAttribute_t of hip_runtime_api.h. */
struct hip_pointer_attributes {
    int32_t type;
    int32_t device;
    void *device_pointer;
    void *host_pointer;
    int32_t is_managed;
    uint32_t flags;
};

/* hipDeviceProp_tR0600, with the members that Silo reads: 256 bytes of name and 16 of uuid come
 * first; `gcnArchName` follows the 95 reserved ints after the CUDA part (offset 1160). The
 * runtime's struct has 1472 bytes; this one is larger, for later versions. */
struct hip_properties {
    char name[256];
    uint8_t uuid[16];
    uint8_t unread[888];
    char arch[256];
    uint8_t rest[2680];
};

_Static_assert(sizeof(struct hip_pointer_attributes) == 32, "hipPointerAttribute_t");
_Static_assert(offsetof(struct hip_properties, arch) == 1160,
               "gcnArchName of hipDeviceProp_tR0600");
_Static_assert(sizeof(struct hip_properties) == 4096, "room for hipDeviceProp_t");

#endif
