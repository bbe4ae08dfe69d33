// The types half and bfloat16, of two bytes. An operation is computed in float and rounded once.
#pragma once

#include "atomics.h"
#include "intrinsics.h"

namespace silo_cuda {

inline unsigned short half_bits(float value) {
    return bits_as<unsigned short>(_Float16(value));
}
inline float half_value(unsigned short bits) {
    return float(bits_as<_Float16>(bits));
}
// Rounds to the nearest, ties to even; NaN stays NaN.
inline unsigned short bfloat_bits(float value) {
    const unsigned bits = bits_as<unsigned>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline float bfloat_value(unsigned short bits) {
    return bits_as<float>(unsigned(bits) << 16);
}
// Converts a double to float with round-to-odd, so that rounding the result to two bytes gives the
// same value as rounding `value` to two bytes directly.
inline float once(double value) {
    float near = float(value);
    if (double(near) == value || near != near || near - near != 0.0f)
        return near;
    unsigned bits = bits_as<unsigned>(near);
    if (__builtin_fabs(double(near)) > __builtin_fabs(value))
        bits--;
    return bits_as<float>(bits | 1u);
}

} // namespace silo_cuda

// NUMBER: the type; PAIR: the type of a pair of numbers; RAW, RAWPAIR: structs of their bits. f(x)
// converts a float to bits; v(bits) converts bits to a float.
#define SILO_SMALL(NUMBER, PAIR, RAW, RAWPAIR, f, v)                                               \
    struct RAW {                                                                                   \
        unsigned short x;                                                                          \
    };                                                                                             \
    struct NUMBER {                                                                                \
        unsigned short bits;                                                                       \
        NUMBER() = default;                                                                        \
        NUMBER(RAW raw) : bits(raw.x) {}                                                           \
        NUMBER(float x) : bits(silo_cuda::f(x)) {}                                                 \
        NUMBER(double x) : bits(silo_cuda::f(silo_cuda::once(x))) {}                               \
        template <silo_cuda::Integral T>                                                           \
        NUMBER(T x) : bits(silo_cuda::f(silo_cuda::once(double(x)))) {}                            \
        operator float() const {                                                                   \
            return silo_cuda::v(bits);                                                             \
        }                                                                                          \
        operator RAW() const {                                                                     \
            return {bits};                                                                         \
        }                                                                                          \
        template <silo_cuda::Arithmetic T> NUMBER &operator=(T x) {                                \
            bits = NUMBER(x).bits;                                                                 \
            return *this;                                                                          \
        }                                                                                          \
        NUMBER &operator+=(NUMBER y) {                                                             \
            return *this = float(*this) + float(y);                                                \
        }                                                                                          \
        NUMBER &operator-=(NUMBER y) {                                                             \
            return *this = float(*this) - float(y);                                                \
        }                                                                                          \
        NUMBER &operator*=(NUMBER y) {                                                             \
            return *this = float(*this) * float(y);                                                \
        }                                                                                          \
        NUMBER &operator/=(NUMBER y) {                                                             \
            return *this = float(*this) / float(y);                                                \
        }                                                                                          \
        NUMBER &operator++() {                                                                     \
            return *this += NUMBER(1.0f);                                                          \
        }                                                                                          \
        NUMBER operator-() const {                                                                 \
            return NUMBER(RAW{(unsigned short)(bits ^ 0x8000u)});                                  \
        }                                                                                          \
        NUMBER operator+() const {                                                                 \
            return *this;                                                                          \
        }                                                                                          \
    };                                                                                             \
    struct alignas(4) RAWPAIR {                                                                    \
        unsigned short x, y;                                                                       \
    };                                                                                             \
    struct alignas(4) PAIR {                                                                       \
        NUMBER x, y;                                                                               \
        PAIR() = default;                                                                          \
        PAIR(NUMBER x, NUMBER y) : x(x), y(y) {}                                                   \
        PAIR(RAWPAIR raw) : x(RAW{raw.x}), y(RAW{raw.y}) {}                                        \
    };                                                                                             \
    SILO_SMALL_OPERATOR(NUMBER, PAIR, +)                                                           \
    SILO_SMALL_OPERATOR(NUMBER, PAIR, -)                                                           \
    SILO_SMALL_OPERATOR(NUMBER, PAIR, *)                                                           \
    SILO_SMALL_OPERATOR(NUMBER, PAIR, /)                                                           \
    SILO_SMALL_COMPARE(NUMBER, ==)                                                                 \
    SILO_SMALL_COMPARE(NUMBER, !=)                                                                 \
    SILO_SMALL_COMPARE(NUMBER, <)                                                                  \
    SILO_SMALL_COMPARE(NUMBER, >)                                                                  \
    SILO_SMALL_COMPARE(NUMBER, <=)                                                                 \
    SILO_SMALL_COMPARE(NUMBER, >=)                                                                 \
    inline PAIR operator-(PAIR a) {                                                                \
        return {-a.x, -a.y};                                                                       \
    }                                                                                              \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hadd, a + b)                                                 \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hsub, a - b)                                                 \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hmul, a *b)                                                  \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hadd_rn, a + b)                                              \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hsub_rn, a - b)                                              \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hmul_rn, a *b)                                               \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hmax, (a > b || b != b ? a : b))                             \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hmin, (a < b || b != b ? a : b))                             \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hmax_nan, (a > b || a != a ? a : b))                         \
    SILO_SMALL_BINARY(NUMBER, PAIR, __hmin_nan, (a < b || a != a ? a : b))                         \
    inline NUMBER __hdiv(NUMBER a, NUMBER b) {                                                     \
        return a / b;                                                                              \
    }                                                                                              \
    inline PAIR __h2div(PAIR a, PAIR b) {                                                          \
        return a / b;                                                                              \
    }                                                                                              \
    inline NUMBER __hfma(NUMBER a, NUMBER b, NUMBER c) {                                           \
        return NUMBER(double(float(a)) * double(float(b)) + double(float(c)));                     \
    }                                                                                              \
    inline PAIR __hfma2(PAIR a, PAIR b, PAIR c) {                                                  \
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                     \
    }                                                                                              \
    inline NUMBER __hneg(NUMBER a) {                                                               \
        return -a;                                                                                 \
    }                                                                                              \
    inline PAIR __hneg2(PAIR a) {                                                                  \
        return -a;                                                                                 \
    }                                                                                              \
    inline NUMBER __habs(NUMBER a) {                                                               \
        return NUMBER(RAW{(unsigned short)(a.bits & 0x7fffu)});                                    \
    }                                                                                              \
    inline PAIR __habs2(PAIR a) {                                                                  \
        return {__habs(a.x), __habs(a.y)};                                                         \
    }                                                                                              \
    inline bool __hisnan(NUMBER a) {                                                               \
        return float(a) != float(a);                                                               \
    }                                                                                              \
    inline int __hisinf(NUMBER a) {                                                                \
        return __builtin_isinf(float(a));                                                          \
    }                                                                                              \
    SILO_SMALL_TEST(NUMBER, __heq, ==)                                                             \
    SILO_SMALL_TEST(NUMBER, __hne, !=)                                                             \
    SILO_SMALL_TEST(NUMBER, __hlt, <)                                                              \
    SILO_SMALL_TEST(NUMBER, __hle, <=)                                                             \
    SILO_SMALL_TEST(NUMBER, __hgt, >)                                                              \
    SILO_SMALL_TEST(NUMBER, __hge, >=)                                                             \
    SILO_SMALL_UNARY(NUMBER, PAIR, exp, expf(a))                                                   \
    SILO_SMALL_UNARY(NUMBER, PAIR, exp2, exp2f(a))                                                 \
    SILO_SMALL_UNARY(NUMBER, PAIR, exp10, exp10f(a))                                               \
    SILO_SMALL_UNARY(NUMBER, PAIR, log, logf(a))                                                   \
    SILO_SMALL_UNARY(NUMBER, PAIR, log2, log2f(a))                                                 \
    SILO_SMALL_UNARY(NUMBER, PAIR, log10, log10f(a))                                               \
    SILO_SMALL_UNARY(NUMBER, PAIR, sqrt, sqrtf(a))                                                 \
    SILO_SMALL_UNARY(NUMBER, PAIR, rsqrt, rsqrtf(a))                                               \
    SILO_SMALL_UNARY(NUMBER, PAIR, rcp, 1.0f / a)                                                  \
    SILO_SMALL_UNARY(NUMBER, PAIR, sin, sinf(a))                                                   \
    SILO_SMALL_UNARY(NUMBER, PAIR, cos, cosf(a))                                                   \
    SILO_SMALL_UNARY(NUMBER, PAIR, tanh, tanhf(a))                                                 \
    SILO_SMALL_UNARY(NUMBER, PAIR, floor, floorf(a))                                               \
    SILO_SMALL_UNARY(NUMBER, PAIR, ceil, ceilf(a))                                                 \
    SILO_SMALL_UNARY(NUMBER, PAIR, rint, rintf(a))                                                 \
    SILO_SMALL_UNARY(NUMBER, PAIR, trunc, truncf(a))                                               \
    inline PAIR atomicAdd(PAIR *to, PAIR y, SILO_HERE) {                                           \
        return {atomicAdd(&to->x, y.x, place), atomicAdd(&to->y, y.y, place)};                     \
    }
