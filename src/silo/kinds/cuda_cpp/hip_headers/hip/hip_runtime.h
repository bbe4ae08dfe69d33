/* The part of HIP's and CUDA's language that kernels need, on top of clang's own headers; ROCm is
 * not read. Functions with CUDA's names (..._sync) treat 32 lanes as a warp on every chip, so
 * kernels that assume 32 stay correct if a wavefront has 64. HIP's own names work on whole
 * wavefronts. */
#pragma once

#define __HIPCC_RTC__ 1
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(most, ...) __attribute__((amdgpu_flat_work_group_size(1, most)))
#define __grid_constant__
#define __ldg(address) (*(address))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

typedef __SIZE_TYPE__ size_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __INT8_TYPE__ int8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT16_TYPE__ int16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INT64_TYPE__ int64_t;
typedef unsigned int uint;

#include <limits.h>

#include <__clang_hip_libdevice_declares.h>
#include <__clang_hip_math.h>

extern "C" __device__ __attribute__((const)) size_t __ockl_get_local_size(uint);
extern "C" __device__ __attribute__((const)) size_t __ockl_get_num_groups(uint);

struct dim3 {
    unsigned x, y, z;
    __host__ __device__ constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1)
        : x(x), y(y), z(z) {}
};

/* threadIdx.x and the like: objects without memory, whose members call a builtin. */
#define SILO_AXIS(name, axis, value)                                                               \
    struct name##_##axis {                                                                         \
        __device__ operator unsigned() const {                                                     \
            return value;                                                                          \
        }                                                                                          \
    };
#define SILO_PLACE(name, of_x, of_y, of_z)                                                         \
    SILO_AXIS(name, x, of_x)                                                                       \
    SILO_AXIS(name, y, of_y)                                                                       \
    SILO_AXIS(name, z, of_z)                                                                       \
    struct name##_type {                                                                           \
        name##_x x;                                                                                \
        name##_y y;                                                                                \
        name##_z z;                                                                                \
        __device__ operator dim3() const {                                                         \
            return {x, y, z};                                                                      \
        }                                                                                          \
    };                                                                                             \
    static constexpr __device__ name##_type name{};
SILO_PLACE(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
           __builtin_amdgcn_workitem_id_z())
SILO_PLACE(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
           __builtin_amdgcn_workgroup_id_z())
SILO_PLACE(blockDim, unsigned(__ockl_get_local_size(0)), unsigned(__ockl_get_local_size(1)),
           unsigned(__ockl_get_local_size(2)))
SILO_PLACE(gridDim, unsigned(__ockl_get_num_groups(0)), unsigned(__ockl_get_num_groups(1)),
           unsigned(__ockl_get_num_groups(2)))
#undef SILO_PLACE
#undef SILO_AXIS

static constexpr __device__ int warpSize = SILO_WARP_SIZE;

__device__ inline void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ inline void __syncwarp(unsigned = ~0u) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
__device__ inline void __threadfence() {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
__device__ inline void __threadfence_block() {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
}

/* ---- Shuffles and votes ---- */

__device__ inline unsigned __lane_id() {
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}

/* Returns the value of lane `lane` of the wavefront. */
template <class T> __device__ inline T silo_of_lane(T value, unsigned lane) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle takes values of 4 or 8 bytes");
    int words[sizeof(T) / 4];
    __builtin_memcpy(words, &value, sizeof value);
    for (unsigned i = 0; i < sizeof(T) / 4; i++)
        words[i] = __builtin_amdgcn_ds_bpermute(int(lane * 4), words[i]);
    __builtin_memcpy(&value, words, sizeof value);
    return value;
}
template <class T> __device__ inline T __shfl(T value, int lane, int width = warpSize) {
    const unsigned own = __lane_id(), first = own & ~(width - 1u);
    return silo_of_lane(value, first + (unsigned(lane) & (width - 1u)));
}
template <class T> __device__ inline T __shfl_xor(T value, int mask, int width = warpSize) {
    const unsigned own = __lane_id(), other = own ^ unsigned(mask);
    return silo_of_lane(value, other < ((own + width) & ~(width - 1u)) ? other : own);
}
template <class T> __device__ inline T __shfl_down(T value, unsigned by, int width = warpSize) {
    const unsigned own = __lane_id();
    return silo_of_lane(value, (own & (width - 1u)) + by < unsigned(width) ? own + by : own);
}
template <class T> __device__ inline T __shfl_up(T value, unsigned by, int width = warpSize) {
    const unsigned own = __lane_id();
    return silo_of_lane(value, (own & (width - 1u)) >= by ? own - by : own);
}
template <class T> __device__ inline T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    return __shfl(value, lane, width);
}
template <class T> __device__ inline T __shfl_xor_sync(unsigned, T value, int by, int width = 32) {
    return __shfl_xor(value, by, width);
}
template <class T>
__device__ inline T __shfl_down_sync(unsigned, T value, unsigned by, int width = 32) {
    return __shfl_down(value, by, width);
}
template <class T>
__device__ inline T __shfl_up_sync(unsigned, T value, unsigned by, int width = 32) {
    return __shfl_up(value, by, width);
}
/* Returns those lanes, of the caller's group of 32, for which `set` is not 0. */
__device__ inline unsigned __ballot_sync(unsigned mask, int set) {
#if SILO_WARP_SIZE == 64
    return unsigned(__builtin_amdgcn_ballot_w64(set != 0) >> (__lane_id() & 32u)) & mask;
#else
    return __builtin_amdgcn_ballot_w32(set != 0) & mask;
#endif
}
__device__ inline int __any_sync(unsigned mask, int set) {
    return __ballot_sync(mask, set) != 0;
}
__device__ inline int __all_sync(unsigned mask, int set) {
    return __ballot_sync(mask, !set) == 0;
}
__device__ inline unsigned __activemask() {
    return __ballot_sync(~0u, 1);
}

