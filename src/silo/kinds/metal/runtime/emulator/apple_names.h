// Internal functions of Apple's headers that some texts call. The last argument selects fast math.
#pragma once

#include "integer.h"
#include "math.h"
#include "simd.h"

namespace silo_metal {
struct MathMode {};
} // namespace silo_metal
#define __METAL_MAYBE_FAST_MATH__                                                                  \
    ::silo_metal::MathMode {}
#define __METAL_FAST_MATH__                                                                        \
    ::silo_metal::MathMode {}
#define __METAL_PRECISE_MATH__                                                                     \
    ::silo_metal::MathMode {}
#define __METAL_MEMORY_SCOPE_SYSTEM__ 0

#define SILO_APPLE1(name)                                                                          \
    template <class T> inline T __metal_##name(T x, silo_metal::MathMode) {                        \
        return metal::name(x);                                                                     \
    }
#define SILO_APPLE2(name)                                                                          \
    template <class T> inline T __metal_##name(T x, T y, silo_metal::MathMode) {                   \
        return metal::name(x, y);                                                                  \
    }
#define SILO_APPLE3(name)                                                                          \
    template <class T> inline T __metal_##name(T x, T y, T z, silo_metal::MathMode) {              \
        return metal::name(x, y, z);                                                               \
    }
SILO_APPLE1(acos)
SILO_APPLE1(acosh)
SILO_APPLE1(asin)
SILO_APPLE1(asinh)
SILO_APPLE1(atan)
SILO_APPLE1(atanh)
SILO_APPLE1(ceil)
SILO_APPLE1(cos)
SILO_APPLE1(cosh)
SILO_APPLE1(cospi)
SILO_APPLE1(exp)
SILO_APPLE1(exp10)
SILO_APPLE1(exp2)
SILO_APPLE1(fabs)
SILO_APPLE1(floor)
SILO_APPLE1(fract)
SILO_APPLE1(log)
SILO_APPLE1(log10)
SILO_APPLE1(log2)
SILO_APPLE1(rint)
SILO_APPLE1(round)
SILO_APPLE1(rsqrt)
SILO_APPLE1(sin)
SILO_APPLE1(sinh)
SILO_APPLE1(sinpi)
SILO_APPLE1(sqrt)
SILO_APPLE1(tan)
SILO_APPLE1(tanh)
SILO_APPLE1(tanpi)
SILO_APPLE1(trunc)
SILO_APPLE2(atan2)
SILO_APPLE2(fmax)
SILO_APPLE2(fmin)
SILO_APPLE2(fmod)
SILO_APPLE2(pow)
SILO_APPLE2(powr)
SILO_APPLE3(fmax3)
SILO_APPLE3(fmedian3)
SILO_APPLE3(fmin3)
#undef SILO_APPLE1
#undef SILO_APPLE2
#undef SILO_APPLE3

template <class T> inline T __metal_divide(T x, T y, silo_metal::MathMode) {
    return x / y;
}
template <class T> inline T __metal_fma(T x, T y, T z) {
    return metal::fma(x, y, z);
}
template <class T> inline T __metal_nextafter(T x, T y) {
    return metal::nextafter(x, y);
}
template <class T> inline T __metal_ldexp(T x, int k, silo_metal::MathMode) {
    return metal::ldexp(x, k);
}
template <class T> inline T __metal_frexp(T x, int *exponent) {
    return metal::frexp(x, *exponent);
}
inline ushort __metal_get_simdgroup_size(ushort) {
    return 32;
}
#define __metal_simd_broadcast ::metal::simd_broadcast
#define __metal_simd_max ::metal::simd_max
#define __metal_simd_min ::metal::simd_min
#define __metal_simd_prefix_exclusive_product ::metal::simd_prefix_exclusive_product
#define __metal_simd_prefix_exclusive_sum ::metal::simd_prefix_exclusive_sum
#define __metal_simd_prefix_inclusive_product ::metal::simd_prefix_inclusive_product
#define __metal_simd_prefix_inclusive_sum ::metal::simd_prefix_inclusive_sum
#define __metal_simd_product ::metal::simd_product
#define __metal_simd_shuffle ::metal::simd_shuffle
#define __metal_simd_shuffle_and_fill_down ::metal::simd_shuffle_and_fill_down
#define __metal_simd_shuffle_and_fill_up ::metal::simd_shuffle_and_fill_up
#define __metal_simd_shuffle_down ::metal::simd_shuffle_down
#define __metal_simd_shuffle_rotate_down ::metal::simd_shuffle_rotate_down
#define __metal_simd_shuffle_rotate_up ::metal::simd_shuffle_rotate_up
#define __metal_simd_shuffle_up ::metal::simd_shuffle_up
#define __metal_simd_shuffle_xor ::metal::simd_shuffle_xor
#define __metal_simd_sum ::metal::simd_sum
template <class T> inline T __metal_simd_xor(T x) {
    if constexpr (__is_same(T, float))
        return __builtin_bit_cast(float, metal::simd_xor(__builtin_bit_cast(uint, x)));
    else
        return metal::simd_xor(x);
}