#define SILO_SMALL_OPERATOR(NUMBER, PAIR, sign)                                                    \
    inline NUMBER operator sign(NUMBER a, NUMBER b) {                                              \
        return NUMBER(float(a) sign float(b));                                                     \
    }                                                                                              \
    inline PAIR operator sign(PAIR a, PAIR b) {                                                    \
        return {a.x sign b.x, a.y sign b.y};                                                       \
    }                                                                                              \
    template <silo_cuda::Arithmetic T> inline NUMBER operator sign(NUMBER a, T b) {                \
        return a sign NUMBER(b);                                                                   \
    }                                                                                              \
    template <silo_cuda::Arithmetic T> inline NUMBER operator sign(T a, NUMBER b) {                \
        return NUMBER(a) sign b;                                                                   \
    }
#define SILO_SMALL_COMPARE(NUMBER, sign)                                                           \
    inline bool operator sign(NUMBER a, NUMBER b) {                                                \
        return float(a) sign float(b);                                                             \
    }                                                                                              \
    template <silo_cuda::Arithmetic T> inline bool operator sign(NUMBER a, T b) {                  \
        return float(a) sign float(NUMBER(b));                                                     \
    }                                                                                              \
    template <silo_cuda::Arithmetic T> inline bool operator sign(T a, NUMBER b) {                  \
        return float(NUMBER(a)) sign float(b);                                                     \
    }
