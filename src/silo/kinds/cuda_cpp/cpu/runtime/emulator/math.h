// Mathematical functions. Fast ones (__expf) are as exact as the others here.
#pragma once

#include "vectors.h"

#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define HUGE_VAL __builtin_inf()
#define HUGE_VALF __builtin_inff()
#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_PI_F 3.141592654f
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI 3.1415926535897931e+0

// Defines name(float), name(double), name(integer) and namef(float).
#define SILO_REAL1(name)                                                                           \
    inline float name##f(float x) {                                                                \
        return __builtin_##name##f(x);                                                             \
    }                                                                                              \
    inline float name(float x) {                                                                   \
        return __builtin_##name##f(x);                                                             \
    }                                                                                              \
    inline double name(double x) {                                                                 \
        return __builtin_##name(x);                                                                \
    }                                                                                              \
    template <silo_cuda::Integral T> inline double name(T x) {                                     \
        return __builtin_##name(double(x));                                                        \
    }
#define SILO_REAL2(name)                                                                           \
    inline float name##f(float x, float y) {                                                       \
        return __builtin_##name##f(x, y);                                                          \
    }                                                                                              \
    inline float name(float x, float y) {                                                          \
        return __builtin_##name##f(x, y);                                                          \
    }                                                                                              \
    inline double name(double x, double y) {                                                       \
        return __builtin_##name(x, y);                                                             \
    }                                                                                              \
    template <silo_cuda::Arithmetic A, silo_cuda::Arithmetic B> inline double name(A x, B y) {     \
        return __builtin_##name(double(x), double(y));                                             \
    }
SILO_REAL1(acos)
SILO_REAL1(acosh)
SILO_REAL1(asin)
SILO_REAL1(asinh)
SILO_REAL1(atan)
SILO_REAL1(atanh)
SILO_REAL1(cbrt)
SILO_REAL1(ceil)
SILO_REAL1(cos)
SILO_REAL1(cosh)
SILO_REAL1(erf)
SILO_REAL1(erfc)
SILO_REAL1(exp)
SILO_REAL1(exp2)
SILO_REAL1(expm1)
SILO_REAL1(fabs)
SILO_REAL1(floor)
SILO_REAL1(lgamma)
SILO_REAL1(log)
SILO_REAL1(log10)
SILO_REAL1(log1p)
SILO_REAL1(log2)
SILO_REAL1(logb)
SILO_REAL1(nearbyint)
SILO_REAL1(rint)
SILO_REAL1(round)
SILO_REAL1(sin)
SILO_REAL1(sinh)
SILO_REAL1(sqrt)
SILO_REAL1(tan)
SILO_REAL1(tanh)
SILO_REAL1(tgamma)
SILO_REAL1(trunc)
SILO_REAL2(atan2)
SILO_REAL2(copysign)
SILO_REAL2(fdim)
SILO_REAL2(fmax)
SILO_REAL2(fmin)
SILO_REAL2(fmod)
SILO_REAL2(hypot)
SILO_REAL2(nextafter)
SILO_REAL2(pow)
SILO_REAL2(remainder)

#define SILO_REAL_TO(type, name)                                                                   \
    inline type name##f(float x) {                                                                 \
        return __builtin_##name##f(x);                                                             \
    }                                                                                              \
    inline type name(float x) {                                                                    \
        return __builtin_##name##f(x);                                                             \
    }                                                                                              \
    inline type name(double x) {                                                                   \
        return __builtin_##name(x);                                                                \
    }
SILO_REAL_TO(int, ilogb)
SILO_REAL_TO(long, lrint)
SILO_REAL_TO(long, lround)
SILO_REAL_TO(long long, llrint)
SILO_REAL_TO(long long, llround)

#define SILO_BOTH(T, f)                                                                            \
    inline T fma(T x, T y, T z) {                                                                  \
        return __builtin_fma##f(x, y, z);                                                          \
    }                                                                                              \
    inline T rsqrt(T x) {                                                                          \
        return T(1) / __builtin_sqrt##f(x);                                                        \
    }                                                                                              \
    inline T rcbrt(T x) {                                                                          \
        return T(1) / __builtin_cbrt##f(x);                                                        \
    }                                                                                              \
    inline T exp10(T x) {                                                                          \
        return T(__builtin_pow(10.0, double(x)));                                                  \
    }                                                                                              \
    inline T ldexp(T x, int k) {                                                                   \
        return __builtin_ldexp##f(x, k);                                                           \
    }                                                                                              \
    inline T scalbn(T x, int k) {                                                                  \
        return __builtin_ldexp##f(x, k);                                                           \
    }                                                                                              \
    inline T frexp(T x, int *k) {                                                                  \
        return __builtin_frexp##f(x, k);                                                           \
    }                                                                                              \
    inline T modf(T x, T *whole) {                                                                 \
        return __builtin_modf##f(x, whole);                                                        \
    }                                                                                              \
    inline void sincos(T x, T *s, T *c) {                                                          \
        const T angle = x; /* a copy: s may point to the memory that x was read from */            \
        *s = __builtin_sin##f(angle);                                                              \
        *c = __builtin_cos##f(angle);                                                              \
    }                                                                                              \
    inline bool isnan(T x) {                                                                       \
        return x != x;                                                                             \
    }                                                                                              \
    inline bool isinf(T x) {                                                                       \
        return __builtin_isinf(x);                                                                 \
    }                                                                                              \
    inline bool isfinite(T x) {                                                                    \
        return __builtin_isfinite(x);                                                              \
    }                                                                                              \
    inline bool signbit(T x) {                                                                     \
        return __builtin_signbit(x);                                                               \
    }                                                                                              \
    inline T abs(T x) {                                                                            \
        return __builtin_fabs##f(x);                                                               \
    }                                                                                              \
    inline T normcdf(T x) {                                                                        \
        return T(0.5 * __builtin_erfc(-double(x) * M_SQRT1_2));                                    \
    }                                                                                              \
    inline T sinpi(T x) {                                                                          \
        return T(__builtin_sin(__builtin_fmod(double(x), 2.0) * M_PI));                            \
    }                                                                                              \
    inline T cospi(T x) {                                                                          \
        return T(__builtin_cos(__builtin_fmod(double(x), 2.0) * M_PI));                            \
    }
