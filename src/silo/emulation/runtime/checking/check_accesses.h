// Checks each access: the memory must exist, it must have been written, and no access of another
// thread may race with it. Also records the lifetimes of variables.
#pragma once

#include "check_races.h"

namespace silo_threads::checked {

SILO_THREADS_PLAIN inline void bounds(Check *check, u64 address, u64 size, bool write, int area,
                                      unsigned site) {
    Found *found = claim(check, Kind::bounds);
    found->site = site;
    found->address = address;
    found->size = size;
    found->write = write;
    found->area = area;
    stop();
}

// Returns true if the accessed bytes are, or may be, part of a variable on a stack.
SILO_THREADS_PLAIN inline bool on_stack(Check *check, u64 address, u64 size, bool write, u64 pc,
                                        const void *frame) {
    Page *page = page_of(address, false);
    if (address > host_stack && address - host_stack < near_stack) {
        return true; // on the host's stack: a variable of the entry function
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
    // Report a read only if no byte of the value was ever written: of a partly written value, the
    // kernel may use only the written part.
    if (!write && known && unset && check->suspects++ == 0) {
        check->suspect = {site_of(check, pc, frame), running, group_index(), ~0u, address, size};
    }
    return known || distance < near_stack;
}

// Checks an access to static data of the shared object: it must stay within the bounds of a
// constant. Other static data is not checked.
SILO_THREADS_PLAIN inline void in_object(Check *check, u64 address, u64 size, bool write, u64 pc,
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

SILO_THREADS_PLAIN inline const Area *area_of(Check *check, u64 address, int *index) {
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

// Returns true if an address outside all arrays is in shared memory. Shared memory may lie next to
// a stack, so the distance from the stack pointer does not show which of the two the address is in.
SILO_THREADS_PLAIN inline bool beside_group_arrays(u64 address) {
    return group_area_count < most_group_areas && address >= group_memory &&
           address < group_memory + group_memory_bytes;
}

// Ends the launch if an atomic operation whose result depends on the old value (a sum) finds shared
// memory that was never written: the result is meaningless, even if a later store replaces it.
SILO_THREADS_PLAIN inline void needs_value(u64 address, u64 size, u64 pc, const void *frame) {
    Check *check = state();
    int index = -1;
    const Area *area = check && inside ? area_of(check, address, &index) : nullptr;
    if (!area || area->kind != AreaKind::group || !area->cells || address + size > area->high) {
        return;
    }
    for (u64 at = address; at < address + size; at++) {
        const Cell &cell = area->cells[at / 4 - area->origin / 4];
        if (cell.written_by == group_number && cell.written >> (at & 3) & 1) {
            continue;
        }
        Found *found = claim(check, Kind::uninitialized);
        found->site = site_of(check, pc, frame);
        found->address = address;
        found->size = size;
        found->area = index;
        stop();
    }
}

SILO_THREADS_PLAIN inline void access(u64 address, u64 size, bool write, bool atomic, u64 pc,
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
            // An atomic operation may order groups, on static data as well as on an array.
            if (atomic && check->atomics) {
                check->atomics[group_number - check->first_group] = 1;
                check->any_atomic = 1;
            }
            return;
        }
        bool arrays = (address >= check->arena_low && address < check->arena_high) ||
                      beside_group_arrays(address);
        if (!arrays && !atomic &&
            (on_stack(check, address, size, write, pc, frame) ||
             class_of(check, pc) != PcClass::user)) {
            return;
        }
        bounds(check, address, size, write, -1, site_of(check, pc, frame));
        return;
    }
    if (!atomic && address >= covered_low && address < covered_high &&
        class_of(check, pc) != PcClass::user) {
        return; // a load or store inside an atomic operation, which was checked as a whole
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

// ---- The lifetimes of variables

SILO_THREADS_PLAIN inline void set_shadow(u64 shadow, u64 count, unsigned char value) {
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
    bool ends = value == 0 && first == 0xF1; // the lifetime of a whole frame ends
    bool begins = value < 8 && !ends;        // the lifetime of a variable begins
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

} // namespace silo_threads::checked
