#include "memory_types.h"

#include "cuda_driver.h"
#include "dlpack.h"
#include "hip_driver.h"

struct silo_gpu *const silo_gpus[] = {&silo_cuda, &silo_hip, NULL};

static const struct silo_memory_type types[] = {
    [SILO_DEVICE_CPU] = {.name = "cpu"},
    [SILO_DEVICE_CUDA] = {.name = "cuda", .gpu = &silo_cuda},
    [SILO_DEVICE_CUDA_HOST] = {.name = "pinned host memory", .gpu = &silo_cuda, .shared = true},
    [SILO_DEVICE_OPENCL] = {.name = "opencl"},
    [SILO_DEVICE_VULKAN] = {.name = "vulkan"},
    [SILO_DEVICE_METAL] = {.name = "metal"},
    [SILO_DEVICE_ROCM] = {.name = "rocm", .gpu = &silo_hip},
    [SILO_DEVICE_ROCM_HOST] = {.name = "pinned host memory", .gpu = &silo_hip, .shared = true},
    [SILO_DEVICE_CUDA_MANAGED] = {.name = "managed memory", .gpu = &silo_cuda, .shared = true},
    [SILO_DEVICE_ONEAPI] = {.name = "xpu"},
};

const struct silo_memory_type *silo_memory_type(int32_t type) {
    static const struct silo_memory_type unknown = {.name = "an unknown device"};
    const bool is_known =
        type >= 0 && (size_t)type < sizeof types / sizeof *types && types[type].name != NULL;
    return is_known ? &types[type] : &unknown;
}

struct silo_gpu *silo_gpu_usual(void) {
    for (struct silo_gpu *const *gpu = silo_gpus; *gpu != NULL; gpu++)
        if ((*gpu)->open)
            return *gpu;
    return silo_gpus[0];
}

struct silo_gpu *silo_gpu_of_memory(int32_t type) {
    struct silo_gpu *gpu = silo_memory_type(type)->gpu;
    return gpu != NULL && gpu->open ? gpu : NULL;
}
