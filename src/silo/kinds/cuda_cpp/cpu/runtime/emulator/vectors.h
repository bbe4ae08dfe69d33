// CUDA's vector types, and other types that CUDA's headers define.
#pragma once

typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#define NULL __null

#define SILO_VECTORS(T, name, align2, align4)                                                      \
    struct name##1 {                                                                               \
        T x;                                                                                       \
    };                                                                                             \
    struct alignas(align2) name##2 {                                                               \
        T x, y;                                                                                    \
    };                                                                                             \
    struct name##3 {                                                                               \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct alignas(align4) name##4 {                                                               \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    constexpr name##1 make_##name##1(T x) {                                                        \
        return {x};                                                                                \
    }                                                                                              \
    constexpr name##2 make_##name##2(T x, T y) {                                                   \
        return {x, y};                                                                             \
    }                                                                                              \
    constexpr name##3 make_##name##3(T x, T y, T z) {                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) {                                         \
        return {x, y, z, w};                                                                       \
    }
SILO_VECTORS(signed char, char, 2, 4)
SILO_VECTORS(unsigned char, uchar, 2, 4)
SILO_VECTORS(short, short, 4, 8)
SILO_VECTORS(unsigned short, ushort, 4, 8)
SILO_VECTORS(int, int, 8, 16)
SILO_VECTORS(unsigned int, uint, 8, 16)
SILO_VECTORS(long, long, 16, 16)
SILO_VECTORS(unsigned long, ulong, 16, 16)
SILO_VECTORS(long long, longlong, 16, 16)
SILO_VECTORS(unsigned long long, ulonglong, 16, 16)
SILO_VECTORS(float, float, 8, 16)
SILO_VECTORS(double, double, 16, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const {
        return {x, y, z};
    }
};

namespace silo_cuda {

template <class T> struct Same {
    using type = T;
};
// A parameter type that takes no part in template argument deduction.
template <class T> using same = typename Same<T>::type;

template <class T> struct Plain {
    using type = T;
};
template <class T> struct Plain<const T> {
    using type = T;
};
template <class T> struct Plain<volatile T> {
    using type = T;
};
template <class T> struct Plain<const volatile T> {
    using type = T;
};
template <class T> struct Plain<T &> : Plain<T> {};
template <class T> struct Plain<T &&> : Plain<T> {};
template <class T> using plain = typename Plain<T>::type;

template <class T>
concept Integral = __is_integral(T);
template <class T>
concept Arithmetic = __is_arithmetic(T);

template <class To, class From> inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, from);
}

} // namespace silo_cuda
