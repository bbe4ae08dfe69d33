// <metal_math>: functions of real numbers; for half and bfloat computed in float and rounded once.
// The namespaces precise and fast have the same functions here.
#pragma once

#include "common.h"

namespace metal {

#define SILO_REAL1(name, expression)                                                               \
    inline float name(float x) {                                                                   \
        return expression;                                                                         \
    }                                                                                              \
    inline half name(half x) {                                                                     \
        return half(name(float(x)));                                                               \
    }                                                                                              \
    template <silo_metal::Bfloat T> inline T name(T x) {                                           \
        return T(name(float(x)));                                                                  \
    }                                                                                              \
    SILO_VECTOR1(name)
#define SILO_REAL2(name, expression)                                                               \
    inline float name(float x, float y) {                                                          \
        return expression;                                                                         \
    }                                                                                              \
    inline half name(half x, half y) {                                                             \
        return half(name(float(x), float(y)));                                                     \
    }                                                                                              \
    template <silo_metal::Bfloat T> inline T name(T x, T y) {                                      \
        return T(name(float(x), float(y)));                                                        \
    }                                                                                              \
    SILO_VECTOR2(name)
#define SILO_REAL3(name, expression)                                                               \
    inline float name(float x, float y, float z) {                                                 \
        return expression;                                                                         \
    }                                                                                              \
    inline half name(half x, half y, half z) {                                                     \
        return half(name(float(x), float(y), float(z)));                                           \
    }                                                                                              \
    template <silo_metal::Bfloat T> inline T name(T x, T y, T z) {                                 \
        return T(name(float(x), float(y), float(z)));                                              \
    }                                                                                              \
    SILO_VECTOR3(name)

} // namespace metal

namespace silo_metal {

constexpr double pi = 3.14159265358979323846L;

// Returns x minus a multiple of 2, to be multiplied by pi.
// For a large x, the product of x itself and pi would be inexact in float.
inline float turns(float x) {
    return x - 2.0f * __builtin_rintf(x * 0.5f);
}
inline float sinpi(float x) {
    const float r = turns(x), a = __builtin_fabsf(r);
    if (a == 1.0f)
        return __builtin_copysignf(0.0f, x);
    return float(__builtin_sin(double(r) * silo_metal::pi));
}
inline float cospi(float x) {
    const float a = __builtin_fabsf(turns(x));
    if (a == 0.5f)
        return 0.0f;
    return float(__builtin_cos(double(a) * silo_metal::pi));
}

} // namespace silo_metal

