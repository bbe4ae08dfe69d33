// <metal_limits>: numeric_limits of the scalar types.
#pragma once

#include "integer.h"

namespace metal {

// Apple's name of the template, for texts that specialize it.
template <class T> struct _numeric_limits_impl {
    static constexpr bool is_specialized = false;
};
template <class T> struct numeric_limits : _numeric_limits_impl<T> {};
#define SILO_INTEGER_LIMITS(T)                                                                     \
    template <> struct numeric_limits<T> {                                                         \
        static constexpr bool is_specialized = true;                                               \
        static constexpr bool is_signed = T(-1) < T(0);                                            \
        static constexpr bool is_integer = true;                                                   \
        static constexpr bool is_exact = true;                                                     \
        static constexpr bool has_infinity = false;                                                \
        static constexpr bool has_quiet_NaN = false;                                               \
        static constexpr int digits = silo_metal::bits_of<T> - is_signed;                          \
        static constexpr T max() {                                                                 \
            return silo_metal::most<T>;                                                            \
        }                                                                                          \
        static constexpr T min() {                                                                 \
            return silo_metal::least<T>;                                                           \
        }                                                                                          \
        static constexpr T lowest() {                                                              \
            return min();                                                                          \
        }                                                                                          \
        static constexpr T infinity() {                                                            \
            return 0;                                                                              \
        }                                                                                          \
        static constexpr T quiet_NaN() {                                                           \
            return 0;                                                                              \
        }                                                                                          \
    };
SILO_INTEGERS(SILO_INTEGER_LIMITS)
template <> struct numeric_limits<bool> {
    static constexpr bool is_specialized = true;
    static constexpr bool is_signed = false;
    static constexpr bool is_integer = true;
    static constexpr int digits = 1;
    static constexpr bool max() {
        return true;
    }
    static constexpr bool min() {
        return false;
    }
    static constexpr bool lowest() {
        return false;
    }
};
#define SILO_REAL_LIMITS(T, mantissa, largest, smallest, step, tiny)                               \
    template <> struct numeric_limits<T> {                                                         \
        static constexpr bool is_specialized = true;                                               \
        static constexpr bool is_signed = true;                                                    \
        static constexpr bool is_integer = false;                                                  \
        static constexpr bool is_exact = false;                                                    \
        static constexpr bool has_infinity = true;                                                 \
        static constexpr bool has_quiet_NaN = true;                                                \
        static constexpr int digits = mantissa;                                                    \
        static constexpr T max() {                                                                 \
            return T(largest);                                                                     \
        }                                                                                          \
        static constexpr T min() {                                                                 \
            return T(smallest);                                                                    \
        }                                                                                          \
        static constexpr T lowest() {                                                              \
            return T(-(largest));                                                                  \
        }                                                                                          \
        static constexpr T epsilon() {                                                             \
            return T(step);                                                                        \
        }                                                                                          \
        static constexpr T denorm_min() {                                                          \
            return T(tiny);                                                                        \
        }                                                                                          \
        static constexpr T infinity() {                                                            \
            return T(INFINITY);                                                                    \
        }                                                                                          \
        static constexpr T quiet_NaN() {                                                           \
            return T(NAN);                                                                         \
        }                                                                                          \
        static constexpr T signaling_NaN() {                                                       \
            return T(NAN);                                                                         \
        }                                                                                          \
    };
SILO_REAL_LIMITS(float, 24, FLT_MAX, FLT_MIN, FLT_EPSILON, 0x1p-149f)
SILO_REAL_LIMITS(half, 11, 65504.0f, 0x1p-14f, 0x1p-10f, 0x1p-24f)
SILO_REAL_LIMITS(bfloat, 8, 0x1.fep127f, 0x1p-126f, 0x1p-7f, 0x1p-133f)

} // namespace metal
