// <metal_relational>: predicates of numbers, any, all, select.
#pragma once

#include "common.h"

namespace metal {

// These functions test the bits, so that they find NaN under every compiler flag.
#define SILO_QUESTIONS(T, U, sign, infinity)                                                       \
    inline bool isnan(T x) {                                                                       \
        return (__builtin_bit_cast(U, x) & ~U(sign) & U(-1)) > U(infinity);                        \
    }                                                                                              \
    inline bool isinf(T x) {                                                                       \
        return U(__builtin_bit_cast(U, x) & U(~U(sign))) == U(infinity);                           \
    }                                                                                              \
    inline bool isfinite(T x) {                                                                    \
        return (__builtin_bit_cast(U, x) & U(infinity)) != U(infinity);                            \
    }                                                                                              \
    inline bool isnormal(T x) {                                                                    \
        const U exponent = __builtin_bit_cast(U, x) & U(infinity);                                 \
        return exponent != 0 && exponent != U(infinity);                                           \
    }                                                                                              \
    inline bool signbit(T x) {                                                                     \
        return (__builtin_bit_cast(U, x) & U(sign)) != 0;                                          \
    }                                                                                              \
    inline bool isordered(T x, T y) {                                                              \
        return !isnan(x) && !isnan(y);                                                             \
    }                                                                                              \
    inline bool isunordered(T x, T y) {                                                            \
        return isnan(x) || isnan(y);                                                               \
    }
SILO_QUESTIONS(float, uint, 0x80000000u, 0x7f800000u)
SILO_QUESTIONS(half, ushort, 0x8000u, 0x7c00u)
SILO_QUESTIONS(bfloat, ushort, 0x8000u, 0x7f80u)

#define SILO_QUESTION1(name)                                                                       \
    template <class T, int n> inline vec<bool, n> name(vec<T, n> x) {                              \
        vec<bool, n> result;                                                                       \
        for (int i = 0; i < n; i++)                                                                \
            result.e[i] = name(x.e[i]);                                                            \
        return result;                                                                             \
    }
#define SILO_QUESTION2(name)                                                                       \
    template <class T, int n> inline vec<bool, n> name(vec<T, n> x, vec<T, n> y) {                 \
        vec<bool, n> result;                                                                       \
        for (int i = 0; i < n; i++)                                                                \
            result.e[i] = name(x.e[i], y.e[i]);                                                    \
        return result;                                                                             \
    }
SILO_QUESTION1(isnan)
SILO_QUESTION1(isinf)
SILO_QUESTION1(isfinite)
SILO_QUESTION1(isnormal)
SILO_QUESTION1(signbit)
SILO_QUESTION2(isordered)
SILO_QUESTION2(isunordered)

constexpr bool all(bool x) {
    return x;
}
constexpr bool any(bool x) {
    return x;
}
template <int n> constexpr bool all(vec<bool, n> x) {
    for (int i = 0; i < n; i++)
        if (!x.e[i])
            return false;
    return true;
}
template <int n> constexpr bool any(vec<bool, n> x) {
    for (int i = 0; i < n; i++)
        if (x.e[i])
            return true;
    return false;
}
constexpr bool isnot(bool x) {
    return !x;
}

// Returns the second value for elements whose condition is true.
template <class T>
    requires(silo_metal::is_scalar<T> || silo_metal::is_vector<T>)
constexpr T select(T otherwise, metal::type_identity_t<T> chosen, bool condition) {
    return condition ? chosen : otherwise;
}
template <class T, int n>
constexpr vec<T, n> select(vec<T, n> otherwise, vec<T, n> chosen, vec<bool, n> condition) {
    for (int i = 0; i < n; i++)
        otherwise.e[i] = condition.e[i] ? chosen.e[i] : otherwise.e[i];
    return otherwise;
}

} // namespace metal
