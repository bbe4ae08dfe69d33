// The structs that checked code shares with its host. `fault_report.py` declares the same structs.
#pragma once

namespace silo_threads {

using u64 = unsigned long;

enum class Kind : int {
    nothing = 0,
    bounds = 1,
    readonly = 2,
    uninitialized = 3,
    race = 4,
    endless = 5,
    stack_bounds = 6,   // an access outside of a variable of a thread
    scope = 7,          // an access to a variable whose scope has ended
    index = 8,          // an index beyond the bounds of an array's type
    diverged = 9,       // some lanes did not reach an operation of their simdgroup
    global_bounds = 10, // an access outside of a constant of the program
};

enum class AreaKind : unsigned { array = 0, group = 1 };

// The class of a code address: without a line, on a line of the kind's library, or on a line that
// the user wrote.
enum class PcClass : unsigned char { none = 0, library = 1, user = 2 };

// One access to four bytes. `group` counts from 1 over all runs; it is 0 before the first access.
// `mask` has a bit for each byte.
struct Mark {
    unsigned group, phase, simd, site;
    unsigned short thread;
    unsigned char mask, atomic;
};

// The last accesses to four bytes. `written` is the mask of the bytes that the group `written_by`
// has written.
struct Cell {
    Mark writer, reader, other;
    unsigned written_by, written;
};

struct Area {
    u64 low, high;
    u64 origin;           // the address that the first cell describes
    Cell *cells;          // null if the area is never written
    unsigned char *fresh; // for each byte, 1 until it is written; null if all bytes are written
    AreaKind kind;
    unsigned writable;
};

struct Found {
    int kind, thread;
    unsigned group, site;
    u64 address, size;
    int other_thread;
    unsigned other_group, other_site;
    int write, other_write, area;
    long index;
    const char *file;
    const char *array_type;
    unsigned line, spare;
};

// The first read of memory that was never written. `area` is as in Found, or ~0u for a stack.
struct Suspect {
    unsigned site, thread, group, area;
    u64 address, size;
};

// A constant of the program, in the layout of clang's __asan_register_globals().
struct Global {
    u64 low, bytes, bytes_with_gap;
    const char *name, *file;
    u64 spare[3];
};

struct GroupArray {
    const char *name, *file;
    u64 low, bytes;
    unsigned line;
    unsigned symbol; // the variable's offset in the object, if `name` is null
};

struct Waiting {
    const char *file;
    unsigned line, spare;
};

// The state of a check. The struct begins with the members of Context (group.h).
struct Check {
    unsigned bytes;
    int claimed;
    char text[1016];
    u64 run, seed, steps, fill;
    const Area *areas;
    const unsigned *row_starts; // starts of ranges of code, as offsets in the object, ascending
    const unsigned char *row_classes;
    unsigned char *atomics; // for each group, whether it did an atomic operation on an array
    const char *file;       // the kernel's text; all other files are headers
    u64 arena_low, arena_high;
    unsigned area_count, row_count;
    unsigned first_group; // the number of this run's first group
    // The findings of the run:
    unsigned suspects;
    unsigned any_atomic, unordered_groups;
    unsigned group, thread, group_threads, group_array_count;
    unsigned shape[4]; // numbers of the group's threads along x, y, z
    Suspect suspect;
    Found found;
    GroupArray group_arrays[64];
    Waiting threads[1024]; // where each thread waits at a barrier; line 0 if it does not wait
};

} // namespace silo_threads
