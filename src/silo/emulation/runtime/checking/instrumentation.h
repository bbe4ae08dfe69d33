// The functions that clang's instrumentation calls.
#pragma once

#include "check_accesses.h"

#define SILO_THREADS_ACCESS(NAME, SIZE, WRITE)                                                     \
    SILO_THREADS_CALLBACK void __asan_##NAME##_noabort(unsigned long address) {                    \
        silo_threads::checked::access(                                                             \
            address, SIZE, WRITE, false,                                                           \
            reinterpret_cast<unsigned long>(__builtin_return_address(0)),                          \
            __builtin_frame_address(0));                                                           \
    }
SILO_THREADS_ACCESS(load1, 1, false)
SILO_THREADS_ACCESS(load2, 2, false)
SILO_THREADS_ACCESS(load4, 4, false)
SILO_THREADS_ACCESS(load8, 8, false)
SILO_THREADS_ACCESS(load16, 16, false)
SILO_THREADS_ACCESS(store1, 1, true)
SILO_THREADS_ACCESS(store2, 2, true)
SILO_THREADS_ACCESS(store4, 4, true)
SILO_THREADS_ACCESS(store8, 8, true)
SILO_THREADS_ACCESS(store16, 16, true)

SILO_THREADS_CALLBACK void __asan_loadN_noabort(unsigned long address, unsigned long size) {
    silo_threads::checked::access(address, size, false, false,
                                  reinterpret_cast<unsigned long>(__builtin_return_address(0)),
                                  __builtin_frame_address(0));
}
SILO_THREADS_CALLBACK void __asan_storeN_noabort(unsigned long address, unsigned long size) {
    silo_threads::checked::access(address, size, true, false,
                                  reinterpret_cast<unsigned long>(__builtin_return_address(0)),
                                  __builtin_frame_address(0));
}
// Clang calls these functions in place of memcpy, memmove and memset.
SILO_THREADS_CALLBACK void *__asan_memcpy(void *to, const void *from, unsigned long size) {
    unsigned long pc = reinterpret_cast<unsigned long>(__builtin_return_address(0));
    silo_threads::checked::access(reinterpret_cast<unsigned long>(from), size, false, false, pc,
                                  __builtin_frame_address(0));
    silo_threads::checked::access(reinterpret_cast<unsigned long>(to), size, true, false, pc,
                                  __builtin_frame_address(0));
    return __builtin_memcpy(to, from, size);
}
SILO_THREADS_CALLBACK void *__asan_memmove(void *to, const void *from, unsigned long size) {
    unsigned long pc = reinterpret_cast<unsigned long>(__builtin_return_address(0));
    silo_threads::checked::access(reinterpret_cast<unsigned long>(from), size, false, false, pc,
                                  __builtin_frame_address(0));
    silo_threads::checked::access(reinterpret_cast<unsigned long>(to), size, true, false, pc,
                                  __builtin_frame_address(0));
    return __builtin_memmove(to, from, size);
}
SILO_THREADS_CALLBACK void *__asan_memset(void *to, int value, unsigned long size) {
    silo_threads::checked::access(reinterpret_cast<unsigned long>(to), size, true, false,
                                  reinterpret_cast<unsigned long>(__builtin_return_address(0)),
                                  __builtin_frame_address(0));
    return __builtin_memset(to, value, size);
}

#define SILO_THREADS_SHADOW(NAME, VALUE)                                                           \
    SILO_THREADS_CALLBACK void __asan_set_shadow_##NAME(unsigned long shadow,                      \
                                                        unsigned long count) {                     \
        silo_threads::checked::set_shadow(shadow, count, VALUE);                                   \
    }
SILO_THREADS_SHADOW(00, 0x00)
SILO_THREADS_SHADOW(01, 0x01)
SILO_THREADS_SHADOW(02, 0x02)
SILO_THREADS_SHADOW(03, 0x03)
SILO_THREADS_SHADOW(04, 0x04)
SILO_THREADS_SHADOW(05, 0x05)
SILO_THREADS_SHADOW(06, 0x06)
SILO_THREADS_SHADOW(07, 0x07)
SILO_THREADS_SHADOW(f1, 0xF1)
SILO_THREADS_SHADOW(f2, 0xF2)
SILO_THREADS_SHADOW(f3, 0xF3)
SILO_THREADS_SHADOW(f5, 0xF5)
SILO_THREADS_SHADOW(f8, 0xF8)

SILO_THREADS_CALLBACK void __asan_register_globals(const silo_threads::Global *all,
                                                   unsigned long count) {
    silo_threads::checked::globals = all;
    silo_threads::checked::global_count = count;
}
SILO_THREADS_CALLBACK void __asan_unregister_globals(const silo_threads::Global *, unsigned long) {}
SILO_THREADS_CALLBACK void __asan_handle_no_return() {}
SILO_THREADS_CALLBACK void __asan_poison_stack_memory(unsigned long, unsigned long) {}
SILO_THREADS_CALLBACK void __asan_unpoison_stack_memory(unsigned long, unsigned long) {}
SILO_THREADS_CALLBACK void __asan_alloca_poison(unsigned long, unsigned long) {}
SILO_THREADS_CALLBACK void __asan_allocas_unpoison(unsigned long, unsigned long) {}

SILO_THREADS_CALLBACK void __sanitizer_cov_trace_pc() {
    silo_threads::Check *check = silo_threads::checked::state();
    if (check && silo_threads::checked::inside) {
        silo_threads::checked::step(check);
    }
}

// Called for an index beyond the bounds of an array's type; the structs have clang's layout.
struct SiloThreadsArrayType {
    unsigned short kind, info;
    char name[1];
};
struct SiloThreadsOutOfBounds {
    const char *file;
    unsigned line, column;
    const SiloThreadsArrayType *array, *index;
};
SILO_THREADS_CALLBACK void __ubsan_handle_out_of_bounds(SiloThreadsOutOfBounds *what,
                                                        unsigned long index) {
    using namespace silo_threads;
    Check *check = checked::state();
    if (!check || !checked::inside) {
        return;
    }
    Found *found = checked::claim(check, Kind::index);
    found->file = what->file;
    found->line = what->line;
    // Bit 0 is set for a signed type; the other bits hold log2 of the width.
    unsigned width = 1u << (what->index->info >> 1);
    bool is_signed = what->index->info & 1;
    found->index = is_signed && width < 64
                       ? static_cast<long>(index << (64 - width)) >> (64 - width)
                       : static_cast<long>(index);
    found->array_type = what->array->name;
    checked::stop();
}
