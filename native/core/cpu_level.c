#include "cpu_level.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BIT(number) (UINT32_C(1) << (number))

#if defined(__x86_64__)

#include <cpuid.h>

enum { BASIC_LEAF = 1, EXTENDED_LEAF = 7 };
static const uint32_t AMD_LEAF = 0x80000001;

/* CPUID leaf 1, register ecx. */
enum {
    SSE3 = BIT(0),
    SSSE3 = BIT(9),
    FMA = BIT(12),
    CX16 = BIT(13),
    SSE4_1 = BIT(19),
    SSE4_2 = BIT(20),
    MOVBE = BIT(22),
    POPCNT = BIT(23),
    XSAVE = BIT(26),
    OSXSAVE = BIT(27), /* the system has enabled xgetbv */
    AVX = BIT(28),
    F16C = BIT(29),
};

/* CPUID leaf 0x80000001, register ecx. */
enum { LAHF = BIT(0), LZCNT = BIT(5) };

/* CPUID leaf 7, register ebx. */
enum {
    BMI1 = BIT(3),
    AVX2 = BIT(5),
    BMI2 = BIT(8),
    AVX512F = BIT(16),
    AVX512DQ = BIT(17),
    AVX512CD = BIT(28),
    AVX512BW = BIT(30),
};
static const uint32_t AVX512VL = BIT(31);

/* Bits of XCR0: register state that the system saves when it switches threads. Registers that are
 * not saved cannot be used, even if the CPU has them. */
static const uint64_t YMM_SAVED = 0x6, ZMM_SAVED = 0xe6;

static uint64_t saved_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has(uint32_t word, uint32_t bits) {
    return (word & bits) == bits;
}

const char *silo_cpu_level(void) {
    uint32_t eax, ebx, ecx, edx, basic;
    if (!__get_cpuid(BASIC_LEAF, &eax, &ebx, &basic, &edx) ||
        !has(basic, SSE3 | SSSE3 | CX16 | SSE4_1 | SSE4_2 | POPCNT))
        return NULL;
    if (!__get_cpuid(AMD_LEAF, &eax, &ebx, &ecx, &edx) || !has(ecx, LAHF))
        return NULL;
    const bool lzcnt = has(ecx, LZCNT);
    if (!lzcnt || !has(basic, FMA | MOVBE | XSAVE | OSXSAVE | AVX | F16C) ||
        !__get_cpuid_count(EXTENDED_LEAF, 0, &eax, &ebx, &ecx, &edx) ||
        !has(ebx, BMI1 | AVX2 | BMI2))
        return "x86-64-v2";
    const uint64_t saved = saved_state();
    if ((saved & YMM_SAVED) != YMM_SAVED)
        return "x86-64-v2";
    const bool wide = has(ebx, AVX512F | AVX512DQ | AVX512CD | AVX512BW | AVX512VL);
    return wide && (saved & ZMM_SAVED) == ZMM_SAVED ? "x86-64-v4" : "x86-64-v3";
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

/* Bits of AT_HWCAP. They are part of the Linux kernel's ABI. */
enum {
    HAS_FP = BIT(0),
    HAS_ASIMD = BIT(1),
    HAS_CRC32 = BIT(7),
    HAS_ATOMICS = BIT(8),
    HAS_ASIMDRDM = BIT(12),
    HAS_DCPOP = BIT(16),
};

const char *silo_cpu_level(void) {
    const unsigned long needed =
        HAS_FP | HAS_ASIMD | HAS_CRC32 | HAS_ATOMICS | HAS_ASIMDRDM | HAS_DCPOP;
    return (getauxval(AT_HWCAP) & needed) == needed ? "aarch64-armv8.2" : NULL;
}

#else

const char *silo_cpu_level(void) {
    return NULL;
}

#endif
