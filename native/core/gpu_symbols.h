/* The functions of GPU drivers that Silo uses, in one table for both drivers, from which each
 * driver declares and fills its function pointers. A function that one driver lacks, or that has
 * another type there, is NONE for that driver.
 *
 *     X(slot, result, (parameters), CUDA's place, need, name, HIP's place, need, name)
 *
 *     place  OWN: a pointer that only the driver's file (cuda_driver.c, hip_driver.c) uses; TABLE:
 *            the member of struct silo_gpu with the slot's name, whose type is checked
 *     need   NEEDED: a driver without the function is refused; OPTIONAL: the pointer is NULL if the
 *            driver lacks the function */
#ifndef SILO_GPU_SYMBOLS_H
#define SILO_GPU_SYMBOLS_H

#include "cuda_abi.h"
#include "hip_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define SILO_GPU_SYMBOLS(X)                                                                          \
    /* launches */                                                                                   \
    X(launch_config, int,                                                                            \
      (const struct cuda_launch_config *config, void *function, void **parameters, void **extra),    \
      OWN, NEEDED, cuLaunchKernelEx, NONE, NONE, NONE)                                               \
    X(launch_grid, int,                                                                              \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
       unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,         \
       void **extra),                                                                                \
      NONE, NONE, NONE, OWN, NEEDED, hipModuleLaunchKernel)                                          \
    X(launch_cooperative, int,                                                                       \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
       unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters),        \
      NONE, NONE, NONE, OWN, NEEDED, hipModuleLaunchCooperativeKernel)                               \
    /* graphs of kernels: all functions are there since CUDA 12.0 */                                 \
    X(graph_create, int,                                                                             \
      (void **graph, unsigned flags),                                                                \
      OWN, OPTIONAL, cuGraphCreate, NONE, NONE, NONE)                                                \
    X(graph_add, int,                                                                                \
      (void **node, void *graph, void *const *after, size_t after_count,                             \
       const struct cuda_kernel_node *params),                                                       \
      OWN, OPTIONAL, cuGraphAddKernelNode_v2, NONE, NONE, NONE)                                      \
    X(graph_add_graph, int,                                                                          \
      (void **node, void *graph, void *const *after, size_t after_count, void *child),               \
      OWN, OPTIONAL, cuGraphAddChildGraphNode, NONE, NONE, NONE)                                     \
    X(graph_attribute, int,                                                                          \
      (void *node, int attribute, const void *value),                                                \
      OWN, OPTIONAL, cuGraphKernelNodeSetAttribute, NONE, NONE, NONE)                                \
    X(graph_attribute_of, int,                                                                       \
      (void *node, int attribute, void *value),                                                      \
      OWN, OPTIONAL, cuGraphKernelNodeGetAttribute, NONE, NONE, NONE)                                \
    X(graph_instantiate, int,                                                                        \
      (void **executable, void *graph, unsigned long long flags),                                    \
      OWN, OPTIONAL, cuGraphInstantiateWithFlags, NONE, NONE, NONE)                                  \
    X(graph_upload, int,                                                                             \
      (void *executable, void *stream),                                                              \
      OWN, OPTIONAL, cuGraphUpload, NONE, NONE, NONE)                                                \
    X(graph_launch, int,                                                                             \
      (void *executable, void *stream),                                                              \
      OWN, OPTIONAL, cuGraphLaunch, NONE, NONE, NONE)                                                \
    X(graph_set, int,                                                                                \
      (void *executable, void *node, const struct cuda_kernel_node *params),                         \
      OWN, OPTIONAL, cuGraphExecKernelNodeSetParams_v2, NONE, NONE, NONE)                            \
    X(graph_enable, int,                                                                             \
      (void *executable, void *node, unsigned enabled),                                              \
      OWN, OPTIONAL, cuGraphNodeSetEnabled, NONE, NONE, NONE)                                        \
    X(graph_free, int,                                                                               \
      (void *executable),                                                                            \
      OWN, OPTIONAL, cuGraphExecDestroy, NONE, NONE, NONE)                                           \
    X(graph_destroy, int,                                                                            \
      (void *graph),                                                                                 \
      OWN, OPTIONAL, cuGraphDestroy, NONE, NONE, NONE)                                               \
    /* contexts; on HIP the current device */                                                        \
    X(context_get, int, (void **context),                                                            \
      OWN, NEEDED, cuCtxGetCurrent, NONE, NONE, NONE)                                                \
    X(context_set, int, (void *context),                                                             \
      OWN, NEEDED, cuCtxSetCurrent, NONE, NONE, NONE)                                                \
    X(context_push, int, (void *context),                                                            \
      OWN, NEEDED, cuCtxPushCurrent_v2, NONE, NONE, NONE)                                            \
    X(context_pop, int, (void **context),                                                            \
      OWN, NEEDED, cuCtxPopCurrent_v2, NONE, NONE, NONE)                                             \
    X(primary_retain, int, (void **context, int device),                                             \
      OWN, NEEDED, cuDevicePrimaryCtxRetain, NONE, NONE, NONE)                                       \
    X(device_now, int, (int *device),                                                                \
      OWN, NEEDED, cuCtxGetDevice, OWN, NEEDED, hipGetDevice)                                        \
    X(device_set, int, (int device),                                                                 \
      NONE, NONE, NONE, OWN, NEEDED, hipSetDevice)                                                   \
    X(capture_mode, int, (int *mode),                                                                \
      OWN, NEEDED, cuThreadExchangeStreamCaptureMode,                                                \
      OWN, NEEDED, hipThreadExchangeStreamCaptureMode)                                               \
    X(synchronize, int, (void),                                                                      \
      TABLE, NEEDED, cuCtxSynchronize, TABLE, NEEDED, hipDeviceSynchronize)                          \
    /* the driver and its errors */                                                                  \
    X(init, int, (unsigned flags),                                                                   \
      OWN, NEEDED, cuInit, OWN, NEEDED, hipInit)                                                     \
    X(version, int, (int *version),                                                                  \
      OWN, NEEDED, cuDriverGetVersion, OWN, NEEDED, hipDriverGetVersion)                             \
    X(find_error_name, int, (int code, const char **name),                                           \
      OWN, NEEDED, cuGetErrorName, NONE, NONE, NONE)                                                 \
    X(find_error_string, int, (int code, const char **text),                                         \
      OWN, NEEDED, cuGetErrorString, NONE, NONE, NONE)                                               \
    X(error_name, const char *, (int code),                                                          \
      NONE, NONE, NONE, OWN, NEEDED, hipGetErrorName)                                                \
    X(error_string, const char *, (int code),                                                        \
      NONE, NONE, NONE, OWN, NEEDED, hipGetErrorString)                                              \
    X(last_error, int, (void),                                                                       \
      NONE, NONE, NONE, OWN, NEEDED, hipGetLastError)                                                \
    /* devices; the UUID since CUDA 11.4 */                                                          \
    X(device_count, int, (int *count),                                                               \
      OWN, NEEDED, cuDeviceGetCount, OWN, NEEDED, hipGetDeviceCount)                                 \
    X(device_get, int, (int *device, int ordinal),                                                   \
      OWN, NEEDED, cuDeviceGet, NONE, NONE, NONE)                                                    \
    X(device_name, int, (char *name, int length, int device),                                        \
      OWN, NEEDED, cuDeviceGetName, NONE, NONE, NONE)                                                \
    X(device_memory, int, (size_t *bytes, int device),                                               \
      OWN, NEEDED, cuDeviceTotalMem_v2, OWN, NEEDED, hipDeviceTotalMem)                              \
    X(device_uuid, int, (void *uuid, int device),                                                    \
      OWN, OPTIONAL, cuDeviceGetUuid_v2, NONE, NONE, NONE)                                           \
    X(device_attribute, int, (int *value, int attribute, int device),                                \
      OWN, NEEDED, cuDeviceGetAttribute, OWN, NEEDED, hipDeviceGetAttribute)                         \
    X(properties, int, (struct hip_properties *properties, int device),                              \
      NONE, NONE, NONE, OWN, NEEDED, hipGetDevicePropertiesR0600)                                    \
    /* code; cuFuncLoad and cuFuncGetParamInfo since CUDA 12.4 */                                    \
    X(module_load_jit, int,                                                                          \
      (void **module, const void *image, unsigned count, int *options, void **values),               \
      OWN, NEEDED, cuModuleLoadDataEx, NONE, NONE, NONE)                                             \
    X(module_load_data, int, (void **module, const void *image),                                     \
      NONE, NONE, NONE, OWN, NEEDED, hipModuleLoadData)                                              \
    X(module_unload, int, (void *module),                                                            \
      TABLE, NEEDED, cuModuleUnload, TABLE, NEEDED, hipModuleUnload)                                 \
    X(module_function, int, (void **function, void *module, const char *name),                       \
      OWN, NEEDED, cuModuleGetFunction, TABLE, NEEDED, hipModuleGetFunction)                         \
    X(function_load, int, (void *function),                                                          \
      OWN, OPTIONAL, cuFuncLoad, NONE, NONE, NONE)                                                   \
    X(function_get, int, (int *value, int attribute, void *function),                                \
      OWN, NEEDED, cuFuncGetAttribute, OWN, NEEDED, hipFuncGetAttribute)                             \
    X(function_set, int, (void *function, int attribute, int value),                                 \
      OWN, NEEDED, cuFuncSetAttribute, NONE, NONE, NONE)                                             \
    X(function_cache, int, (void *function, int preference),                                         \
      OWN, NEEDED, cuFuncSetCacheConfig, NONE, NONE, NONE)                                           \
    X(function_parameter, int, (void *function, size_t index, size_t *offset, size_t *size),         \
      TABLE, OPTIONAL, cuFuncGetParamInfo, NONE, NONE, NONE)                                         \
    X(tensor_map_encode, int,                                                                        \
      (void *map, int dtype, uint32_t rank, void *address, const uint64_t *sizes,                    \
       const uint64_t *byte_strides, const uint32_t *box, const uint32_t *element_strides,           \
       int interleave, int swizzle, int l2_promotion, int oob_fill),                                 \
      TABLE, OPTIONAL, cuTensorMapEncodeTiled, NONE, NONE, NONE)                                     \
    /* memory */                                                                                     \
    X(memory_alloc, int, (uint64_t *address, size_t bytes),                                          \
      TABLE, NEEDED, cuMemAlloc_v2, TABLE, NEEDED, hipMalloc)                                        \
    X(memory_free, int, (uint64_t address),                                                          \
      TABLE, NEEDED, cuMemFree_v2, TABLE, NEEDED, hipFree)                                           \
    X(memory_alloc_async, int, (uint64_t *address, size_t bytes, void *stream),                      \
      TABLE, OPTIONAL, cuMemAllocAsync, OWN, OPTIONAL, hipMallocAsync)                               \
    X(memory_free_async, int, (uint64_t address, void *stream),                                      \
      TABLE, OPTIONAL, cuMemFreeAsync, OWN, OPTIONAL, hipFreeAsync)                                  \
    X(memory_info, int, (size_t *available, size_t *total),                                          \
      TABLE, NEEDED, cuMemGetInfo_v2, TABLE, NEEDED, hipMemGetInfo)                                  \
    X(host_alloc_flags, int, (void **memory, size_t bytes, unsigned flags),                          \
      OWN, NEEDED, cuMemHostAlloc, OWN, NEEDED, hipHostMalloc)                                       \
    X(host_free, int, (void *memory),                                                                \
      TABLE, NEEDED, cuMemFreeHost, TABLE, NEEDED, hipHostFree)                                      \
    X(copy, int, (uint64_t to, uint64_t from, size_t bytes, void *stream),                           \
      TABLE, NEEDED, cuMemcpyAsync, NONE, NONE, NONE)                                                \
    X(copy_kind, int, (void *to, const void *from, size_t bytes, int kind, void *stream),            \
      NONE, NONE, NONE, OWN, NEEDED, hipMemcpyAsync)                                                 \
    X(fill, int, (uint64_t address, unsigned char value, size_t bytes, void *stream),                \
      TABLE, NEEDED, cuMemsetD8Async, TABLE, NEEDED, hipMemsetD8Async)                               \
    X(pointer_attributes, int,                                                                       \
      (unsigned count, int *attributes, void **data, uint64_t address),                              \
      OWN, NEEDED, cuPointerGetAttributes, NONE, NONE, NONE)                                         \
    X(pointer_facts, int, (struct hip_pointer_attributes *attributes, const void *address),          \
      NONE, NONE, NONE, OWN, NEEDED, hipPointerGetAttributes)                                        \
    /* streams and events */                                                                         \
    X(stream_create, int, (void **stream, unsigned flags),                                           \
      TABLE, NEEDED, cuStreamCreate, TABLE, NEEDED, hipStreamCreateWithFlags)                        \
    X(stream_destroy, int, (void *stream),                                                           \
      TABLE, NEEDED, cuStreamDestroy_v2, TABLE, NEEDED, hipStreamDestroy)                            \
    X(stream_synchronize, int, (void *stream),                                                       \
      TABLE, NEEDED, cuStreamSynchronize, TABLE, NEEDED, hipStreamSynchronize)                       \
    X(stream_capturing, int, (void *stream, int *status),                                            \
      TABLE, NEEDED, cuStreamIsCapturing, TABLE, NEEDED, hipStreamIsCapturing)                       \
    X(event_create, int, (void **event, unsigned flags),                                             \
      TABLE, NEEDED, cuEventCreate, TABLE, NEEDED, hipEventCreateWithFlags)                          \
    X(event_destroy, int, (void *event),                                                             \
      TABLE, NEEDED, cuEventDestroy_v2, TABLE, NEEDED, hipEventDestroy)                              \
    X(event_record, int, (void *event, void *stream),                                                \
      TABLE, NEEDED, cuEventRecord, TABLE, NEEDED, hipEventRecord)                                   \
    X(event_query, int, (void *event),                                                               \
      TABLE, NEEDED, cuEventQuery, OWN, NEEDED, hipEventQuery)                                       \
    X(event_synchronize, int, (void *event),                                                         \
      TABLE, NEEDED, cuEventSynchronize, TABLE, NEEDED, hipEventSynchronize)                         \
    X(event_elapsed, int, (float *milliseconds, void *begin, void *end),                             \
      TABLE, NEEDED, cuEventElapsedTime, TABLE, NEEDED, hipEventElapsedTime)
