// The arguments of a kernel's call, each convertible to any type that its parameter may have.
#pragma once

#include "arrays.h"
#include "vector.h"

namespace silo_metal {

// An array; converts to a pointer of any type.
struct Pointer {
    void *address;
    template <class T> operator T *() const {
        return static_cast<T *>(address);
    }
};

// The first element of an array; converts to a reference of any type.
struct Reference {
    void *address;
    template <class T> operator T &() const {
        return *static_cast<T *>(address);
    }
};

// A position or a size; converts to an integer or a vector of integers.
struct Position {
    uint x, y, z;
    template <class T> operator T() const {
        if constexpr (length_of<T> == 1)
            return T(x);
        else if constexpr (length_of<T> == 2)
            return T(element_of<T>(x), element_of<T>(y));
        else
            return T(element_of<T>(x), element_of<T>(y), element_of<T>(z));
    }
};

// The position of a thread. `X`, `Y`, `Z` are the threads of a whole threadgroup along each axis.
// If the grid's last groups may be partial (`cut`), `in.shape` has the threads of this group.
template <uint X, uint Y, uint Z, bool cut> struct At {
    const Group &in;
    uint x, y, z, index;

    Position thread_position_in_threadgroup() const {
        return {x, y, z};
    }
    Position threadgroup_position_in_grid() const {
        return {in.position[0], in.position[1], in.position[2]};
    }
    Position thread_position_in_grid() const {
        return {in.position[0] * X + x, in.position[1] * Y + y, in.position[2] * Z + z};
    }
    Position threads_per_threadgroup() const {
        if constexpr (cut)
            return {in.shape[0], in.shape[1], in.shape[2]};
        else
            return {X, Y, Z};
    }
    Position dispatch_threads_per_threadgroup() const {
        return {X, Y, Z};
    }
    Position threads_per_grid() const {
        return {in.threads[0], in.threads[1], in.threads[2]};
    }
    Position grid_size() const {
        return threads_per_grid();
    }
    Position grid_origin() const {
        return {0, 0, 0};
    }
    Position threadgroups_per_grid() const {
        return {in.grid[0], in.grid[1], in.grid[2]};
    }
    Position thread_index_in_threadgroup() const {
        return {index, 0, 0};
    }
    Position thread_index_in_simdgroup() const {
        return {index % simd_width, 0, 0};
    }
    Position simdgroup_index_in_threadgroup() const {
        return {index / simd_width, 0, 0};
    }
    Position threads_per_simdgroup() const {
        return {simd_width, 1, 1};
    }
    Position thread_execution_width() const {
        return {simd_width, 1, 1};
    }
    Position simdgroups_per_threadgroup() const {
        return {(in.size + simd_width - 1) / simd_width, 1, 1};
    }
    Position dispatch_simdgroups_per_threadgroup() const {
        return {(X * Y * Z + simd_width - 1) / simd_width, 1, 1};
    }
    Position thread_index_in_quadgroup() const {
        return {index % 4, 0, 0};
    }
    Position quadgroup_index_in_threadgroup() const {
        return {index / 4, 0, 0};
    }
    Position quadgroups_per_threadgroup() const {
        return {(in.size + 3) / 4, 1, 1};
    }
    Position dispatch_quadgroups_per_threadgroup() const {
        return {(X * Y * Z + 3) / 4, 1, 1};
    }
};

} // namespace silo_metal
