// The state of a check while it runs, and how a finding ends a launch.
#pragma once

#include "check_state.h"

#define SILO_THREADS_PLAIN __attribute__((no_sanitize("address", "coverage", "array-bounds")))
#define SILO_THREADS_CALLBACK extern "C" SILO_THREADS_PLAIN __attribute__((noinline, used))

extern "C" __attribute__((visibility("hidden"))) char __ehdr_start[];
extern "C" __attribute__((visibility("hidden"))) char _end[];

namespace silo_threads::checked {

// Bits of a barrier's flags: the barrier orders accesses to the arrays, or to shared memory.
constexpr unsigned mem_device = 1, mem_group = 2;
// The flags of an operation between lanes that orders no memory.
constexpr unsigned no_memory_order = ~0u;
constexpr u64 page_bytes = 4096;
constexpr u64 near_stack = 1 << 16; // bytes from the stack pointer that count as the stack
constexpr unsigned most_pages = 1 << 16, most_group_areas = 64;

// ---- Memory that the object keeps as long as it is loaded; only one launch is checked at a time

inline Cell group_cells[most_group_bytes / 4 * 2];
inline Area group_areas[most_group_areas];
inline unsigned group_area_count, group_granules;
inline u64 group_memory; // the address of the group's shared memory
inline u64 group_memory_bytes;
inline unsigned running;      // the number of the running thread
inline bool inside;           // whether a thread of a group is running
inline unsigned group_number; // the number of the running group, counted from 1 over all runs
// How many barriers of the group have ordered the arrays ([0]) or shared memory ([1]).
inline unsigned phase[2];
// For each simdgroup, how many barriers between its lanes have ordered the arrays ([0]) or shared
// memory ([1]).
inline unsigned simd_phase[2][32];
// For each thread, the simd_phase of its simdgroup when the thread last passed such a barrier
// between lanes.
inline unsigned joined[2][most_threads];
inline u64 left; // steps that the group may still execute
inline u64 dice;
inline u64 host_stack;        // an address on the host's stack, below the entry's variables
inline const Global *globals; // constants of the program
inline u64 global_count;
// Bounds of the memory of the current atomic operation, whose own loads and stores are not checked
// again.
inline u64 covered_low, covered_high;
inline unsigned last_area;

// A read that is a race unless an atomic operation on the same memory follows.
struct Pending {
    u64 address; // 0 if there is no such read
    Found found;
};
inline Pending pending[most_threads];

// A page of a stack. For each eight bytes: clang's shadow state, and a mask of the bytes that were
// not yet written.
struct Page {
    u64 number;
    u64 run;
    unsigned char state[page_bytes / 8];
    unsigned char fresh[page_bytes / 8];
};
inline Page *pages[most_pages];
inline u64 run_number;

// The `state` of eight bytes whose variables clang has not announced. Clang's own values are 0 (all
// eight bytes belong to a variable) and 1 to 7 (only so many of the first bytes do).
constexpr unsigned char unknown = 0xAA;

SILO_THREADS_PLAIN inline Check *state() {
    Group *const running_group = own_group();
    return running_group ? static_cast<Check *>(static_cast<void *>(running_group->context))
                         : nullptr;
}

SILO_THREADS_PLAIN inline void fill_bytes(void *memory, unsigned char value, u64 count) {
    volatile unsigned char *at = static_cast<unsigned char *>(memory);
    for (u64 i = 0; i < count; i++) {
        at[i] = value;
    }
}

SILO_THREADS_PLAIN inline Page *page_of(u64 address, bool make) {
    u64 number = address / page_bytes;
    unsigned at = static_cast<unsigned>(number * 0x9E3779B97F4A7C15ull >> 48);
    for (unsigned tries = 0; tries < most_pages; tries++, at = (at + 1) % most_pages) {
        Page *page = pages[at];
        if (page && page->number == number) {
            if (page->run != run_number) {
                if (!make) {
                    return nullptr;
                }
                fill_bytes(page->state, unknown, sizeof page->state);
                fill_bytes(page->fresh, 0, sizeof page->fresh);
                page->run = run_number;
            }
            return page;
        }
        if (!page) {
            if (!make) {
                return nullptr;
            }
            page = static_cast<Page *>(__builtin_malloc(sizeof(Page)));
            if (!page) {
                return nullptr;
            }
            page->number = number;
            page->run = run_number;
            fill_bytes(page->state, unknown, sizeof page->state);
            fill_bytes(page->fresh, 0, sizeof page->fresh);
            pages[at] = page;
            return page;
        }
    }
    return nullptr;
}

// ---- Places in the code

SILO_THREADS_PLAIN inline PcClass class_of(const Check *check, u64 pc) {
    u64 offset = pc - reinterpret_cast<u64>(__ehdr_start) - 1;
    u64 low = 0, high = check->row_count;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (check->row_starts[middle] <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low ? static_cast<PcClass>(check->row_classes[low - 1]) : PcClass::none;
}

// Returns the offset in the object of the code at `pc`. If no line of the kernel's text or of the
// kind's library belongs to that code, returns the offset of its nearest caller that has a line.
SILO_THREADS_PLAIN inline unsigned site_of(const Check *check, u64 pc, const void *frame) {
    const u64 *at = static_cast<const u64 *>(frame);
    for (unsigned depth = 0; depth < 32; depth++) {
        if (class_of(check, pc) != PcClass::none) {
            break;
        }
        u64 next = at[0];
        if (next <= reinterpret_cast<u64>(at) || next - reinterpret_cast<u64>(at) > near_stack ||
            next % 8) {
            break;
        }
        pc = at[1];
        at = reinterpret_cast<const u64 *>(next);
    }
    return static_cast<unsigned>(pc - reinterpret_cast<u64>(__ehdr_start) - 1);
}

// ---- Findings

SILO_THREADS_PLAIN inline unsigned group_index() {
    const Group &g = *own_group();
    return g.position[0] + g.grid[0] * (g.position[1] + g.grid[1] * g.position[2]);
}

SILO_THREADS_PLAIN inline Found *claim(Check *check, Kind kind) {
    Found *found = &check->found;
    fill_bytes(found, 0, sizeof *found);
    found->kind = static_cast<int>(kind);
    found->thread = static_cast<int>(running);
    found->group = group_index();
    found->other_thread = -1;
    found->area = -1;
    return found;
}

[[noreturn]] SILO_THREADS_PLAIN inline void stop() {
    fail(Fault::checked, Place{}, "a check found something");
}

SILO_THREADS_PLAIN inline void step(Check *check) {
    if (--left == 0) {
        left = ~0ull;
        Found *found = claim(check, Kind::endless);
        found->site = site_of(check, reinterpret_cast<u64>(__builtin_return_address(0)),
                              __builtin_frame_address(0));
        stop();
    }
}

} // namespace silo_threads::checked
