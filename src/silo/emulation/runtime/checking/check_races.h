// Finds races, which are unordered accesses of two threads, from the last accesses to each four
// bytes.
#pragma once

#include "check_memory.h"

namespace silo_threads::checked {

SILO_THREADS_PLAIN inline bool ordered(const Mark &mark, unsigned kind, unsigned thread) {
    if (mark.thread == thread || mark.phase != phase[kind]) {
        return true;
    }
    return mark.thread / simd_width == thread / simd_width && joined[kind][thread] > mark.simd &&
           joined[kind][mark.thread] > mark.simd;
}

// Returns true if the access `mark` and the present access of `thread` may happen in either order,
// with different results.
SILO_THREADS_PLAIN inline bool conflicts(Check *check, const Mark &mark, unsigned kind,
                                         unsigned thread, unsigned char mask, bool atomic,
                                         bool both_write) {
    if (!mark.group || !(mark.mask & mask) || (mark.atomic && atomic)) {
        return false;
    }
    if (mark.group == group_number) {
        return !ordered(mark, kind, thread);
    }
    if (kind == 1 || mark.group < check->first_group) {
        return false; // shared memory of another group, or an access of an earlier run
    }
    // Atomic operations may order groups (the last group to increment a counter reads the others'
    // results). Such an order is not tracked here, so the pair is counted and not reported.
    if (!both_write && check->atomics && check->atomics[mark.group - check->first_group] &&
        check->atomics[group_number - check->first_group]) {
        check->unordered_groups++;
        return false;
    }
    return true;
}

SILO_THREADS_PLAIN inline void note_race(Check *check, const Mark &mark, u64 address, u64 size,
                                         bool write, bool other_write, int area, unsigned site) {
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
}

[[noreturn]] SILO_THREADS_PLAIN inline void race(Check *check, const Mark &mark, u64 address,
                                                 u64 size, bool write, bool other_write, int area,
                                                 unsigned site) {
    note_race(check, mark, address, size, write, other_write, area, site);
    stop();
}

// A plain read beside an atomic operation of another thread is not a race if the reading thread's
// next atomic operation is on the same memory: a compare-and-swap loop begins with a plain read,
// and the swap fails if the value read is out of date.
SILO_THREADS_PLAIN inline bool await_swap(Check *check, const Mark &mark, u64 address, u64 size,
                                          int area, unsigned site) {
    if (!mark.atomic || size > 8) {
        return false;
    }
    Pending &own = pending[running];
    if (!own.address) {
        note_race(check, mark, address, size, false, true, area, site);
        own.found = check->found;
        check->found.kind = static_cast<int>(Kind::nothing);
        own.address = address;
    }
    return true;
}

// A plain read of `thread` may wait for the atomic operation that makes it harmless (await_swap).
// Called at the last point at which that operation could have happened. If it did not happen, makes
// the read the launch's finding and returns true.
SILO_THREADS_PLAIN inline bool swap_is_missing(Check *check, unsigned thread) {
    Pending &own = pending[thread];
    if (!own.address) {
        return false;
    }
    check->found = own.found;
    own.address = 0;
    return true;
}

SILO_THREADS_PLAIN inline void mark_cells(Check *check, const Area &area, int index, u64 address,
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
        if (conflicts(check, cell.writer, kind, thread, mask, atomic, write) &&
            (write || !await_swap(check, cell.writer, address, size, index, site))) {
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
        // To find a race with a later write, readers of two different threads are enough: at least
        // one of them is not the thread that writes.
        if (cell.reader.group == now.group && cell.reader.phase == now.phase &&
            cell.reader.thread != now.thread && (cell.reader.mask & mask) == mask) {
            cell.other = now;
        } else {
            cell.reader = now;
        }
    }
}

} // namespace silo_threads::checked