/* clang-format on */

/* Select the columns of one driver for a macro ROW(slot, result, parameters, place, need, name). */
#define SILO_CUDA_COLUMNS(ROW, slot, result, parameters, place, need, name, ...)                   \
    ROW(slot, result, parameters, place, need, name)
#define SILO_HIP_COLUMNS(ROW, slot, result, parameters, cuda_place, cuda_need, cuda_name, place,   \
                         need, name)                                                               \
    ROW(slot, result, parameters, place, need, name)

/* ROW that declares the function pointers of OWN rows, in the driver file's struct. */
#define SILO_GPU_POINTER(slot, result, parameters, place, need, name)                              \
    SILO_GPU_POINTER_##place(slot, result, parameters)
#define SILO_GPU_POINTER_OWN(slot, result, parameters) result(*slot) parameters;
#define SILO_GPU_POINTER_TABLE(slot, result, parameters)
#define SILO_GPU_POINTER_NONE(slot, result, parameters)

/* ROW that makes an entry of struct silo_gpu_symbol. The including file defines SILO_GPU_OWN as its
 * own struct and SILO_GPU_TABLE as its struct silo_gpu. */
#define SILO_GPU_SYMBOL(slot, result, parameters, place, need, name)                               \
    SILO_GPU_SYMBOL_##place(slot, need, name)
