// Vectors: classes with constructors, elementwise operators and swizzles.
#pragma once

#include "swizzles.h"
#include "traits.h"

namespace silo_metal {

template <class... A> constexpr int components = (length_of<metal::remove_cv_t<A>> + ... + 0);

template <class V, class A> constexpr int put_component(V &to, int at, const A &from) {
    if constexpr (Shape<A>::vector) {
        for (int i = 0; i < length_of<A>; i++)
            to.e[at + i] = element_of<V>(from.e[i]);
        return at + length_of<A>;
    } else {
        to.e[at] = element_of<V>(from);
        return at + 1;
    }
}

// The members of a vector of `n` elements.
#define SILO_VECTOR_BODY(n)                                                                        \
    vec() = default;                                                                               \
    template <class U>                                                                             \
        requires silo_metal::Scalar<U>                                                             \
    constexpr vec(U value) {                                                                       \
        for (int i = 0; i < n; i++)                                                                \
            e[i] = T(value);                                                                       \
    }                                                                                              \
    template <class U>                                                                             \
        requires(!__is_same(U, T))                                                                 \
    constexpr explicit vec(const vec<U, n> &other) {                                               \
        for (int i = 0; i < n; i++)                                                                \
            e[i] = T(other.e[i]);                                                                  \
    }                                                                                              \
    template <class... A>                                                                          \
        requires(sizeof...(A) > 1 && silo_metal::components<A...> == n)                            \
    constexpr vec(const A &...parts) {                                                             \
        int at = 0;                                                                                \
        ((at = silo_metal::put_component(*this, at, parts)), ...);                                 \
    }                                                                                              \
    template <class U>                                                                             \
        requires(!__is_same(U, T))                                                                 \
    constexpr explicit vec(const packed_vec<U, n> &other) {                                        \
        for (int i = 0; i < n; i++)                                                                \
            e[i] = T(other.e[i]);                                                                  \
    }                                                                                              \
    /* {a, b} sets the first elements and makes the others zero. */                                \
    template <class... A>                                                                          \
        requires(sizeof...(A) > 1 && silo_metal::components<A...> < n)                             \
    constexpr vec(const A &...parts) {                                                             \
        int at = 0;                                                                                \
        ((at = silo_metal::put_component(*this, at, parts)), ...);                                 \
        for (; at < n; at++)                                                                       \
            e[at] = T(0);                                                                          \
    }                                                                                              \
    constexpr T &operator[](size_t i) {                                                            \
        return e[i];                                                                               \
    }                                                                                              \
    constexpr const T &operator[](size_t i) const {                                                \
        return e[i];                                                                               \
    }

} // namespace silo_metal

namespace metal {

#define SILO_COLOUR(name, i)                                                                       \
    constexpr T get_##name() const {                                                               \
        return e[i];                                                                               \
    }                                                                                              \
    constexpr void put_##name(T value) {                                                           \
        e[i] = value;                                                                              \
    }                                                                                              \
    __declspec(property(get = get_##name, put = put_##name)) T name;

template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    union {
        T e[2];
        struct {
            T x, y;
        };
    };
    SILO_VECTOR_BODY(2)
    SILO_COLOUR(r, 0)
    SILO_COLOUR(g, 1)
    SILO_SWIZZLES2
};

template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    union {
        T e[3];
        struct {
            T x, y, z;
        };
    };
    SILO_VECTOR_BODY(3)
    SILO_COLOUR(r, 0)
    SILO_COLOUR(g, 1)
    SILO_COLOUR(b, 2)
    SILO_SWIZZLES3
};

template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    union {
        T e[4];
        struct {
            T x, y, z, w;
        };
    };
    SILO_VECTOR_BODY(4)
    SILO_COLOUR(r, 0)
    SILO_COLOUR(g, 1)
    SILO_COLOUR(b, 2)
    SILO_COLOUR(a, 3)
    SILO_SWIZZLES4
};

