// <metal_integer>: functions of integers.
#pragma once

#include "common.h"

namespace metal {

#define SILO_INTEGERS(M)                                                                           \
    M(char)                                                                                        \
    M(uchar)                                                                                       \
    M(short)                                                                                       \
    M(ushort)                                                                                      \
    M(int)                                                                                         \
    M(uint)                                                                                        \
    M(long)                                                                                        \
    M(ulong)

} // namespace metal

namespace silo_metal {

template <class T> constexpr int bits_of = int(8 * sizeof(T));
template <class T> using unsigned_of = __make_unsigned(T);
template <class T> constexpr bool is_signed = T(-1) < T(0);
template <class T>
constexpr T most = is_signed<T> ? T(unsigned_of<T>(-1) >> 1) : T(unsigned_of<T>(-1));
template <class T> constexpr T least = is_signed<T> ? T(-most<T> - 1) : T(0);

template <class T> constexpr T add_saturated(T a, T b) {
    T sum;
    if (!__builtin_add_overflow(a, b, &sum))
        return sum;
    return b < 0 ? least<T> : most<T>;
}
template <class T> constexpr T subtract_saturated(T a, T b) {
    T difference;
    if (!__builtin_sub_overflow(a, b, &difference))
        return difference;
    return b < 0 || !is_signed<T> ? (is_signed<T> ? most<T> : T(0)) : least<T>;
}
// Returns the high half of a product.
template <class T> constexpr T multiply_high(T a, T b) {
    using Wide = metal::conditional_t<is_signed<T>, __int128, unsigned __int128>;
    return T(Wide(a) * Wide(b) >> bits_of<T>);
}
template <class T> constexpr T leading_zeros(T x) {
    const unsigned_of<T> u = unsigned_of<T>(x);
    return u == 0 ? T(bits_of<T>) : T(__builtin_clzl(u) - (64 - bits_of<T>));
}
template <class T> constexpr T trailing_zeros(T x) {
    const unsigned_of<T> u = unsigned_of<T>(x);
    return u == 0 ? T(bits_of<T>) : T(__builtin_ctzl(u));
}
template <class T> constexpr T turn_bits(T x) {
    unsigned_of<T> from = unsigned_of<T>(x), to = 0;
    for (int i = 0; i < bits_of<T>; i++, from >>= 1)
        to = unsigned_of<T>(to << 1 | (from & 1));
    return T(to);
}
template <class T> constexpr T turn(T x, T by) {
    const unsigned_of<T> u = unsigned_of<T>(x);
    const unsigned n = unsigned(unsigned_of<T>(by)) % bits_of<T>;
    return n == 0 ? x : T(unsigned_of<T>(u << n | u >> (bits_of<T> - n)));
}
template <class T> constexpr T take_bits(T x, uint offset, uint count) {
    if (count == 0)
        return 0;
    const unsigned_of<T> u = unsigned_of<T>(unsigned_of<T>(x) << (bits_of<T> - offset - count));
    return T(T(u) >> (bits_of<T> - count)); // for a signed type, repeats the sign bit
}
template <class T> constexpr T put_bits(T base, T insert, uint offset, uint count) {
    if (count == 0)
        return base;
    const unsigned_of<T> ones =
        unsigned_of<T>(unsigned_of<T>(unsigned_of<T>(-1) >> (bits_of<T> - count)) << offset);
    return T((unsigned_of<T>(base) & ~ones) |
             (unsigned_of<T>(unsigned_of<T>(insert) << offset) & ones));
}

} // namespace silo_metal