#define SILO_GPU_SYMBOL_OWN(slot, need, name) {#name, SILO_GPU_IS_##need, &SILO_GPU_OWN.slot},
#define SILO_GPU_SYMBOL_TABLE(slot, need, name) {#name, SILO_GPU_IS_##need, &SILO_GPU_TABLE.slot},
#define SILO_GPU_SYMBOL_NONE(slot, need, name)

/* ROW that checks that a member of struct silo_gpu has the type in the table. */
#define SILO_GPU_TYPE(slot, result, parameters, place, need, name)                                 \
    SILO_GPU_TYPE_##place(slot, result, parameters)
#define SILO_GPU_TYPE_TABLE(slot, result, parameters)                                              \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((struct silo_gpu *)NULL)->slot),       \
                                                result(*) parameters),                             \
                   #slot);
#define SILO_GPU_TYPE_OWN(slot, result, parameters)
#define SILO_GPU_TYPE_NONE(slot, result, parameters)

#define SILO_GPU_IS_NEEDED false
#define SILO_GPU_IS_OPTIONAL true

/* The numbers that a driver reports about a device: X(member of struct silo_gpu_facts, need, name).
 * CUDA_<name> and HIP_<name> are the numbers of the drivers' attributes. An OPTIONAL number is -1
 * if the driver lacks it. */
