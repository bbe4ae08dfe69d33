// A group of threads (a threadgroup in Metal, a block in CUDA) while it runs on a host thread.
//
// A kind of kernel defines these macros before it includes any of these headers:
//   SILO_THREADS_GROUP        its word for a group, in messages
//   SILO_THREADS_BARRIER      its name of the barrier of a group, in messages
//   SILO_THREADS_GROUP_BYTES  the most memory that the threads of a group share
//   SILO_THREADS_MASKED       1: an operation between lanes is over the lanes in its mask (CUDA),
//                             0: over all active lanes (Metal)
#pragma once

#include "place.h"

namespace silo_threads {

constexpr unsigned simd_width = 32;
constexpr unsigned most_threads = 1024;
// The most shared memory of a group.
constexpr unsigned long most_group_bytes = SILO_THREADS_GROUP_BYTES;

// The faults of a launch. The entry returns the number.
enum class Fault : int {
    none = 0,
    barrier_missed = 1, // some threads are at a barrier, while others have ended or wait for lanes
    barrier_mixed = 2,  // threads of a group are at different barriers
    simd_diverged = 3,  // some lanes do not reach an operation between lanes
    group_memory = 4,   // the shared arrays exceed the shared memory
    stack = 5,          // a thread's variables exceed its stack
    checked = 6,        // a checker found a fault, and has written the text
    bad_argument = 7,   // an invalid argument of a library function
};

// Memory that a launch passes to its kernel for the message of a fault. It is the start of `struct
// silo_fault` of Silo's CPU driver. A checker's context begins with the same members.
struct Context {
    unsigned bytes;
    int claimed;
    char text[1016];
};

struct Group {
    unsigned size;        // number of threads
    unsigned current;     // number of the running thread
    unsigned position[3]; // the group's position in the grid, counted in groups
    unsigned grid[3];     // numbers of groups along x, y, z
    unsigned shape[3];    // the group's threads along x, y, z
    unsigned threads[3];  // the grid's threads along x, y, z: grid * shape, or fewer if the last
                          // groups are partial
    Context *context;     // may be null
    Fault fault;
};

// own_group() returns the group that runs on this host thread. The variable that holds the group is
// defined (SILO_THREADS_SWITCH) only in an object whose threads may wait for each other; other code
// that calls own_group() does not link. own_group() is compiled without checks of its accesses,
// because the checker itself calls it.
#ifdef SILO_THREADS_CHECKED
#define SILO_THREADS_OWN                                                                           \
    __attribute__((noinline, no_sanitize("address", "coverage", "array-bounds"))) inline
#else
#define SILO_THREADS_OWN inline
#endif
#ifdef SILO_THREADS_SLOT // __thread means shared memory here, so assembly defines this variable
extern "C" [[gnu::const]] Group **silo_threads_slot() __attribute__((visibility("hidden")));
SILO_THREADS_OWN Group *&own_group() {
    return *silo_threads_slot();
}
#else
extern __thread Group *group __asm__("silo_threads_group") __attribute__((visibility("hidden")));
SILO_THREADS_OWN Group *&own_group() {
    return group;
}
#endif

// Records a fault, if it is the first of the launch. `text` may contain one %u, which prints
// `number`.
void note_fault(Group &in, Fault fault, Place place, const char *text, unsigned number = 0);

// Ends the group with a message and does not return; called by a thread of the group. A launch
// reports only its first fault.
[[noreturn]] void fail(Fault fault, Place place, const char *text);

} // namespace silo_threads
