// Threadgroup memory: the arrays that a kernel declares, and the arrays that a launch passes to it.
#pragma once

#include "threads.h"
#include "traits.h"

namespace silo_metal {

#ifdef SILO_METAL_STRICT
template <class T, class Once> inline threadgroup T &threadgroup_array(const char *, Once, Place) {
    threadgroup T *nowhere = nullptr;
    return *nowhere;
}
#else
// Returns the array of a declaration. `Once` is a distinct type for each declaration.
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
    announce(run, name, nullptr, at, sizeof(T), place);
    return *reinterpret_cast<T *>(run.memory + at);
}
#endif

} // namespace silo_metal
