// Memory that the threads of a group share. The first thread that reaches an array's declaration
// claims an offset for the array, which stays the same for every group of every launch.
#pragma once

#include "fibers.h"

namespace silo_threads {

// Bytes that the arrays of this object have claimed so far.
inline constinit unsigned long group_bytes = 0;
inline constinit bool claiming = false;
constexpr unsigned long unclaimed = ~0ul;
constexpr unsigned long too_much = ~0ul - 1;

// Compiled without checks: the function fills the array before it is announced to the checker.
[[gnu::noinline, gnu::cold, clang::no_sanitize("address")]] inline unsigned long
claim(unsigned long *place, unsigned long bytes, unsigned long align) {
    while (__atomic_test_and_set(&claiming, __ATOMIC_ACQUIRE)) {
    }
    unsigned long at = *place;
    if (at == unclaimed) {
        const unsigned long used = __atomic_load_n(&group_bytes, __ATOMIC_RELAXED);
        const unsigned long most = runner().memory_bytes;
        at = (used + align - 1) / align * align;
        if (at > most || bytes > most - at) {
            at = too_much;
        } else {
            __atomic_store_n(&group_bytes, at + bytes, __ATOMIC_RELAXED);
            // run_groups() fills claimed memory with NaN, but this group began before the array was
            // claimed.
            __builtin_memset(runner().memory + at, 0xff, bytes);
            __atomic_store_n(place, at, __ATOMIC_RELEASE);
        }
    }
    __atomic_clear(&claiming, __ATOMIC_RELEASE);
    return at;
}

// Announces an array to the checker. If `name` is null, the checker looks up the name in the
// object's symbols, by the address `symbol`.
inline void announce(Runner &run, const char *name, const void *symbol, unsigned long at,
                     unsigned long bytes, Place place) {
#ifdef SILO_THREADS_CHECKED
    unsigned long &word = run.announced[at / 16 / 64];
    const unsigned long bit = 1ul << at / 16 % 64;
    if (word & bit)
        return;
    word |= bit;
#endif
    hook::group_array(run, name, symbol, run.memory + at, bytes, place);
}

} // namespace silo_threads
