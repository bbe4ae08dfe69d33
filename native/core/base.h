/* Compile-time checks of the machine (little-endian, 64-bit) and names for compiler attributes.
 * Every file of native/ includes them. */
#ifndef SILO_BASE_H
#define SILO_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* An argument of any width is stored in the low bytes of a 64-bit slot. Only on a little-endian
 * machine a pointer to the slot is also a pointer to the argument. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "Silo runs on little-endian machines");
_Static_assert(sizeof(void *) == 8, "Silo runs on 64-bit machines");

#define SILO_LIKELY(x) __builtin_expect(!!(x), 1)
#define SILO_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SILO_INLINE static inline __attribute__((always_inline))
#define SILO_NOINLINE __attribute__((noinline))
/* Marks functions that every launch runs; the linker places them together. */
#define SILO_HOT __attribute__((hot))

/* The most parameters and options of a kernel. A call reserves stack memory for this many
 * parameters. */
#define SILO_MAX_PARAMETERS 256
#define SILO_MAX_OPTIONS 32

#endif
