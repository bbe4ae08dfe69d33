// The entry of an object: programs of a launch, each of which is a threadgroup.
#pragma once

#include "arguments.h"

// Before the call of a kernel's function. Clang 16 crashes on it where that is of a template.
#if __clang_major__ > 16
#define SILO_METAL_INLINED [[clang::always_inline]]
#else
#define SILO_METAL_INLINED
#endif

namespace silo_metal {

// Which group program `program` is, and of what shape. `threads` is null where all are whole.
template <uint X, uint Y, uint Z>
inline void place_group(Group &in, unsigned long program, const uint *threads) {
    in.position[0] = uint(program % in.grid[0]);
    in.position[1] = uint(program / in.grid[0] % in.grid[1]);
    in.position[2] = uint(program / in.grid[0] / in.grid[1]);
    const uint whole[3] = {X, Y, Z};
    for (int axis = 0; axis < 3; axis++) {
        in.shape[axis] = whole[axis];
        if (threads) {
            const uint left = threads[axis] - in.position[axis] * whole[axis];
            in.shape[axis] = left < whole[axis] ? left : whole[axis];
        }
    }
    in.size = in.shape[0] * in.shape[1] * in.shape[2];
}

template <uint X, uint Y, uint Z>
inline void place_grid(Group &in, const uint *grid, const uint *threads, void *context) {
    const uint whole[3] = {X, Y, Z};
    for (int axis = 0; axis < 3; axis++) {
        in.grid[axis] = grid[axis];
        in.threads[axis] = threads ? threads[axis] : grid[axis] * whole[axis];
    }
    in.context = static_cast<Context *>(context);
    in.fault = Fault::none;
}

// Threads that wait for nobody: one after another, in a loop that may be vectorised, for the order
// of threads that do not wait is free.
template <uint X, uint Y, uint Z, bool cut, class Body>
[[gnu::always_inline]] inline int run_plain(const Body &body, const uint *grid, const uint *threads,
                                            unsigned long begin, unsigned long end, void *,
                                            void *context) {
    Group in{};
    place_grid<X, Y, Z>(in, grid, threads, context);
    for (unsigned long program = begin; program < end; program++) {
        place_group<X, Y, Z>(in, program, cut ? threads : nullptr);
        const Group here = in; // nothing that a thread stores can change it
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

// Threads with stacks of their own, which may wait for each other. The first `given` bytes of
// threadgroup memory are the launch's.
template <uint X, uint Y, uint Z, bool cut, class Body>
inline int run_fibers(const Body &body, const uint *grid, const uint *threads, unsigned long begin,
                      unsigned long end, void *scratch, void *context,
                      unsigned long stack = stack_bytes) {
    Runner &run = *static_cast<Runner *>(scratch);
    char *after = static_cast<char *>(scratch) + (sizeof(Runner) + 63) / 64 * 64;
    run.memory = after;
    run.stacks = after + most_group_bytes;
    run.stride = stack + stack_gap;
    run.body = run_thread<X, Y, Z, cut, Body>;
    run.arguments = &body;
    place_grid<X, Y, Z>(run, grid, threads, context);
    Group *const before = group;
    group = &run;
    for (unsigned long program = begin; program < end && run.fault == Fault::none; program++) {
        place_group<X, Y, Z>(run, program, cut ? threads : nullptr);
        // All bits set is NaN as a float, and -1 as an integer.
        __builtin_memset(run.memory, 0xff, __atomic_load_n(&group_bytes, __ATOMIC_RELAXED));
#ifdef SILO_METAL_CHECKED
        __builtin_memset(run.announced, 0, sizeof run.announced);
#endif
        run_group(run);
    }
    group = before;
    return int(run.fault);
}

} // namespace silo_metal
