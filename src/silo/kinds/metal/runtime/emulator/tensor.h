// <metal_tensor>: views of memory with extents; the first axis has the smallest stride.
#pragma once

#include "array.h"
#include "traits.h"

namespace metal {

constexpr size_t dynamic_extent = size_t(-1);

template <class I, size_t... given> struct extents {
    static constexpr size_t count = sizeof...(given);
    I sizes[count > 0 ? count : 1];

    using index_type = I;
    extents() = default;
    template <class... A>
        requires(sizeof...(A) == sizeof...(given))
    constexpr extents(A... all) : sizes{I(all)...} {}
    static constexpr size_t rank() {
        return count;
    }
    constexpr I extent(size_t axis) const {
        return sizes[axis];
    }
};

} // namespace metal

namespace silo_metal {

template <class I, size_t rank, size_t... more>
struct Dynamic : Dynamic<I, rank - 1, more..., metal::dynamic_extent> {};
template <class I, size_t... more> struct Dynamic<I, 0, more...> {
    using type = metal::extents<I, more...>;
};

} // namespace silo_metal

namespace metal {

template <class I, size_t rank> using dextents = typename silo_metal::Dynamic<I, rank>::type;

struct tensor_handle {};
struct tensor_inline {};
struct tensor_offset {};

template <class T, class E, class K = tensor_handle> struct tensor {
    using value_type = remove_cv_t<T>;
    using element_type = T;
    using extents_type = E;
    using index_type = typename E::index_type;
    static constexpr size_t axes = E::count;

    T *memory = nullptr;
    long sizes[axes > 0 ? axes : 1] = {};
    long steps[axes > 0 ? axes : 1] = {};

    tensor() = default;
    // Makes a packed tensor: the stride of an axis is the number of elements of the axes before it.
    tensor(T *memory, E given) : memory(memory) {
        long step = 1;
        for (size_t i = 0; i < axes; i++) {
            sizes[i] = given.sizes[i];
            steps[i] = step;
            step *= sizes[i];
        }
    }
    template <class I, size_t n>
    tensor(T *memory, E given, const array<I, n> &strides) : memory(memory) {
        for (size_t i = 0; i < axes; i++) {
            sizes[i] = given.sizes[i];
            steps[i] = strides[i];
        }
    }
    static constexpr size_t get_rank() {
        return axes;
    }
    index_type get_extent(size_t axis) const {
        return index_type(sizes[axis]);
    }
    index_type get_stride(size_t axis) const {
        return index_type(steps[axis]);
    }
    T *data_handle() const {
        return memory;
    }
    // Returns the part that starts at these positions, with at most the lengths `lengths`.
    // Without a length, the part extends to the end of the axis.
    template <long... lengths, class... A> tensor slice(A... from) const {
        const long at[] = {long(from)...};
        const long wanted[] = {lengths..., 0};
        tensor part = *this;
        for (size_t i = 0; i < axes; i++) {
            part.memory += at[i] * steps[i];
            part.sizes[i] = sizes[i] - at[i];
            if (i < sizeof...(lengths) && wanted[i] >= 0 && wanted[i] < part.sizes[i])
                part.sizes[i] = wanted[i];
            if (part.sizes[i] < 0)
                part.sizes[i] = 0;
        }
        return part;
    }
    template <class I> T &operator[](const array<I, axes> &at) const {
        long offset = 0;
        for (size_t i = 0; i < axes; i++)
            offset += long(at[i]) * steps[i];
        return memory[offset];
    }
    // `holds` and `at` are for tensors with two axes.
    bool holds(long x, long y) const {
        return x >= 0 && y >= 0 && x < sizes[0] && y < sizes[1];
    }
    T &at(long x, long y) const {
        return memory[x * steps[0] + y * steps[1]];
    }
};

} // namespace metal