/* ---- Atomics, with the scope of the device and relaxed order, as in CUDA ---- */

#define SILO_ATOMIC(type)                                                                          \
    __device__ inline type atomicAdd(type *at, type value) {                                       \
        return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);      \
    }                                                                                              \
    __device__ inline type atomicExch(type *at, type value) {                                      \
        return __hip_atomic_exchange(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);       \
    }
#define SILO_ATOMIC_INTEGER(type)                                                                  \
    SILO_ATOMIC(type)                                                                              \
    __device__ inline type atomicSub(type *at, type value) {                                       \
        return __hip_atomic_fetch_add(at, -value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);     \
    }                                                                                              \
    __device__ inline type atomicMax(type *at, type value) {                                       \
        return __hip_atomic_fetch_max(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);      \
    }                                                                                              \
    __device__ inline type atomicMin(type *at, type value) {                                       \
        return __hip_atomic_fetch_min(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);      \
    }                                                                                              \
    __device__ inline type atomicAnd(type *at, type value) {                                       \
        return __hip_atomic_fetch_and(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);      \
    }                                                                                              \
    __device__ inline type atomicOr(type *at, type value) {                                        \
        return __hip_atomic_fetch_or(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);       \
    }                                                                                              \
    __device__ inline type atomicXor(type *at, type value) {                                       \
        return __hip_atomic_fetch_xor(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);      \
    }                                                                                              \
    __device__ inline type atomicCAS(type *at, type expected, type value) {                        \
        __hip_atomic_compare_exchange_strong(at, &expected, value, __ATOMIC_RELAXED,               \
                                             __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);          \
        return expected;                                                                           \
    }
SILO_ATOMIC(float)
SILO_ATOMIC(double)
SILO_ATOMIC_INTEGER(int)
SILO_ATOMIC_INTEGER(unsigned)
SILO_ATOMIC_INTEGER(unsigned long long)
#undef SILO_ATOMIC_INTEGER
#undef SILO_ATOMIC

/* ---- Small functions and vectors ---- */

__device__ inline int __float_as_int(float x) {
    return __builtin_bit_cast(int, x);
}
__device__ inline float __int_as_float(int x) {
    return __builtin_bit_cast(float, x);
}
__device__ inline unsigned __float_as_uint(float x) {
    return __builtin_bit_cast(unsigned, x);
}
__device__ inline float __uint_as_float(unsigned x) {
    return __builtin_bit_cast(float, x);
}

#define SILO_VECTOR(type, name)                                                                    \
    struct name##2 {                                                                               \
        type x, y;                                                                                 \
    }                                                                                              \
    __attribute__((aligned(2 * sizeof(type))));                                                    \
    struct name##3 {                                                                               \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct name##4 {                                                                               \
        type x, y, z, w;                                                                           \
    }                                                                                              \
    __attribute__((aligned(sizeof(type) < 8 ? 4 * sizeof(type) : 16)));                            \
    __device__ inline name##2 make_##name##2(type x, type y) {                                     \
        return {x, y};                                                                             \
    }                                                                                              \
    __device__ inline name##3 make_##name##3(type x, type y, type z) {                             \
        return {x, y, z};                                                                          \
    }                                                                                              \
    __device__ inline name##4 make_##name##4(type x, type y, type z, type w) {                     \
        return {x, y, z, w};                                                                       \
    }
SILO_VECTOR(float, float)
SILO_VECTOR(double, double)
SILO_VECTOR(int, int)
SILO_VECTOR(unsigned, uint)
SILO_VECTOR(unsigned char, uchar)
#undef SILO_VECTOR