namespace metal {

#define SILO_INTEGER(T)                                                                            \
    constexpr silo_metal::unsigned_of<T> absdiff(T x, T y) {                                       \
        using U = silo_metal::unsigned_of<T>;                                                      \
        return x > y ? U(U(x) - U(y)) : U(U(y) - U(x));                                            \
    }                                                                                              \
    constexpr T addsat(T x, T y) {                                                                 \
        return silo_metal::add_saturated(x, y);                                                    \
    }                                                                                              \
    constexpr T subsat(T x, T y) {                                                                 \
        return silo_metal::subtract_saturated(x, y);                                               \
    }                                                                                              \
    constexpr T clz(T x) {                                                                         \
        return silo_metal::leading_zeros(x);                                                       \
    }                                                                                              \
    constexpr T ctz(T x) {                                                                         \
        return silo_metal::trailing_zeros(x);                                                      \
    }                                                                                              \
    constexpr T popcount(T x) {                                                                    \
        return T(__builtin_popcountl(silo_metal::unsigned_of<T>(x)));                              \
    }                                                                                              \
    constexpr T reverse_bits(T x) {                                                                \
        return silo_metal::turn_bits(x);                                                           \
    }                                                                                              \
    constexpr T rotate(T x, T by) {                                                                \
        return silo_metal::turn(x, by);                                                            \
    }                                                                                              \
    constexpr T hadd(T x, T y) {                                                                   \
        return T((x & y) + ((x ^ y) >> 1));                                                        \
    }                                                                                              \
    constexpr T rhadd(T x, T y) {                                                                  \
        return T((x | y) - ((x ^ y) >> 1));                                                        \
    }                                                                                              \
    constexpr T mulhi(T x, T y) {                                                                  \
        return silo_metal::multiply_high(x, y);                                                    \
    }                                                                                              \
    constexpr T madhi(T x, T y, T z) {                                                             \
        return T(silo_metal::unsigned_of<T>(mulhi(x, y)) + silo_metal::unsigned_of<T>(z));         \
    }                                                                                              \
    constexpr T madsat(T x, T y, T z) {                                                            \
        const __int128 sum = __int128(x) * y + z;                                                  \
        return sum > silo_metal::most<T>    ? silo_metal::most<T>                                  \
               : sum < silo_metal::least<T> ? silo_metal::least<T>                                 \
                                            : T(sum);                                              \
    }                                                                                              \
    constexpr T extract_bits(T x, uint offset, uint count) {                                       \
        return silo_metal::take_bits(x, offset, count);                                            \
    }                                                                                              \
    constexpr T insert_bits(T base, T insert, uint offset, uint count) {                           \
        return silo_metal::put_bits(base, insert, offset, count);                                  \
    }
SILO_INTEGERS(SILO_INTEGER)
// The product of the low 24 bits. Metal requires that x and y are in the range of 24-bit integers.
constexpr int mul24(int x, int y) {
    return int(uint(x << 8 >> 8) * uint(y << 8 >> 8));
}
constexpr uint mul24(uint x, uint y) {
    return (x & 0xffffffu) * (y & 0xffffffu);
}
constexpr int mad24(int x, int y, int z) {
    return int(uint(mul24(x, y)) + uint(z));
}
constexpr uint mad24(uint x, uint y, uint z) {
    return mul24(x, y) + z;
}
template <class T, int n>
constexpr vec<silo_metal::unsigned_of<T>, n> absdiff(vec<T, n> x, vec<T, n> y) {
    vec<silo_metal::unsigned_of<T>, n> result;
    for (int i = 0; i < n; i++)
        result.e[i] = absdiff(x.e[i], y.e[i]);
    return result;
}
template <class T, int n> constexpr vec<T, n> extract_bits(vec<T, n> x, uint offset, uint count) {
    for (int i = 0; i < n; i++)
        x.e[i] = extract_bits(x.e[i], offset, count);
    return x;
}
template <class T, int n>
constexpr vec<T, n> insert_bits(vec<T, n> base, vec<T, n> insert, uint offset, uint count) {
    for (int i = 0; i < n; i++)
        base.e[i] = insert_bits(base.e[i], insert.e[i], offset, count);
    return base;
}
SILO_VECTOR2(addsat)
SILO_VECTOR2(subsat)
SILO_VECTOR1(clz)
SILO_VECTOR1(ctz)
SILO_VECTOR1(popcount)
SILO_VECTOR1(reverse_bits)
SILO_VECTOR2(rotate)
SILO_VECTOR2(hadd)
SILO_VECTOR2(rhadd)
SILO_VECTOR2(mulhi)
SILO_VECTOR3(madhi)
SILO_VECTOR3(madsat)
SILO_VECTOR2(mul24)
SILO_VECTOR3(mad24)

} // namespace metal
