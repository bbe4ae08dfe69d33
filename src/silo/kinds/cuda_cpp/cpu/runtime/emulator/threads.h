// The threads of a block, with CUDA's names: qualifiers, threadIdx, __shared__ memory, barriers.
//
// Code whose threads wait for each other is compiled with SILO_CUDA_WAITS: each thread has a stack.
// A __shared__ variable is then a __thread variable that clang emulates, in the block's memory. All
// other code runs the threads in a plain loop. Code that cannot run so is detected in two ways:
// - code that waits does not link;
// - a __shared__ variable makes a further thread-local variable beside `here_now`.
#pragma once

#define SILO_THREADS_GROUP "block"
#define SILO_THREADS_BARRIER "__syncthreads"
#define SILO_THREADS_GROUP_BYTES 232448
#define SILO_THREADS_MASKED 1
#include <silo_threads/groups.h>
#include <silo_threads/meeting.h>

#include "vectors.h"

#define __global__
#define __device__
#define __constant__
#define __managed__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __thread

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __NVCC__ 1

#define SILO_HERE silo_threads::Place place = silo_threads::Place::here()

namespace silo_cuda {

using namespace silo_threads;

// The number of threads of a block along each axis. The entry of an object defines these functions.
#define SILO_CUDA_PLAIN __attribute__((always_inline, internal_linkage)) inline
SILO_CUDA_PLAIN unsigned block_x();
SILO_CUDA_PLAIN unsigned block_y();
SILO_CUDA_PLAIN unsigned block_z();

#ifdef SILO_CUDA_WAITS

inline Group &here() {
    return *own_group();
}
inline unsigned thread_x() {
    return here().current % block_x();
}
inline unsigned thread_y() {
    return here().current / block_x() % block_y();
}
inline unsigned thread_z() {
    return here().current / (block_x() * block_y());
}
inline unsigned block_at(int axis) {
    return here().position[axis];
}
inline unsigned grid_of(int axis) {
    return here().grid[axis];
}
inline unsigned thread_rank() {
    return here().current;
}

// Ends the block, and with it the launch, with a message.
[[noreturn]] inline void stop(const char *text, Place place) {
    fail(Fault::bad_argument, place, text);
}

#else

struct Here {
    unsigned thread[3], block[3], grid[3];
    Group *group;
};
static_assert(sizeof(Here) == 48); // cpu_build.py has the same number
static __thread Here here_now;

inline unsigned thread_x() {
    return here_now.thread[0];
}
inline unsigned thread_y() {
    return here_now.thread[1];
}
inline unsigned thread_z() {
    return here_now.thread[2];
}
inline unsigned block_at(int axis) {
    return here_now.block[axis];
}
inline unsigned grid_of(int axis) {
    return here_now.grid[axis];
}
inline unsigned thread_rank() {
    return thread_x() + block_x() * (thread_y() + block_y() * thread_z());
}

// Records that the launch has failed. The thread continues, because it runs on the caller's stack.
[[gnu::noinline, gnu::cold]] inline void stop(const char *text, Place place) {
    here_now.group->current = thread_rank();
    note_fault(*here_now.group, Fault::bad_argument, place, text);
}

#endif

#define SILO_POSITION(type, expression_x, expression_y, expression_z)                              \
    struct type {                                                                                  \
        __declspec(property(get = get_x)) unsigned x;                                              \
        __declspec(property(get = get_y)) unsigned y;                                              \
        __declspec(property(get = get_z)) unsigned z;                                              \
        unsigned get_x() const {                                                                   \
            return expression_x;                                                                   \
        }                                                                                          \
        unsigned get_y() const {                                                                   \
            return expression_y;                                                                   \
        }                                                                                          \
        unsigned get_z() const {                                                                   \
            return expression_z;                                                                   \
        }                                                                                          \
        operator uint3() const {                                                                   \
            return {get_x(), get_y(), get_z()};                                                    \
        }                                                                                          \
        operator dim3() const {                                                                    \
            return dim3(get_x(), get_y(), get_z());                                                \
        }                                                                                          \
    };
SILO_POSITION(ThreadIdx, thread_x(), thread_y(), thread_z())
SILO_POSITION(BlockIdx, block_at(0), block_at(1), block_at(2))
SILO_POSITION(BlockDim, block_x(), block_y(), block_z())
SILO_POSITION(GridDim, grid_of(0), grid_of(1), grid_of(2))

} // namespace silo_cuda

