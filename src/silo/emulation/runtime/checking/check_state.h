// What a check and its host share: `fault_report.py` has the same structs.
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
    stack_bounds = 6,   // beyond a variable of a thread
    scope = 7,          // a variable that lives no more
    index = 8,          // beyond the type of an array
    diverged = 9,       // lanes that do not meet where others of their simdgroup do
    global_bounds = 10, // beyond a constant of the program
};

enum class AreaKind : unsigned { array = 0, group = 1 };

// Of an address in the code: nobody's line, a line of the kind's library, a line that the user
// wrote.
enum class PcClass : unsigned char { none = 0, library = 1, user = 2 };

// One access. `group` counts from 1 over all runs, 0 is none; `mask` are bytes of four.
struct Mark {
    unsigned group, phase, simd, site;
    unsigned short thread;
    unsigned char mask, atomic;
};

// What is known of four bytes. `written` are those that the group `written_by` has written.
struct Cell {
    Mark writer, reader, other;
    unsigned written_by, written;
};

struct Area {
    u64 low, high;
    u64 origin;           // the address of the first cell
    Cell *cells;          // null: nothing writes there
    unsigned char *fresh; // a byte each: nothing was written there; null: all was
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

// The first read of memory that nothing was written to; `area` as in Found, ~0u on a stack.
struct Suspect {
    unsigned site, thread, group, area;
    u64 address, size;
};

// A constant of the program, as clang tells of it.
struct Global {
    u64 low, bytes, bytes_with_gap;
    const char *name, *file;
    u64 spare[3];
};

struct GroupArray {
    const char *name, *file;
    u64 low, bytes;
    unsigned line;
    unsigned symbol; // its offset in the object, if `name` is null
};

struct Waiting {
    const char *file;
    unsigned line, spare;
};

// Begins with what a launch lends any kernel.
struct Check {
    unsigned bytes;
    int claimed;
    char text[1016];
    u64 run, seed, steps, fill;
    const Area *areas;
    const unsigned *row_starts; // of stretches of the code, from the start of the object, ascending
    const unsigned char *row_classes;
    unsigned char *atomics; // by group: whether it did any on an array
    const char *file;       // the text's; other places are in headers
    u64 arena_low, arena_high;
    unsigned area_count, row_count;
    unsigned first_group; // the number of this run's first group
    // What is found:
    unsigned suspects;
    unsigned any_atomic, unordered_groups;
    unsigned group, thread, group_threads, group_array_count;
    unsigned shape[4]; // of the group's threads
    Suspect suspect;
    Found found;
    GroupArray group_arrays[64];
    Waiting threads[1024]; // where each waits at a barrier; line 0: it does not
};

} // namespace silo_threads
