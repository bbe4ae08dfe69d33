// A meeting of lanes of a simdgroup (a warp in CUDA), in which they pass values to each other: the
// basis of all operations between lanes. Lanes that have ended or diverged take no part.
#pragma once

#include "fibers.h"

namespace silo_threads {

// The values that the lanes of a meeting passed, by lane.
template <class T> struct Brought {
    const Lanes &lanes;

    unsigned active() const {
        return lanes.active;
    }
    bool has(unsigned lane) const {
        return lane < simd_width && lanes.active >> lane & 1u;
    }
    T operator[](unsigned lane) const {
        T value;
        __builtin_memcpy(&value, lanes.slot[lanes.met >> lane & 1u][lane], sizeof value);
        return value;
    }
};

// Lanes that call this function at the same place in the code meet. The attributes keep the
// compiler from merging calls of two branches and from duplicating a call.
[[gnu::noinline, clang::convergent, clang::nomerge]] inline Lanes &meet_here(Place place,
                                                                             unsigned flags = ~0u) {
    return meet(runner(), __builtin_return_address(0), flags, place);
}

// Passes `value` to the other lanes, meets them, and returns the values of all lanes.
template <class T>
[[gnu::always_inline, clang::convergent]] inline Brought<T> exchange(const T &value, Place place) {
    static_assert(sizeof(T) <= slot_bytes);
    Runner &run = runner();
    Lanes &lanes = run.own_lanes();
    const unsigned lane = run.current % simd_width;
    __builtin_memcpy(lanes.slot[lanes.turn >> lane & 1u][lane], &value, sizeof value);
    return Brought<T>{meet_here(place)};
}

// Returns the result of `compute` for the values of all lanes. The first lane that goes on computes
// the result once for all of them.
template <class R, class T, class F>
[[gnu::always_inline, clang::convergent]] inline R together(const T &value, Place place,
                                                            F compute) {
    static_assert(sizeof(R) <= slot_bytes);
    const Brought<T> all = exchange(value, place);
    Lanes &lanes = const_cast<Lanes &>(all.lanes);
    if (!lanes.computed) {
        const R made = compute(all);
        __builtin_memcpy(lanes.result, &made, sizeof made);
        lanes.computed = true;
    }
    R result;
    __builtin_memcpy(&result, lanes.result, sizeof result);
    return result;
}

inline unsigned own_lane() {
    return runner().current % simd_width;
}

} // namespace silo_threads
