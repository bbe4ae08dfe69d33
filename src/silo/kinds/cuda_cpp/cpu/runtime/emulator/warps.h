// Operations between the lanes of a warp. As on the hardware, lanes meet if they call the same kind
// of operation with the same mask, wherever in the code the calls are.
#pragma once

#include "threads.h"

namespace silo_cuda {

constexpr unsigned warp = 32;

enum class Kind : unsigned long { shuffle = 1, vote, match, sync, reduce };

// Waits for the other lanes in `mask`, except those that have ended.
SILO_LANES Lanes &meet_lanes(Kind kind, unsigned mask, unsigned flags, Place place) {
    Runner &run = runner();
    if (__builtin_expect(!(mask >> run.current % warp & 1u), 0))
        fail(Fault::simd_diverged, place,
             "the mask of an operation between lanes lacks the lane that calls it");
    const void *const site = reinterpret_cast<const void *>((unsigned long)kind << 32 | mask);
    return meet(run, site, flags, place, mask, false);
}

// Passes `value` to the other lanes in `mask`, meets them, and returns the values of all lanes.
template <class T>
SILO_LANES Brought<T> exchange(Kind kind, unsigned mask, const T &value, Place place) {
    static_assert(sizeof(T) <= slot_bytes);
    Runner &run = runner();
    Lanes &lanes = run.own_lanes();
    const unsigned lane = run.current % warp;
    __builtin_memcpy(lanes.slot[lanes.turn >> lane & 1u][lane], &value, sizeof value);
    return Brought<T>{meet_lanes(kind, mask, no_memory, place)};
}

inline unsigned lane_now() {
    return own_lane();
}

// Returns the value of lane `from`, or the caller's own value if lane `from` takes no part.
template <class T> SILO_LANES T take(unsigned mask, T value, int from, Place place) {
    const Brought<T> all = exchange(Kind::shuffle, mask, value, place);
    return from >= 0 && all.has(unsigned(from)) ? all[unsigned(from)] : value;
}

SILO_LANES unsigned ballot(unsigned mask, bool value, Place place) {
    const Brought<bool> all = exchange(Kind::vote, mask, value, place);
    unsigned bits = 0;
    for (unsigned rest = all.active(); rest; rest &= rest - 1) {
        const unsigned lane = unsigned(__builtin_ctz(rest));
        bits |= unsigned(all[lane]) << lane;
    }
    return bits;
}

template <class T, class F> SILO_LANES T combine(unsigned mask, T value, Place place, F function) {
    const Brought<T> all = exchange(Kind::reduce, mask, value, place);
    unsigned rest = all.active();
    T result = all[unsigned(__builtin_ctz(rest))];
    for (rest &= rest - 1; rest; rest &= rest - 1)
        result = function(result, all[unsigned(__builtin_ctz(rest))]);
    return result;
}

} // namespace silo_cuda

template <class T>
SILO_LANES T __shfl_sync(unsigned mask, T value, int from, int width = 32, SILO_HERE) {
    const int lane = int(silo_cuda::lane_now());
    return silo_cuda::take(mask, value, (lane & ~(width - 1)) + (from & (width - 1)), place);
}
template <class T>
SILO_LANES T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SILO_HERE) {
    const int lane = int(silo_cuda::lane_now()), from = lane - int(delta);
    return silo_cuda::take(mask, value, from < (lane & ~(width - 1)) ? lane : from, place);
}
template <class T>
SILO_LANES T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SILO_HERE) {
    const int lane = int(silo_cuda::lane_now()), from = lane + int(delta);
    return silo_cuda::take(mask, value, from > (lane | (width - 1)) ? lane : from, place);
}
template <class T>
SILO_LANES T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32, SILO_HERE) {
    const int lane = int(silo_cuda::lane_now()), from = lane ^ other;
    return silo_cuda::take(mask, value, from > (lane | (width - 1)) ? lane : from, place);
}

SILO_LANES void __syncwarp(unsigned mask = 0xffffffffu, SILO_HERE) {
    silo_cuda::meet_lanes(silo_cuda::Kind::sync, mask, silo_cuda::all_memory, place);
}
SILO_LANES unsigned __ballot_sync(unsigned mask, int predicate, SILO_HERE) {
    return silo_cuda::ballot(mask, predicate != 0, place);
}
SILO_LANES int __any_sync(unsigned mask, int predicate, SILO_HERE) {
    return silo_cuda::ballot(mask, predicate != 0, place) != 0;
}
SILO_LANES int __all_sync(unsigned mask, int predicate, SILO_HERE) {
    return silo_cuda::ballot(mask, predicate == 0, place) == 0;
}
SILO_LANES int __uni_sync(unsigned mask, int predicate, SILO_HERE) {
    return silo_cuda::combine(mask, unsigned(predicate != 0 ? 1 : 2), place,
                              [](unsigned a, unsigned b) { return a | b; }) != 3;
}
template <class T> SILO_LANES unsigned __match_any_sync(unsigned mask, T value, SILO_HERE) {
    const silo_threads::Brought<T> all =
        silo_cuda::exchange(silo_cuda::Kind::match, mask, value, place);
    unsigned bits = 0;
    for (unsigned rest = all.active(); rest; rest &= rest - 1) {
        const unsigned lane = unsigned(__builtin_ctz(rest));
        bits |= unsigned(all[lane] == value) << lane;
    }
    return bits;
}
template <class T>
SILO_LANES unsigned __match_all_sync(unsigned mask, T value, int *predicate, SILO_HERE) {
    const silo_threads::Brought<T> all =
        silo_cuda::exchange(silo_cuda::Kind::match, mask, value, place);
    const unsigned active = all.active();
    bool same = true;
    for (unsigned rest = active; rest; rest &= rest - 1)
        same = same && all[unsigned(__builtin_ctz(rest))] == value;
    *predicate = same;
    return same ? active : 0;
}
#define SILO_REDUCE(name, type, expression)                                                        \
    SILO_LANES type name(unsigned mask, type value, SILO_HERE) {                                   \
        return silo_cuda::combine(mask, value, place, [](type a, type b) { return expression; });  \
    }
SILO_REDUCE(__reduce_add_sync, unsigned, a + b)
SILO_REDUCE(__reduce_add_sync, int, int(unsigned(a) + unsigned(b)))
SILO_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
SILO_REDUCE(__reduce_min_sync, int, a < b ? a : b)
SILO_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
SILO_REDUCE(__reduce_max_sync, int, a > b ? a : b)
SILO_REDUCE(__reduce_and_sync, unsigned, a &b)
SILO_REDUCE(__reduce_or_sync, unsigned, a | b)
SILO_REDUCE(__reduce_xor_sync, unsigned, a ^ b)

namespace silo_cuda {

// Returns the mask of the lanes that meet at this call. Waits for lanes that are late; the hardware
// may leave them out.
[[gnu::noinline, clang::convergent, clang::nomerge]] inline unsigned active_lanes(Place place) {
    return meet(runner(), __builtin_return_address(0), no_memory, place).active;
}

} // namespace silo_cuda

SILO_LANES unsigned __activemask(SILO_HERE) {
    return silo_cuda::active_lanes(place);
}
