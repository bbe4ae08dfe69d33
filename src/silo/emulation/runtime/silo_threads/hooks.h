// What the runtime tells a checker. Code that checks itself is compiled with SILO_THREADS_CHECKED
// and a folder that has <checked_hooks.h>, which defines the same functions in the same namespace;
// in all other code they are these, which are nothing.
//
// In both: threads are numbered within their group, 0 to group.size - 1; thread / 32 is the
// simdgroup. One group runs at a time on a host thread, and one thread of it at a time. Everything
// here runs on the host's own stack or on that of the thread that runs.
#pragma once

#include "group.h"

namespace silo_threads {

// What an atomic operation does with a place: `update` leaves there what may depend on what was,
// `change` what does for certain.
enum class AtomicUse { load, store, update, change };

} // namespace silo_threads

#ifdef SILO_THREADS_CHECKED
#include <checked_hooks.h>
#else

namespace silo_threads::hook {

// Before the first thread of a group begins, and after the last has ended. `group` says which it
// is (position, grid, shape) and what the launch lent (context); the others are where the memory
// begins that its threads share, and its bytes.
inline void begin_group(Group &, const void *, unsigned long) {}
inline void end_group(Group &) {}

// Before `thread` of the group goes on (or begins), on whatever stack comes before.
inline void enter(Group &, unsigned) {}

// Which of the threads that can go on is next: those whose bit is set in `ready`
// (thread 0 is bit 0 of the first word). `after` is the one that ran last. Only called in checked
// code, wherever a thread parks or ends while any other is ready.
inline unsigned next(Group &, const unsigned *, unsigned after) {
    return after;
}

// A thread has arrived at the barrier of its group. `flags` are the memories that it
// orders: 1 arrays, 2 shared memory.
inline void arrive(Group &, unsigned, Place, unsigned) {}

// All threads of the group are at the barrier: what they did before is done.
inline void pass_barrier(Group &, Place, unsigned) {}

// The lanes of `mask` of a simdgroup meet: at a barrier of lanes (`flags` as above) or in an
// operation between lanes (~0u). `live` are the lanes that belong there.
inline void pass_simd(Group &, unsigned, unsigned, unsigned, Place, unsigned) {}

// An array that threads share was made for this group: `bytes` at `memory`. `name` is what the text
// calls it ("" for the runtime's own); if it is null, the object has a symbol at `symbol`. Once a
// group.
inline void group_array(Group &, const char *, const void *, void *, unsigned long, Place) {}

// An atomic operation is about to touch `bytes` at `address`; false where it is not to be done.
inline bool access(const volatile void *, unsigned long, AtomicUse, Place) {
    return true;
}

} // namespace silo_threads::hook

#endif