#define SILO_SMALL_BINARY(NUMBER, PAIR, name, expression)                                          \
    inline NUMBER name(NUMBER first, NUMBER second) {                                              \
        const float a = first, b = second;                                                         \
        return NUMBER(expression);                                                                 \
    }                                                                                              \
    inline PAIR name##2(PAIR a, PAIR b) {                                                          \
        return {name(a.x, b.x), name(a.y, b.y)};                                                   \
    }
#define SILO_SMALL_TEST(NUMBER, name, sign)                                                        \
    inline bool name(NUMBER a, NUMBER b) {                                                         \
        return float(a) sign float(b);                                                             \
    }
#define SILO_SMALL_UNARY(NUMBER, PAIR, name, expression)                                           \
    inline NUMBER h##name(NUMBER value) {                                                          \
        const float a = value;                                                                     \
        return NUMBER(expression);                                                                 \
    }                                                                                              \
    inline PAIR h2##name(PAIR a) {                                                                 \
        return {h##name(a.x), h##name(a.y)};                                                       \
    }

SILO_SMALL(__half, __half2, __half_raw, __half2_raw, half_bits, half_value)
typedef __half half;
typedef __half2 half2;
SILO_SMALL(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, __nv_bfloat162_raw, bfloat_bits,
           bfloat_value)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

// ---- Conversions

