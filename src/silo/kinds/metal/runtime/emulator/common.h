// <metal_common>: functions of all numbers: max, min, clamp and others.
#pragma once

#include "vector.h"

namespace metal {

#define SILO_NUMBERS(M)                                                                            \
    M(char)                                                                                        \
    M(uchar)                                                                                       \
    M(short)                                                                                       \
    M(ushort)                                                                                      \
    M(int)                                                                                         \
    M(uint)                                                                                        \
    M(long)                                                                                        \
    M(ulong)                                                                                       \
    M(half)                                                                                        \
    M(float)

// If one of the two numbers is NaN, the result is the other.
#define SILO_MIN_MAX(T, HEAD)                                                                      \
    HEAD constexpr T max(T a, T b) {                                                               \
        return a > b || b != b ? a : b;                                                            \
    }                                                                                              \
    HEAD constexpr T min(T a, T b) {                                                               \
        return a < b || b != b ? a : b;                                                            \
    }                                                                                              \
    HEAD constexpr T clamp(T x, T low, T high) {                                                   \
        return min(max(x, low), high);                                                             \
    }                                                                                              \
    HEAD constexpr T max3(T a, T b, T c) {                                                         \
        return max(a, max(b, c));                                                                  \
    }                                                                                              \
    HEAD constexpr T min3(T a, T b, T c) {                                                         \
        return min(a, min(b, c));                                                                  \
    }                                                                                              \
    HEAD constexpr T median3(T a, T b, T c) {                                                      \
        return max(min(a, b), min(max(a, b), c));                                                  \
    }
#define SILO_PLAIN_MIN_MAX(T) SILO_MIN_MAX(T, )
SILO_NUMBERS(SILO_PLAIN_MIN_MAX)
// min and max of bfloats are templates: a text may define its own in the namespace metal.
// The text's functions then take precedence, because they are not templates.
SILO_MIN_MAX(T, template <silo_metal::Bfloat T>)
#undef SILO_PLAIN_MIN_MAX

} // namespace metal

namespace silo_metal {

// Applies a function of numbers element by element; a scalar operand is used for every element.
template <class V, class F> constexpr V elementwise(F f, const V &a) {
    V result;
    for (int i = 0; i < length_of<V>; i++)
        result.e[i] = f(a.e[i]);
    return result;
}
template <class V, class F> constexpr V elementwise(F f, const V &a, const V &b) {
    V result;
    for (int i = 0; i < length_of<V>; i++)
        result.e[i] = f(a.e[i], b.e[i]);
    return result;
}
template <class V, class F> constexpr V elementwise(F f, const V &a, const V &b, const V &c) {
    V result;
    for (int i = 0; i < length_of<V>; i++)
        result.e[i] = f(a.e[i], b.e[i], c.e[i]);
    return result;
}

} // namespace silo_metal

namespace metal {

// Extends a function of numbers to vectors: SILO_VECTOR1(exp) defines exp of a vector.
#define SILO_VECTOR1(name)                                                                         \
    template <class T, int n> constexpr vec<T, n> name(vec<T, n> a) {                              \
        return silo_metal::elementwise([](T x) { return name(x); }, a);                            \
    }
#define SILO_VECTOR2(name)                                                                         \
    template <class A, class B, class V = silo_metal::operands<A, B>>                              \
    constexpr V name(const A &a, const B &b) {                                                     \
        using T = silo_metal::element_of<V>;                                                       \
        return silo_metal::elementwise([](T x, T y) { return name(x, y); }, V(a), V(b));           \
    }
#define SILO_VECTOR3(name)                                                                         \
    template <class A, class B, class C, class V = silo_metal::operands3<A, B, C>>                 \
    constexpr V name(const A &a, const B &b, const C &c) {                                         \
        using T = silo_metal::element_of<V>;                                                       \
        return silo_metal::elementwise([](T x, T y, T z) { return name(x, y, z); }, V(a), V(b),    \
                                       V(c));                                                      \
    }
SILO_VECTOR2(max)
SILO_VECTOR2(min)
SILO_VECTOR3(clamp)
SILO_VECTOR3(max3)
SILO_VECTOR3(min3)
SILO_VECTOR3(median3)

} // namespace metal
