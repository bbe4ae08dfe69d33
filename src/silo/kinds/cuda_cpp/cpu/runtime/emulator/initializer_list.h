// std::initializer_list; clang sets its members.
#pragma once
#include "traits.h"

namespace std {

template <class T> class initializer_list {
    const T *first = nullptr;
    size_t count = 0;

  public:
    using value_type = T;
    constexpr initializer_list() = default;
    constexpr const T *begin() const {
        return first;
    }
    constexpr const T *end() const {
        return first + count;
    }
    constexpr size_t size() const {
        return count;
    }
};

} // namespace std

namespace cuda::std {
using ::std::initializer_list;
}
