/* Whether all `count` conditions, each 0 or 1, are true. */
SILO_INLINE int silo_all(uint8_t const *conditions, int64_t count) {
    int64_t const words = count / 8;
    uint64_t all = 0x0101010101010101u;
#pragma omp simd reduction(& : all)
    for (int64_t i = 0; i < words; i++) {
        uint64_t some;
        __builtin_memcpy(&some, conditions + i * 8, sizeof some);
        all &= some;
    }
    for (int64_t i = words * 8; i < count; i++)
        all &= conditions[i] ? all : 0;
    return all == 0x0101010101010101u;
}
