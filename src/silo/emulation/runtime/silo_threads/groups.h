// The groups of a launch, one after another on a host thread.
#pragma once

#include "grid_barrier.h"
#include "group_memory.h"

// An attribute for the statement that calls the kernel's function. Empty for Clang 16, which
// crashes on the attribute if the function is a template.
#if __clang_major__ > 16
#define SILO_THREADS_INLINED [[clang::always_inline]]
#else
#define SILO_THREADS_INLINED
#endif

namespace silo_threads {

// Sets position and shape of the group with the number `program`. `threads` is null if no group is
// partial.
template <unsigned X, unsigned Y, unsigned Z>
inline void place_group(Group &in, unsigned long program, const unsigned *threads) {
    in.position[0] = unsigned(program % in.grid[0]);
    in.position[1] = unsigned(program / in.grid[0] % in.grid[1]);
    in.position[2] = unsigned(program / in.grid[0] / in.grid[1]);
    const unsigned whole[3] = {X, Y, Z};
    for (int axis = 0; axis < 3; axis++) {
        in.shape[axis] = whole[axis];
        if (threads) {
            const unsigned left = threads[axis] - in.position[axis] * whole[axis];
            in.shape[axis] = left < whole[axis] ? left : whole[axis];
        }
    }
    in.size = in.shape[0] * in.shape[1] * in.shape[2];
}

template <unsigned X, unsigned Y, unsigned Z>
inline void place_grid(Group &in, const unsigned *grid, const unsigned *threads, void *context) {
    const unsigned whole[3] = {X, Y, Z};
    for (int axis = 0; axis < 3; axis++) {
        in.grid[axis] = grid[axis];
        in.threads[axis] = threads ? threads[axis] : grid[axis] * whole[axis];
    }
    in.context = static_cast<Context *>(context);
    in.fault = Fault::none;
}

// The bytes of a stack, and of the memory that the threads of a group share.
struct Sizes {
    unsigned long stack = stack_bytes;
    unsigned long memory = most_group_bytes;
};

// Runs the groups `begin` to `end` - 1. Their threads have their own stacks and may wait for each
// other. `thread` is the function that runs one thread, given `body`. If `threads` is not null, it
// is the size of the grid in threads, and the last groups may be partial.
template <unsigned X, unsigned Y, unsigned Z>
inline int run_groups(void (*thread)(Runner &), const void *body, const unsigned *grid,
                      const unsigned *threads, unsigned long begin, unsigned long end,
                      void *scratch, void *context, Sizes sizes) {
    Runner &run = *static_cast<Runner *>(scratch);
    char *after = static_cast<char *>(scratch) + (sizeof(Runner) + 63) / 64 * 64;
    run.memory = after;
    run.memory_bytes = sizes.memory;
    run.stacks = after + (sizes.memory + 63) / 64 * 64;
    run.stride = sizes.stack + stack_gap;
    run.body = thread;
    run.arguments = body;
    place_grid<X, Y, Z>(run, grid, threads, context);
    run.outer = own_group();
    own_group() = &run;
    for (unsigned long program = begin; program < end && run.fault == Fault::none; program++) {
        place_group<X, Y, Z>(run, program, threads);
        // All bits set: NaN as a float, -1 as an integer.
        __builtin_memset(run.memory, 0xff, __atomic_load_n(&group_bytes, __ATOMIC_RELAXED));
#ifdef SILO_THREADS_CHECKED
        __builtin_memset(run.announced, 0, sizeof run.announced);
#endif
        run_group_of_grid(run);
    }
    own_group() = run.outer;
    return int(run.fault);
}

} // namespace silo_threads
