// The parts of <type_traits>, <limits> and <utility> that device code uses, in cuda::std.
#pragma once

#include <silo_cuda.h>

namespace cuda::std {

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::intptr_t;
using ::ptrdiff_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;

template <class T, T v> struct integral_constant {
    static constexpr T value = v;
    using value_type = T;
    using type = integral_constant;
    constexpr operator T() const {
        return v;
    }
    constexpr T operator()() const {
        return v;
    }
};
template <bool v> using bool_constant = integral_constant<bool, v>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

#define SILO_TRAIT(name, expression)                                                               \
    template <class T> struct name : bool_constant<expression> {};                                 \
    template <class T> inline constexpr bool name##_v = expression;
#define SILO_TRAIT2(name, expression)                                                              \
    template <class T, class U> struct name : bool_constant<expression> {};                        \
    template <class T, class U> inline constexpr bool name##_v = expression;
SILO_TRAIT(is_arithmetic, __is_arithmetic(T))
SILO_TRAIT(is_array, __is_array(T))
SILO_TRAIT(is_class, __is_class(T))
SILO_TRAIT(is_const, __is_const(T))
SILO_TRAIT(is_empty, __is_empty(T))
SILO_TRAIT(is_enum, __is_enum(T))
SILO_TRAIT(is_floating_point, __is_floating_point(T))
SILO_TRAIT(is_function, __is_function(T))
SILO_TRAIT(is_integral, __is_integral(T))
SILO_TRAIT(is_pointer, __is_pointer(T))
SILO_TRAIT(is_reference, __is_reference(T))
SILO_TRAIT(is_signed, __is_signed(T))
SILO_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
SILO_TRAIT(is_unsigned, __is_unsigned(T))
SILO_TRAIT(is_void, __is_void(T))
SILO_TRAIT2(is_base_of, __is_base_of(T, U))
SILO_TRAIT2(is_convertible, __is_convertible_to(T, U))
SILO_TRAIT2(is_same, __is_same(T, U))

template <bool, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> {
    using type = T;
};
template <bool condition, class T = void>
using enable_if_t = typename enable_if<condition, T>::type;
template <bool, class T, class> struct conditional {
    using type = T;
};
template <class T, class U> struct conditional<false, T, U> {
    using type = U;
};
template <bool condition, class T, class U>
using conditional_t = typename conditional<condition, T, U>::type;
template <class T> struct type_identity {
    using type = T;
};
template <class T> using type_identity_t = T;
template <class...> using void_t = void;

#define SILO_REMOVE(name, ...)                                                                     \
    template <class T> struct name {                                                               \
        using type = __VA_ARGS__(T);                                                               \
    };                                                                                             \
    template <class T> using name##_t = __VA_ARGS__(T);
SILO_REMOVE(remove_const, __remove_const)
SILO_REMOVE(remove_cv, __remove_cv)
SILO_REMOVE(remove_cvref, __remove_cvref)
SILO_REMOVE(remove_extent, __remove_extent)
SILO_REMOVE(remove_pointer, __remove_pointer)
SILO_REMOVE(remove_reference, __remove_reference_t)
SILO_REMOVE(remove_volatile, __remove_volatile)
SILO_REMOVE(decay, __decay)
SILO_REMOVE(make_signed, __make_signed)
SILO_REMOVE(make_unsigned, __make_unsigned)
SILO_REMOVE(underlying_type, __underlying_type)

template <class T> constexpr T &&forward(__remove_reference_t(T) &value) {
    return static_cast<T &&>(value);
}
template <class T> constexpr __remove_reference_t(T) &&move(T &&value) {
    return static_cast<__remove_reference_t(T) &&>(value);
}
template <class T> constexpr void swap(T &a, T &b) {
    T kept = static_cast<T &&>(a);
    a = static_cast<T &&>(b);
    b = static_cast<T &&>(kept);
}
template <class T> T declval();

template <class T> struct numeric_limits {
    static constexpr bool is_specialized = __is_arithmetic(T);
    static constexpr bool is_signed = __is_signed(T);
    static constexpr bool is_integer = __is_integral(T);
    static constexpr int digits = 8 * sizeof(T) - __is_signed(T);
    static constexpr T max() {
        return __is_signed(T) ? T((1ull << (8 * sizeof(T) - 1)) - 1) : T(~0ull);
    }
    static constexpr T min() {
        return __is_signed(T) ? T(-max() - 1) : T(0);
    }
    static constexpr T lowest() {
        return min();
    }
};
#define SILO_LIMITS(T, prefix)                                                                     \
    template <> struct numeric_limits<T> {                                                         \
        static constexpr bool is_specialized = true;                                               \
        static constexpr bool is_signed = true;                                                    \
        static constexpr bool is_integer = false;                                                  \
        static constexpr int digits = __##prefix##_MANT_DIG__;                                     \
        static constexpr T max() {                                                                 \
            return __##prefix##_MAX__;                                                             \
        }                                                                                          \
        static constexpr T min() {                                                                 \
            return __##prefix##_MIN__;                                                             \
        }                                                                                          \
        static constexpr T lowest() {                                                              \
            return -__##prefix##_MAX__;                                                            \
        }                                                                                          \
        static constexpr T epsilon() {                                                             \
            return __##prefix##_EPSILON__;                                                         \
        }                                                                                          \
        static constexpr T infinity() {                                                            \
            return T(__builtin_inf());                                                             \
        }                                                                                          \
        static constexpr T quiet_NaN() {                                                           \
            return T(__builtin_nan(""));                                                           \
        }                                                                                          \
    };
SILO_LIMITS(float, FLT)
SILO_LIMITS(double, DBL)

} // namespace cuda::std
