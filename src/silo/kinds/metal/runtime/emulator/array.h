// <metal_array>: an array whose number of elements is part of its type.
#pragma once

#include "language.h"

namespace metal {

template <class T, size_t n> struct array {
    T elements[n];

    using value_type = T;
    constexpr T &operator[](size_t i) {
        return elements[i];
    }
    constexpr const T &operator[](size_t i) const {
        return elements[i];
    }
    constexpr size_t size() const {
        return n;
    }
    constexpr bool empty() const {
        return n == 0;
    }
    constexpr T *data() {
        return elements;
    }
    constexpr const T *data() const {
        return elements;
    }
    constexpr T *begin() {
        return elements;
    }
    constexpr T *end() {
        return elements + n;
    }
    constexpr const T *begin() const {
        return elements;
    }
    constexpr const T *end() const {
        return elements + n;
    }
    constexpr T &front() {
        return elements[0];
    }
    constexpr T &back() {
        return elements[n - 1];
    }
    constexpr void fill(const T &value) {
        for (T &one : elements)
            one = value;
    }
};
template <class T, class... U> array(T, U...) -> array<T, 1 + sizeof...(U)>;

} // namespace metal