#define SILO_GPU_QUESTIONS(X)                                                                      \
    X(sm_count, NEEDED, SM_COUNT)                                                                  \
    X(warp_size, NEEDED, WARP_SIZE)                                                                \
    X(max_threads_per_block, NEEDED, MAX_THREADS_PER_BLOCK)                                        \
    X(max_threads_per_sm, OPTIONAL, MAX_THREADS_PER_SM)                                            \
    X(registers_per_block, OPTIONAL, REGISTERS_PER_BLOCK)                                          \
    X(registers_per_sm, OPTIONAL, REGISTERS_PER_SM)                                                \
    X(shared_per_block, NEEDED, SHARED_PER_BLOCK)                                                  \
    X(shared_per_block_optin, OPTIONAL, SHARED_OPTIN)                                              \
    X(shared_per_sm, OPTIONAL, SHARED_PER_SM)                                                      \
    X(l2_bytes, OPTIONAL, L2_BYTES)                                                                \
    X(clock_khz, OPTIONAL, CLOCK_KHZ)                                                              \
    X(memory_clock_khz, OPTIONAL, MEMORY_CLOCK_KHZ)                                                \
    X(memory_bus_bits, OPTIONAL, MEMORY_BUS_BITS)                                                  \
    X(major, NEEDED, MAJOR)                                                                        \
    X(minor, NEEDED, MINOR)                                                                        \
    X(cooperative_launch, OPTIONAL, COOPERATIVE_LAUNCH)                                            \
    X(block_limit[0], NEEDED, MAX_BLOCK_X)                                                         \
    X(block_limit[1], NEEDED, MAX_BLOCK_Y)                                                         \
    X(block_limit[2], NEEDED, MAX_BLOCK_Z)                                                         \
    X(grid_limit[0], NEEDED, MAX_GRID_X)                                                           \
    X(grid_limit[1], NEEDED, MAX_GRID_Y)                                                           \
    X(grid_limit[2], NEEDED, MAX_GRID_Z)                                                           \
    X(pci_domain, OPTIONAL, PCI_DOMAIN)                                                            \
    X(pci_bus, OPTIONAL, PCI_BUS)                                                                  \
    X(pci_device, OPTIONAL, PCI_DEVICE)

#endif