// A vector without padding, aligned like its elements.
template <class T, int n> struct packed_vec {
    T e[n];
    packed_vec() = default;
    constexpr packed_vec(const vec<T, n> &other) {
        for (int i = 0; i < n; i++)
            e[i] = other.e[i];
    }
    template <class... A>
        requires(sizeof...(A) > 1 && silo_metal::components<A...> == n)
    constexpr packed_vec(const A &...parts) : packed_vec(vec<T, n>(parts...)) {}
    template <class U>
        requires silo_metal::Scalar<U>
    constexpr packed_vec(U value) : packed_vec(vec<T, n>(value)) {}
    constexpr operator vec<T, n>() const {
        vec<T, n> result;
        for (int i = 0; i < n; i++)
            result.e[i] = e[i];
        return result;
    }
    constexpr T &operator[](size_t i) {
        return e[i];
    }
    constexpr const T &operator[](size_t i) const {
        return e[i];
    }
    SILO_COLOUR(x, 0)
    SILO_COLOUR(y, 1)
    SILO_COLOUR(z, 2)
    SILO_COLOUR(w, 3)
    SILO_COLOUR(r, 0)
    SILO_COLOUR(g, 1)
    SILO_COLOUR(b, 2)
    SILO_COLOUR(a, 3)
};

} // namespace metal

namespace silo_metal {

template <class A> constexpr bool is_vector = Shape<A>::vector;

// The vector type of an operator with two operands.
// One operand may be a scalar, which is used for every element.
template <class A, class B> struct Operands;
template <class A, class B>
    requires(is_vector<A> && is_vector<B> && __is_same(element_of<A>, element_of<B>) &&
             length_of<A> == length_of<B>)
struct Operands<A, B> {
    using type = metal::vec<element_of<A>, length_of<A>>;
};
template <class A, class B>
    requires(is_vector<A> && Scalar<B>)
struct Operands<A, B> {
    using type = metal::vec<element_of<A>, length_of<A>>;
};
template <class A, class B>
    requires(Scalar<A> && is_vector<B>)
struct Operands<A, B> {
    using type = metal::vec<element_of<B>, length_of<B>>;
};
template <class A, class B> using operands = typename Operands<A, B>::type;

// The vector type for three operands, any of which may be the vector.
template <class A, class B, class C> struct Operands3 {};
template <class A, class B, class C>
    requires(is_vector<A> || is_vector<B>)
struct Operands3<A, B, C> : Operands<A, B> {};
template <class A, class B, class C>
    requires(Scalar<A> && Scalar<B> && is_vector<C>)
struct Operands3<A, B, C> : Operands<A, C> {};
template <class A, class B, class C>
using operands3 = operands<typename Operands3<A, B, C>::type, C>;

} // namespace silo_metal

namespace metal {

#define SILO_BINARY(op)                                                                            \
    template <class A, class B, class V = silo_metal::operands<A, B>>                              \
    constexpr V operator op(const A &left, const B &right) {                                       \
        const V a(left), b(right);                                                                 \
        V result;                                                                                  \
        for (int i = 0; i < silo_metal::length_of<V>; i++)                                         \
            result.e[i] = silo_metal::element_of<V>(a.e[i] op b.e[i]);                             \
        return result;                                                                             \
    }                                                                                              \
    template <class T, int n, class B, class V = silo_metal::operands<vec<T, n>, B>>               \
    constexpr vec<T, n> &operator op## = (vec<T, n> & left, const B &right) {                      \
        return left = left op right;                                                               \
    }                                                                                              \
    template <class T, int n, class B, class V = silo_metal::operands<vec<T, n>, B>>               \
    constexpr packed_vec<T, n> &operator op## = (packed_vec<T, n> & left, const B &right) {        \
        return left = left op right;                                                               \
    }
SILO_BINARY(+)
SILO_BINARY(-)
SILO_BINARY(*)
SILO_BINARY(/)
SILO_BINARY(%)
SILO_BINARY(&)
SILO_BINARY(|)
SILO_BINARY(^)
SILO_BINARY(<<)
SILO_BINARY(>>)

