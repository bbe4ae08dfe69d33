// The entry function of an object, which runs a range of the threadgroups of a launch.
#pragma once

#include "arguments.h"

namespace silo_metal {

// Runs threads that never wait for each other: one after another, in a loop.
// The compiler may vectorize the loop, because these threads may run in any order.
template <uint X, uint Y, uint Z, bool cut, class Body>
[[gnu::always_inline]] inline int run_plain(const Body &body, const uint *grid, const uint *threads,
                                            unsigned long begin, unsigned long end, void *,
                                            void *context) {
    Group in{};
    place_grid<X, Y, Z>(in, grid, threads, context);
    for (unsigned long program = begin; program < end; program++) {
        place_group<X, Y, Z>(in, program, cut ? threads : nullptr);
        const Group here = in; // a copy, which a thread's stores cannot change
        __builtin_assume(here.position[0] <= (~0u - X) / X);
        const uint sx = cut ? here.shape[0] : X, sy = cut ? here.shape[1] : Y,
                   sz = cut ? here.shape[2] : Z;
        for (uint z = 0; z < sz; z++)
            for (uint y = 0; y < sy; y++) {
#pragma clang loop vectorize(assume_safety)
                for (uint x = 0; x < sx; x++)
                    body(At<X, Y, Z, cut>{here, x, y, z, x + sx * (y + sy * z)});
            }
    }
    return 0;
}

template <uint X, uint Y, uint Z, bool cut, class Body>
[[gnu::noinline]] inline void run_thread(Runner &run) {
    const uint index = run.current;
    const uint sx = cut ? run.shape[0] : X, sy = cut ? run.shape[1] : Y;
    (*static_cast<const Body *>(run.arguments))(
        At<X, Y, Z, cut>{run, index % sx, index / sx % sy, index / sx / sy, index});
}

// Runs threads that have their own stacks and may wait for each other.
template <uint X, uint Y, uint Z, bool cut, class Body>
inline int run_fibers(const Body &body, const uint *grid, const uint *threads, unsigned long begin,
                      unsigned long end, void *scratch, void *context,
                      unsigned long stack = stack_bytes) {
    return run_groups<X, Y, Z>(run_thread<X, Y, Z, cut, Body>, &body, grid, cut ? threads : nullptr,
                               begin, end, scratch, context, {.stack = stack});
}

} // namespace silo_metal
