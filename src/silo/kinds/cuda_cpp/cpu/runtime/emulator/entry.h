// The entry function of an object, which runs a range of the blocks of a launch.
#pragma once

#include "threads.h"

namespace silo_cuda {

// The types of a kernel's parameters, and reading their values from a launch's parameters.
template <class F> struct Kernel;
template <class... A> struct Kernel<void(A...)> {
    static constexpr unsigned count = sizeof...(A);
    template <unsigned index> using type = plain<__type_pack_element<index, A...>>;
    // Returns a copy of a parameter's value. The copy is needed because a launch aligns a struct to
    // 8 bytes, even if the struct's type requires more.
    template <unsigned index> static type<index> value(void *const *parameters) {
        alignas(type<index>) char bytes[sizeof(type<index>)];
        __builtin_memcpy(bytes, parameters[index], sizeof bytes);
        return __builtin_bit_cast(type<index>, bytes);
    }
};

#ifdef SILO_CUDA_WAITS

template <class Body> [[gnu::noinline]] inline void run_thread(Runner &run) {
    (*static_cast<const Body *>(run.arguments))();
}

template <unsigned X, unsigned Y, unsigned Z, class Body>
inline int run_blocks(const Body &body, const unsigned *grid, unsigned long begin,
                      unsigned long end, void *scratch, void *context, Sizes sizes) {
    return run_groups<X, Y, Z>(run_thread<Body>, &body, grid, nullptr, begin, end, scratch, context,
                               sizes);
}

#else

// Runs threads that never wait for each other: one after another, in a loop.
// The compiler may vectorize the loop, because these threads may run in any order.
template <unsigned X, unsigned Y, unsigned Z, class Body>
[[gnu::always_inline]] inline int run_blocks(const Body &body, const unsigned *grid,
                                             unsigned long begin, unsigned long end, void *,
                                             void *context, Sizes) {
    Group in{};
    place_grid<X, Y, Z>(in, grid, nullptr, context);
    Here &at = here_now;
    at.group = &in;
    for (int axis = 0; axis < 3; axis++)
        at.grid[axis] = grid[axis];
    for (unsigned long program = begin; program < end; program++) {
        place_group<X, Y, Z>(in, program, nullptr);
        for (int axis = 0; axis < 3; axis++)
            at.block[axis] = in.position[axis];
        __builtin_assume(at.block[0] <= (~0u - X) / X);
        for (unsigned z = 0; z < Z; z++)
            for (unsigned y = 0; y < Y; y++) {
#pragma clang loop vectorize(assume_safety)
                for (unsigned x = 0; x < X; x++) {
                    at.thread[0] = x;
                    at.thread[1] = y;
                    at.thread[2] = z;
                    body();
                }
            }
    }
    return int(in.fault);
}

#endif

} // namespace silo_cuda
