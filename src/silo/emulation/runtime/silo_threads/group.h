// A group of threads (a threadgroup in Metal, a block in CUDA) while it runs on a host thread.
//
// A kind of kernel defines before it includes any of these headers:
//   SILO_THREADS_GROUP        its word for a group, in messages
//   SILO_THREADS_BARRIER      its name of the barrier of a group, in messages
//   SILO_THREADS_GROUP_BYTES  the most memory that the threads of a group share
//   SILO_THREADS_MASKED       1: lanes meet those that they name (CUDA), 0: all that are there
//   (Metal)
#pragma once

#include "place.h"

namespace silo_threads {

constexpr unsigned simd_width = 32;
constexpr unsigned most_threads = 1024;
constexpr unsigned long most_group_bytes = SILO_THREADS_GROUP_BYTES; // that threads share

// What can be wrong. The numbers are what the entry returns.
enum class Fault : int {
    none = 0,
    barrier_missed = 1, // some threads ended, or wait for lanes, while others are at a barrier
    barrier_mixed = 2,  // threads of a group are at different barriers
    simd_diverged = 3,  // an operation between lanes that not all of its lanes reach
    group_memory = 4,   // more shared memory than there is
    stack = 5,          // a thread needs more memory for its own variables than there is
    checked = 6,        // what a checker found; the text is its own
    bad_argument = 7,   // of a library's function
};

// What a launch lends its kernel: the start of `struct silo_fault` of Silo's CPU driver. A
// checker's context begins with the same members.
struct Context {
    unsigned bytes;
    int claimed;
    char text[1016];
};

struct Group {
    unsigned size;        // threads
    unsigned current;     // the thread that runs
    unsigned position[3]; // of the group in the grid, in groups
    unsigned grid[3];     // groups
    unsigned shape[3];    // threads along x, y, z
    unsigned threads[3];  // of the whole grid: grid * shape, or fewer where the last groups are cut
    Context *context;     // may be null
    Fault fault;
};

// The group that runs on this host thread. Defined where threads wait for each other
// (SILO_THREADS_SWITCH): code that asks for it and is not made for that does not link.
// No checker looks at what own_group() does: the checker calls it.
#ifdef SILO_THREADS_CHECKED
#define SILO_THREADS_OWN                                                                           \
    __attribute__((noinline, no_sanitize("address", "coverage", "array-bounds"))) inline
#else
#define SILO_THREADS_OWN inline
#endif
#ifdef SILO_THREADS_SLOT // __thread means memory that a group shares: assembly has the variable
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

// Notes the fault, if it is the first of the launch. `text` may have one %u, for `number`.
void note_fault(Group &in, Fault fault, Place place, const char *text, unsigned number = 0);

// Ends the group with a message, from a thread of it; does not return. The first fault of a launch
// is told.
[[noreturn]] void fail(Fault fault, Place place, const char *text);

} // namespace silo_threads
