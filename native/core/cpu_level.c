#include "cpu_level.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)

#include <cpuid.h>

/* State that the operating system saves when it changes threads: without it the registers cannot be
 * used, whatever the CPU has. */
static uint64_t saved_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has(uint32_t word, uint32_t bits) {
    return (word & bits) == bits;
}

const char *silo_cpu_level(void) {
    const uint64_t ymm = 0x6, zmm = 0xe6;
    uint32_t a, b, c, d, ext_b, ext_c;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return NULL;
    const uint32_t basic = c;
    /* sse3, ssse3, cx16, sse4.1, sse4.2, popcnt */
    if (!has(basic, 1U << 0 | 1U << 9 | 1U << 13 | 1U << 19 | 1U << 20 | 1U << 23))
        return NULL;
    if (!__get_cpuid(0x80000001, &a, &b, &ext_c, &d) || !has(ext_c, 1U << 0)) /* lahf */
        return NULL;
    const char *level = "x86-64-v2";
    /* fma, movbe, xsave and its use by the system, avx, f16c; lzcnt */
    if (!has(basic, 1U << 12 | 1U << 22 | 1U << 26 | 1U << 27 | 1U << 28 | 1U << 29) ||
        !has(ext_c, 1U << 5) || !__get_cpuid_count(7, 0, &a, &ext_b, &c, &d))
        return level;
    const uint64_t saved = saved_state();
    if (!has(ext_b, 1U << 3 | 1U << 5 | 1U << 8) || (saved & ymm) != ymm) /* bmi1, avx2, bmi2 */
        return level;
    level = "x86-64-v3";
    /* avx512f, avx512dq, avx512cd, avx512bw, avx512vl */
    if (!has(ext_b, 1U << 16 | 1U << 17 | 1U << 28 | 1U << 30 | 1U << 31) || (saved & zmm) != zmm)
        return level;
    return "x86-64-v4";
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

const char *silo_cpu_level(void) {
    /* fp, asimd, crc32, atomics, asimdrdm, dcpop: bits of the kernel's ABI */
    const unsigned long needed = 1UL << 0 | 1UL << 1 | 1UL << 7 | 1UL << 8 | 1UL << 12 | 1UL << 16;
    return (getauxval(AT_HWCAP) & needed) == needed ? "aarch64-armv8.2" : NULL;
}

#else

const char *silo_cpu_level(void) {
    return NULL;
}

#endif
