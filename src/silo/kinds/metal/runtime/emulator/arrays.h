// Threadgroup memory: arrays that a kernel declares, and those that a launch gives it.
#pragma once

#include "fibers.h"
#include "traits.h"

namespace silo_metal {

// How much of it the arrays of this object take so far. Each array has the same place in every
// group of every launch, from the first time a thread comes by.
inline constinit unsigned long group_bytes = 0;
inline constinit bool claiming = false;
constexpr unsigned long unclaimed = ~0ul;
constexpr unsigned long too_much = ~0ul - 1;

// No checker looks at what it sets: the array is announced later.
[[gnu::noinline, gnu::cold, clang::no_sanitize("address")]] inline unsigned long
claim(unsigned long *place, unsigned long bytes, unsigned long align) {
    while (__atomic_test_and_set(&claiming, __ATOMIC_ACQUIRE)) {
    }
    unsigned long at = *place;
    if (at == unclaimed) {
        const unsigned long used = __atomic_load_n(&group_bytes, __ATOMIC_RELAXED);
        at = (used + align - 1) / align * align;
        if (at > most_group_bytes || bytes > most_group_bytes - at) {
            at = too_much;
        } else {
            __atomic_store_n(&group_bytes, at + bytes, __ATOMIC_RELAXED);
            // What lies there in the groups that are running was not set to NaN when they began.
            __builtin_memset(runner().memory + at, 0xff, bytes);
            __atomic_store_n(place, at, __ATOMIC_RELEASE);
        }
    }
    __atomic_clear(&claiming, __ATOMIC_RELEASE);
    return at;
}

inline void announce(Runner &run, const char *name, unsigned long at, unsigned long bytes,
                     unsigned long element_bytes, Place place) {
#ifdef SILO_METAL_CHECKED
    unsigned long &word = run.announced[at / 16 / 64];
    const unsigned long bit = 1ul << at / 16 % 64;
    if (word & bit)
        return;
    word |= bit;
#endif
    hook::threadgroup_array(run, name, run.memory + at, bytes, element_bytes, place);
}

#ifdef SILO_METAL_STRICT
template <class T, class Once> inline threadgroup T &threadgroup_array(const char *, Once, Place) {
    threadgroup T *nowhere = nullptr;
    return *nowhere;
}
#else
// The array that a declaration stands for. `Once` is a type of its own for each declaration.
template <class T, class Once> inline T &threadgroup_array(const char *name, Once, Place place) {
    static constinit unsigned long place_in_group = unclaimed;
    unsigned long at = __atomic_load_n(&place_in_group, __ATOMIC_ACQUIRE);
    if (at == unclaimed)
        at = claim(&place_in_group, sizeof(T), alignof(T) < 16 ? 16 : alignof(T));
    Runner &run = runner();
    if (__builtin_expect(at == too_much, 0))
        fail(Fault::group_memory, place,
             "the arrays of this kernel take more threadgroup memory than the 32768 bytes there "
             "are");
    using Element = metal::remove_extent_t<T>;
    announce(run, name, at, sizeof(T), sizeof(Element), place);
    return *reinterpret_cast<T *>(run.memory + at);
}
#endif

} // namespace silo_metal
