// std::array, for device code.
#pragma once
#include "traits.h"

namespace cuda::std {

template <class T, size_t count> struct array {
    using value_type = T;
    using size_type = size_t;
    T elements[count];

    constexpr T &operator[](size_t at) {
        return elements[at];
    }
    constexpr const T &operator[](size_t at) const {
        return elements[at];
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
    constexpr const T *begin() const {
        return elements;
    }
    constexpr T *end() {
        return elements + count;
    }
    constexpr const T *end() const {
        return elements + count;
    }
    constexpr T &front() {
        return elements[0];
    }
    constexpr const T &front() const {
        return elements[0];
    }
    constexpr T &back() {
        return elements[count - 1];
    }
    constexpr const T &back() const {
        return elements[count - 1];
    }
    constexpr void fill(const T &value) {
        for (T &one : elements)
            one = value;
    }
    static constexpr size_t size() {
        return count;
    }
    static constexpr bool empty() {
        return count == 0;
    }
};
template <class T, class... More> array(T, More...) -> array<T, 1 + sizeof...(More)>;

} // namespace cuda::std
