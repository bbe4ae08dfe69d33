// <metal_type_traits>, and the type traits that the other headers use.
#pragma once

#include "bfloat.h"

namespace metal {

template <class T, class U> constexpr bool is_same_v = __is_same(T, U);
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
// Internal names of Apple's header that some texts use.
template <class... T> struct _disjunction : bool_constant<(bool(T::value) || ...)> {};
template <class... T> struct _conjunction : bool_constant<(bool(T::value) && ...)> {};

template <bool, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> {
    using type = T;
};
template <bool condition, class T = void>
using enable_if_t = typename enable_if<condition, T>::type;
template <bool, class T, class U> struct conditional {
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
template <class T> using type_identity_t = typename type_identity<T>::type;

template <class T> struct remove_reference {
    using type = T;
};
template <class T> struct remove_reference<T &> {
    using type = T;
};
template <class T> struct remove_reference<T &&> {
    using type = T;
};
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_const {
    using type = T;
};
template <class T> struct remove_const<const T> {
    using type = T;
};
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_volatile {
    using type = T;
};
template <class T> struct remove_volatile<volatile T> {
    using type = T;
};
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
#ifdef SILO_METAL_STRICT
template <class T> struct remove_const<const device T> {
    using type = T;
};
template <class T> struct remove_const<device T> {
    using type = T;
};
template <class T> struct remove_const<constant T> {
    using type = T;
};
template <class T> struct remove_const<const threadgroup T> {
    using type = T;
};
template <class T> struct remove_const<threadgroup T> {
    using type = T;
};
#endif
template <class T> struct remove_cv {
    using type = remove_const_t<remove_volatile_t<T>>;
};
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> struct remove_addrspace { // the emulator's types have no address spaces
    using type = T;
};
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T>
using uniform = T; // from <metal_uniform>: a promise that all threads have the same value
template <class T> constexpr T make_uniform(T value) {
    return value;
}
template <class T> struct remove_pointer {
    using type = T;
};
template <class T> struct remove_pointer<T *> {
    using type = T;
};
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> struct remove_extent {
    using type = T;
};
template <class T, size_t n> struct remove_extent<T[n]> {
    using type = T;
};
template <class T> using remove_extent_t = typename remove_extent<T>::type;
template <class T> struct decay {
    using type = remove_cv_t<remove_reference_t<T>>;
};
template <class T> using decay_t = typename decay<T>::type;
template <class T> struct add_const {
    using type = const T;
};
template <class T> using add_const_t = const T;
template <class T> struct make_unsigned {
    using type = __make_unsigned(T);
};
template <class T> using make_unsigned_t = __make_unsigned(T);
template <class T> struct make_signed {
    using type = __make_signed(T);
};
template <class T> using make_signed_t = __make_signed(T);
template <class T> T &&declval() noexcept;

template <class T, int n> struct vec;
template <class T, int n> struct packed_vec;

} // namespace metal

namespace silo_metal {

using metal::type_identity_t;

template <class T> struct Shape { // the shape of a scalar
    using element = T;
    static constexpr int length = 1;
    static constexpr bool vector = false;
};
template <class T, int n> struct Shape<metal::vec<T, n>> {
    using element = T;
    static constexpr int length = n;
    static constexpr bool vector = true;
};
template <class T, int n> struct Shape<metal::packed_vec<T, n>> : Shape<metal::vec<T, n>> {};
template <class T> struct Shape<const T> : Shape<T> {};
template <class T> struct Shape<volatile T> : Shape<T> {};
template <class T> struct Shape<T &> : Shape<T> {};

template <class T> using element_of = typename Shape<T>::element;
template <class T> constexpr int length_of = Shape<T>::length;
template <class T>
constexpr bool is_real =
    __is_same(metal::remove_cv_t<T>, float) || __is_same(metal::remove_cv_t<T>, half) ||
    __is_same(metal::remove_cv_t<T>, bfloat) || __is_same(metal::remove_cv_t<T>, double);
template <class T>
constexpr bool is_scalar = (__is_arithmetic(T) || is_real<T>) && !Shape<T>::vector;
template <class T> constexpr bool is_integer = __is_integral(T);
template <class T>
concept Scalar = is_scalar<T> || __is_enum(T);
template <class T>
concept Real = is_real<T>;
template <class T>
concept Integer = is_integer<T>;

} // namespace silo_metal

namespace metal {

// For a vector, these traits describe its elements.
template <class T>
constexpr bool is_floating_point_v = silo_metal::is_real<silo_metal::element_of<T>>;
template <class T> constexpr bool is_integral_v = silo_metal::is_integer<silo_metal::element_of<T>>;
template <class T>
constexpr bool is_arithmetic_v = silo_metal::is_scalar<silo_metal::element_of<T>>;
template <class T> constexpr bool is_scalar_v = silo_metal::is_scalar<T> || __is_pointer(T);
template <class T> constexpr bool is_vector_v = silo_metal::Shape<T>::vector;
template <class T>
constexpr bool is_signed_v = is_floating_point_v<T> || __is_signed(silo_metal::element_of<T>);
template <class T> constexpr bool is_unsigned_v = __is_unsigned(silo_metal::element_of<T>);
template <class T> constexpr bool is_pointer_v = __is_pointer(T);
template <class T> constexpr bool is_reference_v = __is_reference(T);
template <class T> constexpr bool is_void_v = __is_void(T);
template <class T> constexpr bool is_array_v = __is_array(T);
template <class T> constexpr bool is_enum_v = __is_enum(T);
template <class T> constexpr bool is_class_v = __is_class(T);
template <class T> constexpr bool is_const_v = __is_const(T);
template <class T> constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);
template <class T, class U> constexpr bool is_convertible_v = __is_convertible_to(T, U);
template <class T, class U> constexpr bool is_base_of_v = __is_base_of(T, U);
template <class T, class... A> constexpr bool is_constructible_v = __is_constructible(T, A...);

template <class T, class U> struct is_same : bool_constant<is_same_v<T, U>> {};
template <class T> struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T> struct is_integral : bool_constant<is_integral_v<T>> {};
template <class T> struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};
template <class T> struct is_scalar : bool_constant<is_scalar_v<T>> {};
template <class T> struct is_vector : bool_constant<is_vector_v<T>> {};
template <class T> struct is_signed : bool_constant<is_signed_v<T>> {};
template <class T> struct is_unsigned : bool_constant<is_unsigned_v<T>> {};
template <class T> struct is_pointer : bool_constant<is_pointer_v<T>> {};
template <class T> struct is_reference : bool_constant<is_reference_v<T>> {};
template <class T> struct is_void : bool_constant<is_void_v<T>> {};
template <class T> struct is_array : bool_constant<is_array_v<T>> {};
template <class T> struct is_enum : bool_constant<is_enum_v<T>> {};
template <class T> struct is_class : bool_constant<is_class_v<T>> {};
template <class T> struct is_const : bool_constant<is_const_v<T>> {};
template <class T, class U> struct is_convertible : bool_constant<is_convertible_v<T, U>> {};
template <class T, class U> struct is_base_of : bool_constant<is_base_of_v<T, U>> {};

// Internal names of Apple's header that some texts use.
template <class T>
struct __is_valid_simdgroup_type : bool_constant<silo_metal::is_scalar<silo_metal::element_of<T>> &&
                                                 sizeof(silo_metal::element_of<T>) <= 4> {};
template <class T> struct vec_elements : integral_constant<int, silo_metal::length_of<T>> {};

template <class T> struct make_scalar {
    using type = silo_metal::element_of<T>;
};
template <class T> using make_scalar_t = typename make_scalar<T>::type;

} // namespace metal