inline constexpr silo_cuda::ThreadIdx threadIdx{};
inline constexpr silo_cuda::BlockIdx blockIdx{};
inline constexpr silo_cuda::BlockDim blockDim{};
inline constexpr silo_cuda::GridDim gridDim{};
inline constexpr int warpSize = 32;

// ---- Memory that the threads of a block share

#ifdef SILO_CUDA_WAITS

namespace silo_cuda {

// Clang's descriptor of an emulated __thread variable.
struct Control {
    unsigned long bytes, align;
    unsigned long place; // offset in the block's memory, plus 1; 0 if not claimed yet
    const void *initial;
};

[[noreturn, gnu::noinline, gnu::cold]] inline void too_much_shared() {
    fail(Fault::group_memory, own_group() ? runner().fiber[runner().current].place : Place{},
         "the __shared__ variables of this kernel take more than the 49152 bytes that a block has");
}

} // namespace silo_cuda

#define SILO_CUDA_SHARED                                                                           \
    extern "C"                                                                                     \
        __attribute__((noinline, visibility("hidden"), no_sanitize("address", "coverage"))) void * \
        __emutls_get_address(silo_cuda::Control *control) {                                        \
        using namespace silo_cuda;                                                                 \
        unsigned long at = __atomic_load_n(&control->place, __ATOMIC_ACQUIRE);                     \
        if (__builtin_expect(at == 0, 0)) {                                                        \
            const unsigned long align = control->align < 16 ? 16 : control->align;                 \
            unsigned long place = unclaimed;                                                       \
            static bool busy;                                                                      \
            while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) {                               \
            }                                                                                      \
            at = __atomic_load_n(&control->place, __ATOMIC_ACQUIRE);                               \
            if (at == 0) {                                                                         \
                place = claim(&place, control->bytes, align);                                      \
                at = place == too_much ? 0 : place + 1;                                            \
                __atomic_store_n(&control->place, at, __ATOMIC_RELEASE);                           \
            }                                                                                      \
            __atomic_clear(&busy, __ATOMIC_RELEASE);                                               \
            if (at == 0)                                                                           \
                too_much_shared();                                                                 \
        }                                                                                          \
        Runner &run = runner();                                                                    \
        announce(run, nullptr, control, at - 1, control->bytes, Place{});                          \
        return run.memory + (at - 1);                                                              \
    }

#endif

// ---- Barriers of a block

#define SILO_LANES [[gnu::always_inline, clang::convergent]] inline

namespace silo_cuda {

constexpr unsigned all_memory = 3, no_memory = ~0u;

// Waits at the barrier, and returns the sum of `value` over all threads.
SILO_LANES unsigned vote(unsigned value, Place place) {
    Runner &run = runner();
    const unsigned turn = run.turn;
    run.votes[turn] += value;
    wait_at_barrier(all_memory, place);
    return runner().votes[turn];
}

} // namespace silo_cuda

SILO_LANES void __syncthreads(SILO_HERE) {
    silo_threads::wait_at_barrier(silo_cuda::all_memory, place);
}
SILO_LANES int __syncthreads_count(int predicate, SILO_HERE) {
    return int(silo_cuda::vote(predicate != 0, place));
}
SILO_LANES int __syncthreads_or(int predicate, SILO_HERE) {
    return silo_cuda::vote(predicate != 0, place) != 0;
}
SILO_LANES int __syncthreads_and(int predicate, SILO_HERE) {
    return silo_cuda::vote(predicate == 0, place) == 0;
}

// Real fences, because blocks run concurrently on host threads.
inline void __threadfence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_system() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// Programmatic dependent launch needs no code, because launches run one after another.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

inline void __trap(SILO_HERE) {
    silo_cuda::stop("__trap()", place);
}
inline long long clock64() {
    return (long long)(__builtin_readcyclecounter());
}
inline int clock() {
    return int(__builtin_readcyclecounter());
}
extern "C" int printf(const char *, ...);
