// The functions through which the runtime informs a checker. Checked code is compiled with
// SILO_THREADS_CHECKED and an include folder that contains <checked_hooks.h>, which defines the
// same functions in the same namespace. All other code uses these empty functions.
//
// In both versions, threads are numbered within their group, from 0 to group.size - 1; thread / 32
// is the number of the simdgroup. One group runs at a time on a host thread, and one of its threads
// at a time. The functions run on the host's stack or on the current thread's stack.
#pragma once

#include "group.h"

namespace silo_threads {

// How an atomic operation uses memory. For `update` (max, compare-and-swap) the new value may
// depend on the old value; for `change` (add) it always does.
enum class AtomicUse { load, store, update, change };

} // namespace silo_threads

#ifdef SILO_THREADS_CHECKED
#include <checked_hooks.h>
#else

namespace silo_threads::hook {

// Called before the first thread of a group begins, and after the last thread has ended. The other
// arguments of begin_group are the shared memory of the group: its address and its size in bytes.
inline void begin_group(Group &, const void *, unsigned long) {}
inline void end_group(Group &) {}

// Called before a thread of the group begins or continues, still on the stack of the thread that
// ran last.
inline void enter(Group &, unsigned) {}

// Returns the thread that runs next: one of the threads whose bit is set in `ready` (bit 0 of the
// first word is thread 0). `after` is the thread that ran last. Called only in checked code,
// whenever a thread parks or ends while another is ready.
inline unsigned next(Group &, const unsigned *, unsigned after) {
    return after;
}

// Called when a thread has arrived at the barrier of its group. `flags` are the kinds of memory
// that the barrier orders: 1 arrays, 2 shared memory.
inline void arrive(Group &, unsigned, Place, unsigned) {}

// Called when all threads of the group are at the barrier: their earlier accesses are complete.
inline void pass_barrier(Group &, Place, unsigned) {}

// Called when the lanes in `mask` of a simdgroup meet. At a barrier of lanes, `flags` are the kinds
// of memory that the barrier orders (1 arrays, 2 shared memory); at another operation between lanes
// `flags` is ~0u. `live` are the lanes that should take part.
inline void pass_simd(Group &, unsigned, unsigned, unsigned, Place, unsigned) {}

// Called once in a group for each shared array, with its size `bytes` and its address `memory`.
// `name` is the array's name in the text, or "" for an array that Silo's headers declare. If `name`
// is null, the object's symbol at the address `symbol` has the name.
inline void group_array(Group &, const char *, const void *, void *, unsigned long, Place) {}

// Called before an atomic operation on `bytes` at `memory`. If it returns false, the operation is
// skipped.
inline bool access(const volatile void *, unsigned long, AtomicUse, Place) {
    return true;
}

} // namespace silo_threads::hook

#endif