SILO_BOTH(float, f)
SILO_BOTH(double, )
#define SILO_WITH_F(name, parameters, arguments)                                                   \
    inline float name##f parameters {                                                              \
        return name arguments;                                                                     \
    }
SILO_WITH_F(fma, (float x, float y, float z), (x, y, z))
SILO_WITH_F(rsqrt, (float x), (x))
SILO_WITH_F(rcbrt, (float x), (x))
SILO_WITH_F(exp10, (float x), (x))
SILO_WITH_F(ldexp, (float x, int k), (x, k))
SILO_WITH_F(scalbn, (float x, int k), (x, k))
SILO_WITH_F(frexp, (float x, int *k), (x, k))
SILO_WITH_F(modf, (float x, float *whole), (x, whole))
SILO_WITH_F(normcdf, (float x), (x))
SILO_WITH_F(sinpi, (float x), (x))
SILO_WITH_F(cospi, (float x), (x))
inline void sincosf(float x, float *s, float *c) {
    sincos(x, s, c);
}
inline void sincospif(float x, float *s, float *c) {
    const float angle = x;
    *s = sinpi(angle);
    *c = cospi(angle);
}
inline float fdividef(float x, float y) {
    return x / y;
}

// The lowest value of a signed type is returned unchanged, as its absolute value is out of range.
inline int abs(int x) {
    return x < 0 ? int(-unsigned(x)) : x;
}
inline long abs(long x) {
    return x < 0 ? long(-(unsigned long)x) : x;
}
inline long long abs(long long x) {
    return x < 0 ? (long long)(-(unsigned long long)x) : x;
}
inline long labs(long x) {
    return abs(x);
}
inline long long llabs(long long x) {
    return abs(x);
}

// If one of the two numbers is NaN, the result is the other.
template <silo_cuda::Arithmetic A, silo_cuda::Arithmetic B> constexpr auto max(A a, B b) {
    using T = decltype(a + b);
    const T x = T(a), y = T(b);
    if constexpr (__is_floating_point(T))
        return x > y || y != y ? x : y;
    else
        return x > y ? x : y;
}
template <silo_cuda::Arithmetic A, silo_cuda::Arithmetic B> constexpr auto min(A a, B b) {
    using T = decltype(a + b);
    const T x = T(a), y = T(b);
    if constexpr (__is_floating_point(T))
        return x < y || y != y ? x : y;
    else
        return x < y ? x : y;
}
#define SILO_LEAST_MOST(T, most, least)                                                            \
    inline T most(T a, T b) {                                                                      \
        return a > b ? a : b;                                                                      \
    }                                                                                              \
    inline T least(T a, T b) {                                                                     \
        return a < b ? a : b;                                                                      \
    }
SILO_LEAST_MOST(unsigned, umax, umin)
SILO_LEAST_MOST(long long, llmax, llmin)
SILO_LEAST_MOST(unsigned long long, ullmax, ullmin)

// ---- Fast functions, and functions with a rounding mode in the name; all of them round to nearest

#define SILO_FAST(name, parameters, expression)                                                    \
    inline float name parameters {                                                                 \
        return expression;                                                                         \
    }
SILO_FAST(__expf, (float x), __builtin_expf(x))
SILO_FAST(__exp10f, (float x), exp10(x))
SILO_FAST(__logf, (float x), __builtin_logf(x))
SILO_FAST(__log2f, (float x), __builtin_log2f(x))
SILO_FAST(__log10f, (float x), __builtin_log10f(x))
SILO_FAST(__sinf, (float x), __builtin_sinf(x))
SILO_FAST(__cosf, (float x), __builtin_cosf(x))
SILO_FAST(__tanf, (float x), __builtin_tanf(x))
SILO_FAST(__tanhf, (float x), __builtin_tanhf(x))
SILO_FAST(__powf, (float x, float y), __builtin_powf(x, y))
SILO_FAST(__fdividef, (float x, float y), x / y)
SILO_FAST(__saturatef, (float x), x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
SILO_FAST(__fadd_rn, (float x, float y), x + y)
SILO_FAST(__fsub_rn, (float x, float y), x - y)
SILO_FAST(__fmul_rn, (float x, float y), x *y)
SILO_FAST(__fdiv_rn, (float x, float y), x / y)
SILO_FAST(__fmaf_rn, (float x, float y, float z), __builtin_fmaf(x, y, z))
SILO_FAST(__frcp_rn, (float x), 1.0f / x)
SILO_FAST(__fsqrt_rn, (float x), __builtin_sqrtf(x))
SILO_FAST(__frsqrt_rn, (float x), 1.0f / __builtin_sqrtf(x))
inline void __sincosf(float x, float *s, float *c) {
    sincos(x, s, c);
}
inline double __dadd_rn(double x, double y) {
    return x + y;
}
inline double __dsub_rn(double x, double y) {
    return x - y;
}
inline double __dmul_rn(double x, double y) {
    return x * y;
}
inline double __ddiv_rn(double x, double y) {
    return x / y;
}
inline double __fma_rn(double x, double y, double z) {
    return __builtin_fma(x, y, z);
}
inline double __drcp_rn(double x) {
    return 1.0 / x;
}
inline double __dsqrt_rn(double x) {
    return __builtin_sqrt(x);
}
