// The hooks of checked code, and the functions that clang's instrumentation calls.
//
// The code is compiled with -fsanitize=kernel-address, which inserts a call before every load and
// store, and at the start and the end of every variable's lifetime. An access is looked up in the
// memory that a launch may access: its arrays, its scalars, the arrays that threads share, and
// variables on a thread's stack. For arrays and shared memory, a cell for each four bytes holds the
// threads that wrote and read them last, so a race is found in every schedule. The first fault ends
// the launch.
#pragma once

// In Metal `thread` is a macro; here it is an ordinary name.
#pragma push_macro("thread")
#undef thread

#include "check_accesses.h"
#include "instrumentation.h"

namespace silo_threads::hook {

using namespace silo_threads::checked;

SILO_THREADS_PLAIN inline void begin_group(Group &g, const void *memory, unsigned long bytes) {
    Check *check = state();
    if (!check) {
        return;
    }
    run_number = check->run;
    group_number = check->first_group + group_index();
    phase[0] = phase[1] = 0;
    fill_bytes(simd_phase, 0, sizeof simd_phase);
    fill_bytes(joined, 0, sizeof joined);
    for (unsigned i = 0; i < most_threads; i++) {
        check->threads[i].line = 0;
        check->threads[i].file = nullptr;
    }
    host_stack = reinterpret_cast<u64>(__builtin_frame_address(0));
    group_area_count = group_granules = 0;
    group_memory = reinterpret_cast<u64>(memory);
    group_memory_bytes = bytes;
    last_area = 0;
    covered_low = covered_high = 0;
    left = check->steps;
    dice = check->seed * 0x9E3779B97F4A7C15ull + group_index() * 0xD1B54A32D192ED03ull + 1;
    running = 0;
    for (unsigned i = 0; i < most_threads; i++) {
        pending[i].address = 0;
    }
    check->group = group_index();
    check->group_threads = g.size;
    for (unsigned i = 0; i < 3; i++) {
        check->shape[i] = g.shape[i];
    }
}

SILO_THREADS_PLAIN inline void end_group(Group &g) {
    inside = false;
    Check *check = state();
    for (unsigned thread = 0; check && thread < g.size; thread++) {
        if (swap_is_missing(check, thread)) {
            note_fault(g, Fault::checked, Place{}, "a check found something");
            return;
        }
    }
}

SILO_THREADS_PLAIN inline void enter(Group &, unsigned thread) {
    running = thread;
    inside = true;
    covered_low = covered_high = 0;
    if (Check *check = state()) {
        check->thread = thread;
    }
}

SILO_THREADS_PLAIN inline unsigned next(Group &g, const unsigned *ready, unsigned after) {
    inside = false;
    Check *check = state();
    unsigned count = 0, words = (g.size + 31) / 32;
    for (unsigned i = 0; i < words; i++) {
        count += static_cast<unsigned>(__builtin_popcount(ready[i]));
    }
    if (!check || !count) {
        return after;
    }
    unsigned pick = 0;
    if (check->seed == 0) { // seed 0: one thread after another, in the order of their numbers
        for (unsigned i = 1; i <= g.size; i++) {
            unsigned at = (after + i) % g.size;
            if (ready[at / 32] >> at % 32 & 1) {
                return at;
            }
        }
        return after;
    }
    dice = dice * 6364136223846793005ull + 1442695040888963407ull;
    pick = static_cast<unsigned>((dice >> 33) % count);
    for (unsigned i = 0; i < words; i++) {
        unsigned here = static_cast<unsigned>(__builtin_popcount(ready[i]));
        if (pick >= here) {
            pick -= here;
            continue;
        }
        unsigned bits = ready[i];
        for (; pick; pick--) {
            bits &= bits - 1;
        }
        return i * 32 + static_cast<unsigned>(__builtin_ctz(bits));
    }
    return after;
}

SILO_THREADS_PLAIN inline void arrive(Group &, unsigned thread, Place place, unsigned) {
    if (Check *check = state()) {
        if (swap_is_missing(check, thread)) {
            stop();
        }
        check->threads[thread] = {place.file, place.line, 1};
    }
}

SILO_THREADS_PLAIN inline void pass_barrier(Group &g, Place, unsigned flags) {
    phase[0] += flags & mem_device ? 1 : 0;
    phase[1] += flags & mem_group ? 1 : 0;
    if (Check *check = state()) {
        for (unsigned i = 0; i < g.size; i++) {
            check->threads[i].line = 0;
        }
    }
}

SILO_THREADS_PLAIN inline void pass_simd(Group &, unsigned simdgroup, unsigned mask, unsigned live,
                                         Place place, unsigned flags) {
    Check *check = state();
    // Report diverged lanes only at calls in the kernel's own text. Calls in library headers may
    // reduce over the active lanes alone, which is well defined.
    if (check && live & ~mask && __builtin_strcmp(place.file, check->file) == 0) {
        running = simdgroup * simd_width + static_cast<unsigned>(__builtin_ctz(mask));
        Found *found = claim(check, Kind::diverged);
        found->other_thread = static_cast<int>(simdgroup * simd_width +
                                               static_cast<unsigned>(__builtin_ctz(live & ~mask)));
        found->file = place.file;
        found->line = place.line;
        found->index = __builtin_popcount(live & ~mask);
        stop();
    }
    for (unsigned kind = 0; flags != no_memory_order && kind < 2; kind++) {
        if (flags & (kind ? mem_group : mem_device)) {
            unsigned now = ++simd_phase[kind][simdgroup];
            for (unsigned lane = 0; lane < simd_width; lane++) {
                if (mask >> lane & 1) {
                    joined[kind][simdgroup * simd_width + lane] = now;
                }
            }
        }
    }
}

SILO_THREADS_PLAIN inline void group_array(Group &, const char *name, const void *symbol,
                                           void *memory, unsigned long bytes, Place place) {
    Check *check = state();
    if (!check || group_area_count == most_group_areas) {
        return;
    }
    u64 low = reinterpret_cast<u64>(memory);
    unsigned granules = static_cast<unsigned>((low + bytes + 3) / 4 - low / 4);
    if (group_granules + granules > sizeof group_cells / sizeof *group_cells) {
        return;
    }
    Area &area = group_areas[group_area_count++];
    area = {low, low + bytes, low & ~3ull, group_cells + group_granules, nullptr, AreaKind::group,
            1};
    group_granules += granules;
    unsigned number = group_area_count - 1;
    unsigned offset = symbol ? static_cast<unsigned>(reinterpret_cast<u64>(symbol) -
                                                     reinterpret_cast<u64>(__ehdr_start))
                             : 0;
    check->group_arrays[number] = {name, place.file, low, bytes, place.line, offset};
    check->group_array_count = group_area_count;
    fill_bytes(memory, static_cast<unsigned char>(check->fill), bytes);
}

SILO_THREADS_PLAIN inline bool access(const volatile void *memory, unsigned long bytes,
                                      AtomicUse use, Place) {
    u64 address = reinterpret_cast<u64>(memory);
    u64 pc = reinterpret_cast<u64>(__builtin_return_address(0));
    const void *frame = __builtin_frame_address(0);
    covered_low = covered_high = 0;
    if (pending[running].address == address) {
        pending[running].address = 0;
    }
    if (use == AtomicUse::change) {
        needs_value(address, bytes, pc, frame);
    }
    if (use != AtomicUse::store) {
        checked::access(address, bytes, false, true, pc, frame);
    }
    if (use != AtomicUse::load) {
        checked::access(address, bytes, true, true, pc, frame);
    }
    covered_low = address;
    covered_high = address + bytes;
    return true;
}

} // namespace silo_threads::hook

#pragma pop_macro("thread")