#define SILO_SMALL_CONVERSIONS(NUMBER, PAIR, RAW, name)                                            \
    inline NUMBER __float2##name(float x) {                                                        \
        return NUMBER(x);                                                                          \
    }                                                                                              \
    inline NUMBER __float2##name##_rn(float x) {                                                   \
        return NUMBER(x);                                                                          \
    }                                                                                              \
    inline NUMBER __double2##name(double x) {                                                      \
        return NUMBER(x);                                                                          \
    }                                                                                              \
    inline NUMBER __int2##name##_rn(int x) {                                                       \
        return NUMBER(x);                                                                          \
    }                                                                                              \
    inline NUMBER __uint2##name##_rn(unsigned x) {                                                 \
        return NUMBER(x);                                                                          \
    }                                                                                              \
    inline NUMBER __short_as_##name(short x) {                                                     \
        return NUMBER(RAW{(unsigned short)x});                                                     \
    }                                                                                              \
    inline NUMBER __ushort_as_##name(unsigned short x) {                                           \
        return NUMBER(RAW{x});                                                                     \
    }                                                                                              \
    inline short __##name##_as_short(NUMBER x) {                                                   \
        return (short)x.bits;                                                                      \
    }                                                                                              \
    inline unsigned short __##name##_as_ushort(NUMBER x) {                                         \
        return x.bits;                                                                             \
    }                                                                                              \
    inline float __##name##2float(NUMBER x) {                                                      \
        return float(x);                                                                           \
    }                                                                                              \
    inline int __##name##2int_rn(NUMBER x) {                                                       \
        return __float2int_rn(float(x));                                                           \
    }                                                                                              \
    inline int __##name##2int_rz(NUMBER x) {                                                       \
        return __float2int_rz(float(x));                                                           \
    }                                                                                              \
    inline PAIR __float2##name##2_rn(float x) {                                                    \
        return {NUMBER(x), NUMBER(x)};                                                             \
    }                                                                                              \
    inline PAIR __floats2##name##2_rn(float x, float y) {                                          \
        return {NUMBER(x), NUMBER(y)};                                                             \
    }                                                                                              \
    inline PAIR __##name##2##name##2(NUMBER x) {                                                   \
        return {x, x};                                                                             \
    }                                                                                              \
    inline PAIR __halves2##name##2(NUMBER x, NUMBER y) {                                           \
        return {x, y};                                                                             \
    }
SILO_SMALL_CONVERSIONS(__half, __half2, __half_raw, half)
SILO_SMALL_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, bfloat16)
#define SILO_PAIRS(NUMBER, PAIR, half_of, name)                                                    \
    inline NUMBER __low2##half_of(PAIR x) {                                                        \
        return x.x;                                                                                \
    }                                                                                              \
    inline NUMBER __high2##half_of(PAIR x) {                                                       \
        return x.y;                                                                                \
    }                                                                                              \
    inline PAIR __low2##half_of##2(PAIR x) {                                                       \
        return {x.x, x.x};                                                                         \
    }                                                                                              \
    inline PAIR __high2##half_of##2(PAIR x) {                                                      \
        return {x.y, x.y};                                                                         \
    }                                                                                              \
    inline PAIR __lowhigh2highlow(PAIR x) {                                                        \
        return {x.y, x.x};                                                                         \
    }                                                                                              \
    inline float __low2float(PAIR x) {                                                             \
        return x.x;                                                                                \
    }                                                                                              \
    inline float __high2float(PAIR x) {                                                            \
        return x.y;                                                                                \
    }                                                                                              \
    inline PAIR make_##name(NUMBER x, NUMBER y) {                                                  \
        return {x, y};                                                                             \
    }
SILO_PAIRS(__half, __half2, half, half2)
SILO_PAIRS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
inline float2 __half22float2(__half2 x) {
    return {float(x.x), float(x.y)};
}
inline __half2 __float22half2_rn(float2 x) {
    return {__half(x.x), __half(x.y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 x) {
    return {float(x.x), float(x.y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 x) {
    return {__nv_bfloat16(x.x), __nv_bfloat16(x.y)};
}
