// The hooks of code that checks itself, and what clang's instrumentation calls before each access.
//
// Compiled with -fsanitize=kernel-address, whose calls stand before every load and store and at the
// start and end of every variable's life. Accesses are looked up in the areas that a launch may
// reach: its arrays, its scalars, the threadgroup arrays, variables on a thread's stack. For arrays
// and threadgroup memory a cell for each four bytes keeps who wrote and read there last, so that a
// race shows in any schedule. The first thing that is wrong ends the launch.
#pragma once

#include "check_state.h"

#define SILO_METAL_PLAIN __attribute__((no_sanitize("address", "coverage", "array-bounds")))
#define SILO_METAL_CALLBACK extern "C" SILO_METAL_PLAIN __attribute__((noinline, used))

extern "C" __attribute__((visibility("hidden"))) char __ehdr_start[];
extern "C" __attribute__((visibility("hidden"))) char _end[];

namespace silo_metal::checked {

constexpr unsigned mem_device = 1, mem_threadgroup = 2; // of mem_flags
constexpr unsigned no_memory_order = ~0u;               // of an operation between lanes
constexpr u64 page_bytes = 4096;
constexpr u64 near_stack = 1 << 16; // bytes from the stack pointer that count as the stack
constexpr unsigned most_pages = 1 << 16, most_group_areas = 64;

// ---- memory that lives as long as the object; one launch is checked at a time

inline Cell group_cells[most_group_bytes / 4 * 2];
inline Area group_areas[most_group_areas];
inline unsigned group_area_count, group_granules;
inline unsigned running;                 // the thread that runs
inline bool inside;                      // a thread of a group runs
inline unsigned group_number;            // from 1, over all runs
inline unsigned phase[2];                // barriers passed: of device memory, of threadgroup memory
inline unsigned simd_phase[2][32];       // by simdgroup
inline unsigned joined[2][most_threads]; // by thread: its simdgroup's phase when it last took part
inline u64 left;                         // steps
inline u64 dice;
inline u64 host_stack;        // an address on it, deeper than what the entry holds
inline const Global *globals; // constants of the program
inline u64 global_count;
inline u64 covered_low, covered_high; // what the runtime told itself that it accesses
inline unsigned last_area;

// The stack, by page: for each eight bytes what clang says of them, and which of them were written.
struct Page {
    u64 number;
    u64 run;
    unsigned char state[page_bytes / 8];
    unsigned char fresh[page_bytes / 8];
};
inline Page *pages[most_pages];
inline u64 run_number;

// States of eight bytes beyond clang's own (0: all of them, 1 to 7: the first ones).
constexpr unsigned char unknown = 0xAA;

SILO_METAL_PLAIN inline Check *state() {
    return group ? static_cast<Check *>(static_cast<void *>(group->context)) : nullptr;
}

SILO_METAL_PLAIN inline void fill_bytes(void *memory, unsigned char value, u64 count) {
    volatile unsigned char *at = static_cast<unsigned char *>(memory);
    for (u64 i = 0; i < count; i++) {
        at[i] = value;
    }
}

SILO_METAL_PLAIN inline Page *page_of(u64 address, bool make) {
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

// ---- places in the code

SILO_METAL_PLAIN inline PcClass class_of(const Check *check, u64 pc) {
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

// The place in a function that the user wrote: here, or in a caller of Metal's library.
SILO_METAL_PLAIN inline unsigned site_of(const Check *check, u64 pc, const void *frame) {
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

// ---- findings

SILO_METAL_PLAIN inline unsigned group_index() {
    const Group &g = *group;
    return g.position[0] + g.grid[0] * (g.position[1] + g.grid[1] * g.position[2]);
}

SILO_METAL_PLAIN inline Found *claim(Check *check, Kind kind) {
    Found *found = &check->found;
    fill_bytes(found, 0, sizeof *found);
    found->kind = static_cast<int>(kind);
    found->thread = static_cast<int>(running);
    found->group = group_index();
    found->other_thread = -1;
    found->area = -1;
    return found;
}

[[noreturn]] SILO_METAL_PLAIN inline void stop() {
    fail(Fault::checked, Place{}, "a check found something");
}

SILO_METAL_PLAIN inline void step(Check *check) {
    if (--left == 0) {
        left = ~0ull;
        Found *found = claim(check, Kind::endless);
        found->site = site_of(check, reinterpret_cast<u64>(__builtin_return_address(0)),
                              __builtin_frame_address(0));
        stop();
    }
}

// ---- races

SILO_METAL_PLAIN inline bool ordered(const Mark &mark, unsigned kind, unsigned thread) {
    if (mark.thread == thread || mark.phase != phase[kind]) {
        return true;
    }
    return mark.thread / simd_width == thread / simd_width && joined[kind][thread] > mark.simd &&
           joined[kind][mark.thread] > mark.simd;
}

// Whether what `mark` did and what `thread` does now may happen in either order, and that matters.
SILO_METAL_PLAIN inline bool conflicts(Check *check, const Mark &mark, unsigned kind,
                                       unsigned thread, unsigned char mask, bool atomic,
                                       bool both_write) {
    if (!mark.group || !(mark.mask & mask) || (mark.atomic && atomic)) {
        return false;
    }
    if (mark.group == group_number) {
        return !ordered(mark, kind, thread);
    }
    if (kind == 1 || mark.group < check->first_group) {
        return false; // threadgroup memory of another group, or an earlier run's
    }
    // Atomics may order groups (a counter whose last one reads what others wrote): not told here.
    if (!both_write && check->atomics && check->atomics[mark.group - check->first_group] &&
        check->atomics[group_number - check->first_group]) {
        check->unordered_groups++;
        return false;
    }
    return true;
}

[[noreturn]] SILO_METAL_PLAIN inline void race(Check *check, const Mark &mark, u64 address,
                                               u64 size, bool write, bool other_write, int area,
                                               unsigned site) {
    Found *found = claim(check, Kind::race);
    found->site = site;
    found->address = address;
    found->size = size;
    found->write = write;
    found->area = area;
    found->other_thread = mark.thread;
    found->other_site = mark.site;
    found->other_write = other_write;
    found->other_group =
        mark.group == group_number ? found->group : mark.group - check->first_group;
    stop();
}

SILO_METAL_PLAIN inline void mark_cells(Check *check, const Area &area, int index, u64 address,
                                        u64 size, bool write, bool atomic, unsigned site) {
    unsigned kind = area.kind == AreaKind::group ? 1 : 0;
    unsigned thread = running;
    Mark now = {};
    now.group = group_number;
    now.phase = phase[kind];
    now.simd = simd_phase[kind][thread / simd_width];
    now.site = site;
    now.thread = static_cast<unsigned short>(thread);
    now.atomic = atomic;
    u64 last = address + size - 1;
    for (u64 granule = address / 4; granule <= last / 4; granule++) {
        u64 low = granule * 4 < address ? address : granule * 4;
        u64 high = granule * 4 + 3 < last ? granule * 4 + 3 : last;
        unsigned char mask = 0;
        for (u64 i = low; i <= high; i++) {
            mask = static_cast<unsigned char>(mask | 1u << (i & 3));
        }
        now.mask = mask;
        Cell &cell = area.cells[granule - area.origin / 4];
        if (conflicts(check, cell.writer, kind, thread, mask, atomic, write)) {
            race(check, cell.writer, address, size, write, true, index, site);
        }
        if (write) {
            if (conflicts(check, cell.reader, kind, thread, mask, atomic, false)) {
                race(check, cell.reader, address, size, write, false, index, site);
            }
            if (conflicts(check, cell.other, kind, thread, mask, atomic, false)) {
                race(check, cell.other, address, size, write, false, index, site);
            }
            cell.writer = now;
            if (cell.written_by != group_number) {
                cell.written_by = group_number;
                cell.written = 0;
            }
            cell.written |= mask;
            continue;
        }
        if (kind == 1 && (cell.written_by != group_number || (cell.written & mask) != mask) &&
            check->suspects++ == 0) {
            check->suspect = {site,    thread, group_index(), static_cast<unsigned>(index),
                              address, size};
        }
        // Two readers that differ are enough: of any later writer, one of them is another.
        if (cell.reader.group == now.group && cell.reader.phase == now.phase &&
            cell.reader.thread != now.thread && (cell.reader.mask & mask) == mask) {
            cell.other = now;
        } else {
            cell.reader = now;
        }
    }
}

// ---- accesses

SILO_METAL_PLAIN inline void bounds(Check *check, u64 address, u64 size, bool write, int area,
                                    unsigned site) {
    Found *found = claim(check, Kind::bounds);
    found->site = site;
    found->address = address;
    found->size = size;
    found->write = write;
    found->area = area;
    stop();
}

// True where the bytes are, or may be, a variable's.
SILO_METAL_PLAIN inline bool on_stack(Check *check, u64 address, u64 size, bool write, u64 pc,
                                      const void *frame) {
    Page *page = page_of(address, false);
    if (address > host_stack && address - host_stack < near_stack) {
        return true; // what the entry holds: scalars
    }
    u64 distance = address > reinterpret_cast<u64>(frame) ? address - reinterpret_cast<u64>(frame)
                                                          : reinterpret_cast<u64>(frame) - address;
    if (!page) {
        return distance < near_stack;
    }
    bool known = false, unset = true;
    for (u64 at = address; at < address + size; at++) {
        if (at / page_bytes != page->number && !(page = page_of(at, false))) {
            return true;
        }
        u64 index = at % page_bytes / 8;
        unsigned char held = page->state[index];
        if (held == unknown) {
            unset = false;
            continue;
        }
        known = true;
        if (held >= 0x80 || (held && at % 8 >= held)) {
            if (class_of(check, pc) == PcClass::library) {
                return true;
            }
            Found *found = claim(check, held == 0xF8 ? Kind::scope : Kind::stack_bounds);
            found->site = site_of(check, pc, frame);
            found->address = address;
            found->size = size;
            found->write = write;
            stop();
        }
        unsigned char bit = static_cast<unsigned char>(1u << (at % 8));
        if (write) {
            page->fresh[index] = static_cast<unsigned char>(page->fresh[index] & ~bit);
        } else if (!(page->fresh[index] & bit)) {
            unset = false;
        }
    }
    // Of a value that is unset in part only, what is read may be the part that is not.
    if (!write && known && unset && check->suspects++ == 0) {
        check->suspect = {site_of(check, pc, frame), running, group_index(), ~0u, address, size};
    }
    return known || distance < near_stack;
}

// A constant of the program, or the runtime's own.
SILO_METAL_PLAIN inline void in_object(Check *check, u64 address, u64 size, bool write, u64 pc,
                                       const void *frame) {
    for (u64 i = 0; i < global_count; i++) {
        const Global &one = globals[i];
        if (address < one.low || address >= one.low + one.bytes_with_gap) {
            continue;
        }
        if (address + size > one.low + one.bytes && class_of(check, pc) == PcClass::user) {
            Found *found = claim(check, Kind::global_bounds);
            found->site = site_of(check, pc, frame);
            found->address = address;
            found->size = size;
            found->write = write;
            stop();
        }
        return;
    }
}

SILO_METAL_PLAIN inline const Area *area_of(Check *check, u64 address, int *index) {
    unsigned count = check->area_count, total = count + group_area_count;
    for (unsigned i = 0; i < total; i++) {
        unsigned at =
            i == 0 && last_area < total ? last_area : i - (i <= last_area && last_area < total);
        const Area &area = at < count ? check->areas[at] : group_areas[at - count];
        if (address >= area.low && address < area.high) {
            last_area = at;
            *index = static_cast<int>(at);
            return &area;
        }
    }
    return nullptr;
}

SILO_METAL_PLAIN inline void access(u64 address, u64 size, bool write, bool atomic, u64 pc,
                                    const void *frame) {
    Check *check = state();
    if (!check || !inside || size == 0) {
        return;
    }
    step(check);
    int index = -1;
    const Area *area = area_of(check, address, &index);
    if (!area) {
        if (address >= reinterpret_cast<u64>(__ehdr_start) &&
            address < reinterpret_cast<u64>(_end)) {
            in_object(check, address, size, write, pc, frame);
            return;
        }
        bool arena = address >= check->arena_low && address < check->arena_high;
        if (!arena && (on_stack(check, address, size, write, pc, frame) ||
                       class_of(check, pc) != PcClass::user)) {
            return;
        }
        bounds(check, address, size, write, -1, site_of(check, pc, frame));
        return;
    }
    if (!atomic && address >= covered_low && address < covered_high &&
        class_of(check, pc) != PcClass::user) {
        return; // the runtime does what it told
    }
    unsigned site = site_of(check, pc, frame);
    if (address + size > area->high) {
        bounds(check, address, size, write, index, site);
    }
    if (write && !area->writable) {
        Found *found = claim(check, Kind::readonly);
        found->site = site;
        found->address = address;
        found->size = size;
        found->area = index;
        stop();
    }
    if (area->fresh) {
        for (u64 at = address; at < address + size; at++) {
            unsigned char &fresh = area->fresh[at - area->low];
            if (write) {
                fresh = 0;
            } else if (fresh) {
                Found *found = claim(check, Kind::uninitialized);
                found->site = site;
                found->address = address;
                found->size = size;
                found->area = index;
                stop();
            }
        }
    }
    if (area->cells) {
        if (atomic && area->kind == AreaKind::array && check->atomics) {
            check->atomics[group_number - check->first_group] = 1;
        }
        check->any_atomic |= atomic;
        mark_cells(check, *area, index, address, size, write, atomic, site);
    }
}

// ---- the life of variables

SILO_METAL_PLAIN inline void set_shadow(u64 shadow, u64 count, unsigned char value) {
    Check *check = state();
    if (!check || !inside) {
        return;
    }
    u64 address = shadow << 3;
    Page *page = page_of(address, true);
    if (!page) {
        return;
    }
    unsigned char first = page->state[address % page_bytes / 8];
    bool ends = value == 0 && first == 0xF1; // a whole frame goes
    bool begins = value < 8 && !ends;        // a variable begins to live
    for (u64 i = 0; i < count; i++, address += 8) {
        if (address / page_bytes != page->number && !(page = page_of(address, true))) {
            return;
        }
        u64 index = address % page_bytes / 8;
        page->state[index] = ends ? unknown : value;
        page->fresh[index] = begins ? 0xFF : 0;
        if (begins) {
            fill_bytes(reinterpret_cast<void *>(address), static_cast<unsigned char>(check->fill),
                       8);
        }
    }
}

} // namespace silo_metal::checked

// ---- what the runtime tells

namespace silo_metal::hook {

using namespace silo_metal::checked;

SILO_METAL_PLAIN inline void begin_group(Group &g) {
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
    last_area = 0;
    covered_low = covered_high = 0;
    left = check->steps;
    dice = check->seed * 0x9E3779B97F4A7C15ull + group_index() * 0xD1B54A32D192ED03ull + 1;
    running = 0;
    check->group = group_index();
    check->group_threads = g.size;
    for (unsigned i = 0; i < 3; i++) {
        check->shape[i] = g.shape[i];
    }
}

SILO_METAL_PLAIN inline void end_group(Group &) {
    inside = false;
}

SILO_METAL_PLAIN inline void enter(Group &, unsigned thread) {
    running = thread;
    inside = true;
    covered_low = covered_high = 0;
    if (Check *check = state()) {
        check->thread = thread;
    }
}

SILO_METAL_PLAIN inline unsigned next(Group &g, const unsigned *ready, unsigned after) {
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
    if (check->seed == 0) { // in order
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

SILO_METAL_PLAIN inline void arrive(Group &, unsigned thread, Place place, unsigned) {
    if (Check *check = state()) {
        check->threads[thread] = {place.file, place.line, 1};
    }
}

SILO_METAL_PLAIN inline void pass_barrier(Group &g, Place, unsigned flags) {
    phase[0] += flags & mem_device ? 1 : 0;
    phase[1] += flags & mem_threadgroup ? 1 : 0;
    if (Check *check = state()) {
        for (unsigned i = 0; i < g.size; i++) {
            check->threads[i].line = 0;
        }
    }
}

SILO_METAL_PLAIN inline void pass_simd(Group &, unsigned simdgroup, unsigned mask, unsigned live,
                                       Place place, unsigned flags) {
    Check *check = state();
    if (check && live & ~mask) {
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
        if (flags & (kind ? mem_threadgroup : mem_device)) {
            unsigned now = ++simd_phase[kind][simdgroup];
            for (unsigned lane = 0; lane < simd_width; lane++) {
                if (mask >> lane & 1) {
                    joined[kind][simdgroup * simd_width + lane] = now;
                }
            }
        }
    }
}

SILO_METAL_PLAIN inline void threadgroup_array(Group &, const char *name, void *memory,
                                               unsigned long bytes, unsigned long, Place place) {
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
    check->group_arrays[number] = {name, place.file, low, bytes, place.line, 0};
    check->group_array_count = group_area_count;
    fill_bytes(memory, static_cast<unsigned char>(check->fill), bytes);
}

SILO_METAL_PLAIN inline bool access(const volatile void *memory, unsigned long bytes, bool write,
                                    bool atomic, Place) {
    u64 address = reinterpret_cast<u64>(memory);
    covered_low = covered_high = 0;
    checked::access(address, bytes, write, atomic,
                    reinterpret_cast<u64>(__builtin_return_address(0)), __builtin_frame_address(0));
    covered_low = address;
    covered_high = address + bytes;
    return true;
}

} // namespace silo_metal::hook

// ---- what clang's instrumentation calls

#define SILO_METAL_ACCESS(NAME, SIZE, WRITE)                                                       \
    SILO_METAL_CALLBACK void __asan_##NAME##_noabort(unsigned long address) {                      \
        silo_metal::checked::access(address, SIZE, WRITE, false,                                   \
                                    reinterpret_cast<unsigned long>(__builtin_return_address(0)),  \
                                    __builtin_frame_address(0));                                   \
    }
SILO_METAL_ACCESS(load1, 1, false)
SILO_METAL_ACCESS(load2, 2, false)
SILO_METAL_ACCESS(load4, 4, false)
SILO_METAL_ACCESS(load8, 8, false)
SILO_METAL_ACCESS(load16, 16, false)
SILO_METAL_ACCESS(store1, 1, true)
SILO_METAL_ACCESS(store2, 2, true)
SILO_METAL_ACCESS(store4, 4, true)
SILO_METAL_ACCESS(store8, 8, true)
SILO_METAL_ACCESS(store16, 16, true)

SILO_METAL_CALLBACK void __asan_loadN_noabort(unsigned long address, unsigned long size) {
    silo_metal::checked::access(address, size, false, false,
                                reinterpret_cast<unsigned long>(__builtin_return_address(0)),
                                __builtin_frame_address(0));
}
SILO_METAL_CALLBACK void __asan_storeN_noabort(unsigned long address, unsigned long size) {
    silo_metal::checked::access(address, size, true, false,
                                reinterpret_cast<unsigned long>(__builtin_return_address(0)),
                                __builtin_frame_address(0));
}
// Copies of whole values. The element copied may be unset, so nothing is said of that.
SILO_METAL_CALLBACK void *__asan_memcpy(void *to, const void *from, unsigned long size) {
    unsigned long pc = reinterpret_cast<unsigned long>(__builtin_return_address(0));
    silo_metal::checked::access(reinterpret_cast<unsigned long>(from), size, false, false, pc,
                                __builtin_frame_address(0));
    silo_metal::checked::access(reinterpret_cast<unsigned long>(to), size, true, false, pc,
                                __builtin_frame_address(0));
    return __builtin_memcpy(to, from, size);
}
SILO_METAL_CALLBACK void *__asan_memmove(void *to, const void *from, unsigned long size) {
    unsigned long pc = reinterpret_cast<unsigned long>(__builtin_return_address(0));
    silo_metal::checked::access(reinterpret_cast<unsigned long>(from), size, false, false, pc,
                                __builtin_frame_address(0));
    silo_metal::checked::access(reinterpret_cast<unsigned long>(to), size, true, false, pc,
                                __builtin_frame_address(0));
    return __builtin_memmove(to, from, size);
}
SILO_METAL_CALLBACK void *__asan_memset(void *to, int value, unsigned long size) {
    silo_metal::checked::access(reinterpret_cast<unsigned long>(to), size, true, false,
                                reinterpret_cast<unsigned long>(__builtin_return_address(0)),
                                __builtin_frame_address(0));
    return __builtin_memset(to, value, size);
}

#define SILO_METAL_SHADOW(NAME, VALUE)                                                             \
    SILO_METAL_CALLBACK void __asan_set_shadow_##NAME(unsigned long shadow, unsigned long count) { \
        silo_metal::checked::set_shadow(shadow, count, VALUE);                                     \
    }
SILO_METAL_SHADOW(00, 0x00)
SILO_METAL_SHADOW(01, 0x01)
SILO_METAL_SHADOW(02, 0x02)
SILO_METAL_SHADOW(03, 0x03)
SILO_METAL_SHADOW(04, 0x04)
SILO_METAL_SHADOW(05, 0x05)
SILO_METAL_SHADOW(06, 0x06)
SILO_METAL_SHADOW(07, 0x07)
SILO_METAL_SHADOW(f1, 0xF1)
SILO_METAL_SHADOW(f2, 0xF2)
SILO_METAL_SHADOW(f3, 0xF3)
SILO_METAL_SHADOW(f5, 0xF5)
SILO_METAL_SHADOW(f8, 0xF8)

SILO_METAL_CALLBACK void __asan_register_globals(const silo_metal::Global *all,
                                                 unsigned long count) {
    silo_metal::checked::globals = all;
    silo_metal::checked::global_count = count;
}
SILO_METAL_CALLBACK void __asan_unregister_globals(const silo_metal::Global *, unsigned long) {}
SILO_METAL_CALLBACK void __asan_handle_no_return() {}
SILO_METAL_CALLBACK void __asan_poison_stack_memory(unsigned long, unsigned long) {}
SILO_METAL_CALLBACK void __asan_unpoison_stack_memory(unsigned long, unsigned long) {}
SILO_METAL_CALLBACK void __asan_alloca_poison(unsigned long, unsigned long) {}
SILO_METAL_CALLBACK void __asan_allocas_unpoison(unsigned long, unsigned long) {}

SILO_METAL_CALLBACK void __sanitizer_cov_trace_pc() {
    silo_metal::Check *check = silo_metal::checked::state();
    if (check && silo_metal::checked::inside) {
        silo_metal::checked::step(check);
    }
}

// An index beyond what an array's type says. The layout is clang's.
struct SiloMetalArrayType {
    unsigned short kind, info;
    char name[1];
};
struct SiloMetalOutOfBounds {
    const char *file;
    unsigned line, column;
    const SiloMetalArrayType *array, *index;
};
SILO_METAL_CALLBACK void __ubsan_handle_out_of_bounds(SiloMetalOutOfBounds *what,
                                                      unsigned long index) {
    using namespace silo_metal;
    Check *check = checked::state();
    if (!check || !checked::inside) {
        return;
    }
    Found *found = checked::claim(check, Kind::index);
    found->file = what->file;
    found->line = what->line;
    // Bit 0 says signed, the others the logarithm of the width.
    unsigned width = 1u << (what->index->info >> 1);
    bool is_signed = what->index->info & 1;
    found->index = is_signed && width < 64
                       ? static_cast<long>(index << (64 - width)) >> (64 - width)
                       : static_cast<long>(index);
    found->array_type = what->array->name;
    checked::stop();
}