namespace metal {

SILO_REAL1(acos, __builtin_acosf(x))
SILO_REAL1(acosh, __builtin_acoshf(x))
SILO_REAL1(asin, __builtin_asinf(x))
SILO_REAL1(asinh, __builtin_asinhf(x))
SILO_REAL1(atan, __builtin_atanf(x))
SILO_REAL1(atanh, __builtin_atanhf(x))
SILO_REAL1(ceil, __builtin_ceilf(x))
SILO_REAL1(cos, __builtin_cosf(x))
SILO_REAL1(cosh, __builtin_coshf(x))
SILO_REAL1(cospi, silo_metal::cospi(x))
SILO_REAL1(exp, __builtin_expf(x))
SILO_REAL1(exp2, __builtin_exp2f(x))
SILO_REAL1(exp10, __builtin_powf(10.0f, x))
SILO_REAL1(fabs, __builtin_fabsf(x))
SILO_REAL1(floor, __builtin_floorf(x))
// The minimum keeps the result below 1 for an x slightly below 0.
SILO_REAL1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
SILO_REAL1(log, __builtin_logf(x))
SILO_REAL1(log2, __builtin_log2f(x))
SILO_REAL1(log10, __builtin_log10f(x))
SILO_REAL1(rint, __builtin_rintf(x))
SILO_REAL1(round, __builtin_roundf(x))
SILO_REAL1(rsqrt, 1.0f / __builtin_sqrtf(x))
SILO_REAL1(sin, __builtin_sinf(x))
SILO_REAL1(sinh, __builtin_sinhf(x))
SILO_REAL1(sinpi, silo_metal::sinpi(x))
SILO_REAL1(sqrt, __builtin_sqrtf(x))
SILO_REAL1(tan, __builtin_tanf(x))
SILO_REAL1(tanh, __builtin_tanhf(x))
SILO_REAL1(tanpi, silo_metal::sinpi(x) / silo_metal::cospi(x))
SILO_REAL1(trunc, __builtin_truncf(x))
SILO_REAL1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
SILO_REAL1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
SILO_REAL2(atan2, __builtin_atan2f(x, y))
SILO_REAL2(copysign, __builtin_copysignf(x, y))
SILO_REAL2(divide, x / y)
SILO_REAL2(fdim, __builtin_fdimf(x, y))
SILO_REAL2(fmax, __builtin_fmaxf(x, y))
SILO_REAL2(fmin, __builtin_fminf(x, y))
SILO_REAL2(fmod, __builtin_fmodf(x, y))
SILO_REAL2(pow, __builtin_powf(x, y))
SILO_REAL2(powr, __builtin_powf(x, y))
SILO_REAL2(step, y < x ? 0.0f : 1.0f)
SILO_REAL3(fma, __builtin_fmaf(x, y, z))
SILO_REAL3(mad, x *y + z)
SILO_REAL3(mix, x + (y - x) * z)
SILO_REAL3(fmax3, __builtin_fmaxf(x, __builtin_fmaxf(y, z)))
SILO_REAL3(fmin3, __builtin_fminf(x, __builtin_fminf(y, z)))
SILO_REAL3(fmedian3,
           __builtin_fmaxf(__builtin_fminf(x, y), __builtin_fminf(__builtin_fmaxf(x, y), z)))

inline float smoothstep(float low, float high, float x) {
    const float t = saturate((x - low) / (high - low));
    return t * t * (3.0f - 2.0f * t);
}
inline half smoothstep(half low, half high, half x) {
    return half(smoothstep(float(low), float(high), float(x)));
}
SILO_VECTOR3(smoothstep)

inline float nextafter(float x, float y) {
    return __builtin_nextafterf(x, y);
}
inline half nextafter(half x, half y) {
    if (x != x || y != y)
        return half(NAN);
    if (x == y)
        return y;
    short bits = __builtin_bit_cast(short, x);
    if ((bits & 0x7fff) == 0)
        return __builtin_bit_cast(half, short(y > half(0) ? 1 : -32767));
    bits += (x < y) == (bits >= 0) ? 1 : -1;
    return __builtin_bit_cast(half, bits);
}
SILO_VECTOR2(nextafter)

inline float ldexp(float x, int k) {
    return __builtin_ldexpf(x, k);
}
inline half ldexp(half x, int k) {
    return half(__builtin_ldexpf(float(x), k));
}
template <class T, int n> inline vec<T, n> ldexp(vec<T, n> x, vec<int, n> k) {
    vec<T, n> result;
    for (int i = 0; i < n; i++)
        result.e[i] = ldexp(x.e[i], k.e[i]);
    return result;
}
inline int ilogb(float x) {
    return __builtin_ilogbf(x);
}
inline int ilogb(half x) {
    return __builtin_ilogbf(float(x));
}
template <class T, int n> inline vec<int, n> ilogb(vec<T, n> x) {
    vec<int, n> result;
    for (int i = 0; i < n; i++)
        result.e[i] = ilogb(x.e[i]);
    return result;
}

// Functions that store a second result through a reference.
inline float frexp(float x, thread int &exponent) {
    return __builtin_frexpf(x, &exponent);
}
inline half frexp(half x, thread int &exponent) {
    return half(__builtin_frexpf(float(x), &exponent));
}
inline float modf(float x, thread float &whole) {
    return __builtin_modff(x, &whole);
}
inline half modf(half x, thread half &whole) {
    whole = trunc(x);
    return copysign(half(x - whole), x);
}
inline float sincos(float x, thread float &cosine) {
    cosine = cos(x);
    return sin(x);
}
inline half sincos(half x, thread half &cosine) {
    cosine = cos(x);
    return sin(x);
}
template <class T, int n> inline vec<T, n> frexp(vec<T, n> x, thread vec<int, n> &exponent) {
    vec<T, n> result;
    for (int i = 0; i < n; i++)
        result.e[i] = frexp(x.e[i], exponent.e[i]);
    return result;
}
template <class T, int n> inline vec<T, n> modf(vec<T, n> x, thread vec<T, n> &whole) {
    vec<T, n> result;
    for (int i = 0; i < n; i++)
        result.e[i] = modf(x.e[i], whole.e[i]);
    return result;
}
template <class T, int n> inline vec<T, n> sincos(vec<T, n> x, thread vec<T, n> &cosine) {
    cosine = cos(x);
    return sin(x);
}

inline float abs(float x) {
    return __builtin_fabsf(x);
}
inline half abs(half x) {
    return fabs(x);
}
template <silo_metal::Bfloat T> inline T abs(T x) {
    return fabs(x);
}
// The lowest value of a signed type is returned unchanged, as its absolute value is out of range.
template <silo_metal::Integer T> constexpr T abs(T x) {
    return x < 0 ? T(-ulong(x)) : x;
}
SILO_VECTOR1(abs)

// Using declarations, because a text may define functions of bfloats in these namespaces.
// Such functions would hide the functions that a using directive makes visible.
// A call with a float would then call the text's function.
#define SILO_MATH_NAMES                                                                            \
    using metal::abs;                                                                              \
    using metal::acos;                                                                             \
    using metal::acosh;                                                                            \
    using metal::asin;                                                                             \
    using metal::asinh;                                                                            \
    using metal::atan;                                                                             \
    using metal::atan2;                                                                            \
    using metal::atanh;                                                                            \
    using metal::ceil;                                                                             \
    using metal::clamp;                                                                            \
    using metal::copysign;                                                                         \
    using metal::cos;                                                                              \
    using metal::cosh;                                                                             \
    using metal::cospi;                                                                            \
    using metal::divide;                                                                           \
    using metal::exp;                                                                              \
    using metal::exp10;                                                                            \
    using metal::exp2;                                                                             \
    using metal::fabs;                                                                             \
    using metal::fdim;                                                                             \
    using metal::floor;                                                                            \
    using metal::fma;                                                                              \
    using metal::fmax;                                                                             \
    using metal::fmax3;                                                                            \
    using metal::fmedian3;                                                                         \
    using metal::fmin;                                                                             \
    using metal::fmin3;                                                                            \
    using metal::fmod;                                                                             \
    using metal::fract;                                                                            \
    using metal::frexp;                                                                            \
    using metal::ldexp;                                                                            \
    using metal::log;                                                                              \
    using metal::log10;                                                                            \
    using metal::log2;                                                                             \
    using metal::mad;                                                                              \
    using metal::max;                                                                              \
    using metal::max3;                                                                             \
    using metal::median3;                                                                          \
    using metal::min;                                                                              \
    using metal::min3;                                                                             \
    using metal::mix;                                                                              \
    using metal::modf;                                                                             \
    using metal::nextafter;                                                                        \
    using metal::pow;                                                                              \
    using metal::powr;                                                                             \
    using metal::rint;                                                                             \
    using metal::round;                                                                            \
    using metal::rsqrt;                                                                            \
    using metal::saturate;                                                                         \
    using metal::sign;                                                                             \
    using metal::sin;                                                                              \
    using metal::sincos;                                                                           \
    using metal::sinh;                                                                             \
    using metal::sinpi;                                                                            \
    using metal::smoothstep;                                                                       \
    using metal::sqrt;                                                                             \
    using metal::step;                                                                             \
    using metal::tan;                                                                              \
    using metal::tanh;                                                                             \
    using metal::tanpi;                                                                            \
    using metal::trunc;
namespace precise {
using namespace metal;
SILO_MATH_NAMES
} // namespace precise
namespace fast {
using namespace metal;
SILO_MATH_NAMES
} // namespace fast
#undef SILO_MATH_NAMES

} // namespace metal
