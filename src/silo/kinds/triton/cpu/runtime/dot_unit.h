/* The instructions that this CPU has beyond its CPU level, read once per process. */

enum { SILO_UNIT_BF16 = 1, SILO_UNIT_VNNI = 2, SILO_UNIT_TILE_BF16 = 4, SILO_UNIT_TILE_I8 = 8 };

#if defined(__x86_64__) && SILO_DOT_UNITS > 0
SILO_APART int silo_find_units(void) {
    uint32_t a = 0, b, c = 0, d, high;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    if (a < 7)
        return 0;
    /* On Intel's CPUs, AVX512-BF16 is slower than two multiplications of floats, so it is used
     * there only if SILO_DOT_UNITS is 1. */
    const int bf16 = SILO_DOT_UNITS == 1 || b == 0x68747541u; /* "Auth" of AMD's vendor string */
    a = 7, c = 0;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    const uint32_t leaves = a;
    int found = c >> 11 & 1 ? SILO_UNIT_VNNI : 0;
    const uint32_t tiles = d >> 24 & 1, tile_bf16 = d >> 22 & 1, tile_i8 = d >> 25 & 1;
    if (leaves >= 1) {
        a = 7, c = 1;
        __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        found |= bf16 && (a >> 5 & 1) ? SILO_UNIT_BF16 : 0;
    }
#if defined(__linux__) && SILO_DOT_UNITS > 1
    /* The system must save the tile registers (bits 17 and 18 of XCR0), and a process must request
     * them before it uses them: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
    __asm__("xgetbv" : "=a"(a), "=d"(high) : "c"(0));
    if (tiles && (a >> 17 & 3) == 3) {
        int64_t answer;
        __asm__ volatile("syscall"
                         : "=a"(answer)
                         : "a"((int64_t)158), "D"((int64_t)0x1023), "S"((int64_t)18)
                         : "rcx", "r11", "memory");
        if (answer == 0)
            found |= (tile_bf16 ? SILO_UNIT_TILE_BF16 : 0) | (tile_i8 ? SILO_UNIT_TILE_I8 : 0);
    }
    (void)high;
#else
    (void)high, (void)tiles, (void)tile_bf16, (void)tile_i8;
#endif
    return found;
}

static int silo_units_found = -1;

/* The SILO_UNIT_ bits of this CPU. Threads that call this at the same time find the same bits, so
 * no lock is needed. */
SILO_INLINE int silo_units(void) {
    int found = __atomic_load_n(&silo_units_found, __ATOMIC_RELAXED);
    if (__builtin_expect(found < 0, 0)) {
        found = silo_find_units();
        __atomic_store_n(&silo_units_found, found, __ATOMIC_RELAXED);
    }
    return found;
}
#else
SILO_INLINE int silo_units(void) {
    return 0;
}
#endif