#define SILO_COMPARISON(op)                                                                        \
    template <class A, class B, class V = silo_metal::operands<A, B>>                              \
    constexpr vec<bool, silo_metal::length_of<V>> operator op(const A &left, const B &right) {     \
        const V a(left), b(right);                                                                 \
        vec<bool, silo_metal::length_of<V>> result;                                                \
        for (int i = 0; i < silo_metal::length_of<V>; i++)                                         \
            result.e[i] = a.e[i] op b.e[i];                                                        \
        return result;                                                                             \
    }
SILO_COMPARISON(==)
SILO_COMPARISON(!=)
SILO_COMPARISON(<)
SILO_COMPARISON(<=)
SILO_COMPARISON(>)
SILO_COMPARISON(>=)
SILO_COMPARISON(&&)
SILO_COMPARISON(||)

#define SILO_UNARY(op, result_type)                                                                \
    template <class A>                                                                             \
        requires silo_metal::is_vector<A>                                                          \
    constexpr vec<result_type, silo_metal::length_of<A>> operator op(const A &a) {                 \
        vec<result_type, silo_metal::length_of<A>> result;                                         \
        for (int i = 0; i < silo_metal::length_of<A>; i++)                                         \
            result.e[i] = result_type(op a.e[i]);                                                  \
        return result;                                                                             \
    }
SILO_UNARY(-, silo_metal::element_of<A>)
SILO_UNARY(+, silo_metal::element_of<A>)
SILO_UNARY(~, silo_metal::element_of<A>)
SILO_UNARY(!, bool)

#define SILO_STEP(op, by)                                                                          \
    template <class T, int n> constexpr vec<T, n> &operator op(vec<T, n> &a) {                     \
        return a = a by T(1);                                                                      \
    }                                                                                              \
    template <class T, int n> constexpr vec<T, n> operator op(vec<T, n> &a, int) {                 \
        const vec<T, n> before = a;                                                                \
        a = a by T(1);                                                                             \
        return before;                                                                             \
    }
SILO_STEP(++, +)
SILO_STEP(--, -)

} // namespace metal

using metal::packed_vec;
using metal::vec;

#define SILO_VECTOR_NAMES(T)                                                                       \
    typedef vec<T, 2> T##2;                                                                        \
    typedef vec<T, 3> T##3;                                                                        \
    typedef vec<T, 4> T##4;                                                                        \
    typedef packed_vec<T, 2> packed_##T##2;                                                        \
    typedef packed_vec<T, 3> packed_##T##3;                                                        \
    typedef packed_vec<T, 4> packed_##T##4;
SILO_VECTOR_NAMES(bool)
SILO_VECTOR_NAMES(char)
SILO_VECTOR_NAMES(uchar)
SILO_VECTOR_NAMES(short)
SILO_VECTOR_NAMES(ushort)
SILO_VECTOR_NAMES(int)
SILO_VECTOR_NAMES(uint)
SILO_VECTOR_NAMES(long)
SILO_VECTOR_NAMES(ulong)
SILO_VECTOR_NAMES(half)
SILO_VECTOR_NAMES(bfloat)
SILO_VECTOR_NAMES(float)

namespace metal {
using ::bfloat;
using ::half;
#define SILO_VECTOR_USING(T)                                                                       \
    using ::packed_##T##2;                                                                         \
    using ::packed_##T##3;                                                                         \
    using ::packed_##T##4;                                                                         \
    using ::T##2;                                                                                  \
    using ::T##3;                                                                                  \
    using ::T##4;
SILO_VECTOR_USING(bool)
SILO_VECTOR_USING(char)
SILO_VECTOR_USING(uchar)
SILO_VECTOR_USING(short)
SILO_VECTOR_USING(ushort)
SILO_VECTOR_USING(int)
SILO_VECTOR_USING(uint)
SILO_VECTOR_USING(long)
SILO_VECTOR_USING(ulong)
SILO_VECTOR_USING(half)
SILO_VECTOR_USING(bfloat)
SILO_VECTOR_USING(float)
} // namespace metal

// Returns the bits of a value as another type of the same size.
template <class T, class U>
    requires(sizeof(T) == sizeof(U))
inline constexpr T as_type(const U &value) {
    return __builtin_bit_cast(T, value);
}
namespace metal {
using ::as_type;
}
