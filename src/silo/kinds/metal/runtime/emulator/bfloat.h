// bfloat: the compiler's own type if it supports arithmetic (clang 18 and later), else a class.
#pragma once

#include "language.h"

namespace silo_metal {

// Rounds to the nearest, ties to even; NaN stays NaN.
constexpr ushort round_to_bfloat(float value) {
    uint bits = __builtin_bit_cast(uint, value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return ushort(bits >> 16 | 0x40u);
    return ushort((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

} // namespace silo_metal

#if __clang_major__ >= 18

typedef __bf16 bfloat;

// Functions that the compiler calls on CPUs without bfloat16 instructions; some libgccs lack them.
extern "C" __attribute__((weak, visibility("hidden"), used)) inline __bf16
__truncsfbf2(float value) {
    return __builtin_bit_cast(__bf16, silo_metal::round_to_bfloat(value));
}
extern "C" __attribute__((weak, visibility("hidden"), used)) inline __bf16
__truncdfbf2(double value) {
    return __builtin_bit_cast(__bf16, silo_metal::round_to_bfloat(float(value)));
}

#else

struct bfloat {
    ushort bits;

    bfloat() = default;
    template <class T>
        requires(__is_arithmetic(T) || __is_same(T, half))
    constexpr bfloat(T value) : bits(silo_metal::round_to_bfloat(float(value))) {}
    constexpr operator float() const {
        return __builtin_bit_cast(float, uint(bits) << 16);
    }

    template <class T> constexpr bfloat &operator+=(T value) {
        return *this = float(*this) + float(value);
    }
    template <class T> constexpr bfloat &operator-=(T value) {
        return *this = float(*this) - float(value);
    }
    template <class T> constexpr bfloat &operator*=(T value) {
        return *this = float(*this) * float(value);
    }
    template <class T> constexpr bfloat &operator/=(T value) {
        return *this = float(*this) / float(value);
    }
    constexpr bfloat &operator++() {
        return *this += 1.0f;
    }
    constexpr bfloat &operator--() {
        return *this -= 1.0f;
    }
};

// These operators take two bfloats. An operation on a bfloat and a float is computed in float.
template <class T>
    requires __is_same
(T, bfloat) constexpr bfloat operator+(T a, T b) {
    return float(a) + float(b);
}
template <class T>
    requires __is_same
(T, bfloat) constexpr bfloat operator-(T a, T b) {
    return float(a) - float(b);
}
template <class T>
    requires __is_same
(T, bfloat) constexpr bfloat operator*(T a, T b) {
    return float(a) * float(b);
}
template <class T>
    requires __is_same
(T, bfloat) constexpr bfloat operator/(T a, T b) {
    return float(a) / float(b);
}
template <class T>
    requires __is_same
(T, bfloat) constexpr bfloat operator-(T a) {
    return -float(a);
}

#endif

namespace silo_metal {
// The library defines functions of bfloats as templates over a type `T`, so that a text may define
// plain functions of the same names in the namespace metal: C++ prefers these to templates.
template <class T>
concept Bfloat = __is_same(T, bfloat);

// Like static_cast, but converts half to bfloat through float.
template <class T, class U> [[gnu::always_inline]] constexpr T cast(U &&value) {
    if constexpr (__is_same(T, bfloat) && __is_same(__remove_cvref(U), half))
        return bfloat(float(value));
    else
        return static_cast<T>(static_cast<U &&>(value));
}
} // namespace silo_metal
