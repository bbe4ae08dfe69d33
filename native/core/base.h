/* What every file of native/ may rely on: the machine, and words for the compiler. */
#ifndef SILO_BASE_H
#define SILO_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* An argument slot holds a value in its low bytes whatever its width. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "Silo runs on little-endian machines");
_Static_assert(sizeof(void *) == 8, "Silo runs on 64-bit machines");

#define SILO_LIKELY(x) __builtin_expect(!!(x), 1)
#define SILO_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SILO_INLINE static inline __attribute__((always_inline))
#define SILO_NOINLINE __attribute__((noinline))
/* Functions that every launch runs; the linker places them beside each other. */
#define SILO_HOT __attribute__((hot))

/* Parameters a kernel may have; the state of a call for that many parameters is on the stack. */
#define SILO_MAX_PARAMETERS 256
#define SILO_MAX_OPTIONS 32

#endif
