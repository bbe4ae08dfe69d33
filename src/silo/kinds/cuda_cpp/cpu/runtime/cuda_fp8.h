// Floats of 8 bits. Headers may declare them and functions that take them.
// A launch that converts a float of 8 bits fails.
#pragma once
#include <cuda_fp16.h>

typedef unsigned char __nv_fp8_storage_t;
typedef enum { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

namespace silo_cuda {
inline void no_fp8(Place place) {
    stop("a float of 8 bits (cuda_fp8.h) does not run on the CPU", place);
}
} // namespace silo_cuda

#define SILO_FP8(name)                                                                             \
    struct name {                                                                                  \
        __nv_fp8_storage_t __x;                                                                    \
        name() = default;                                                                          \
        template <class T> explicit name(T, SILO_HERE) : __x(0) {                                  \
            silo_cuda::no_fp8(place);                                                              \
        }                                                                                          \
        operator float() const {                                                                   \
            silo_cuda::no_fp8({});                                                                 \
            return 0;                                                                              \
        }                                                                                          \
    };
SILO_FP8(__nv_fp8_e4m3)
SILO_FP8(__nv_fp8_e5m2)

inline __half __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t, __nv_fp8_interpretation_t, SILO_HERE) {
    silo_cuda::no_fp8(place);
    return {};
}
template <class T>
inline __nv_fp8_storage_t __nv_cvt_to_fp8(T, __nv_saturation_t, __nv_fp8_interpretation_t,
                                          SILO_HERE) {
    silo_cuda::no_fp8(place);
    return 0;
}
#define __nv_cvt_float_to_fp8 __nv_cvt_to_fp8
#define __nv_cvt_double_to_fp8 __nv_cvt_to_fp8
#define __nv_cvt_halfraw_to_fp8 __nv_cvt_to_fp8
#define __nv_cvt_bfloat16raw_to_fp8 __nv_cvt_to_fp8
