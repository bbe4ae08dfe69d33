/* Converts contiguous f16 to f32, with the conversion instruction if the CPU level has one:
 * compilers do not use it for loops over silo_f16_to_f32. */
SILO_INLINE void silo_dot_widen_f16(const uint16_t *from, float *to, int64_t count) {
    int64_t i = 0;
#ifdef __F16C__
    enum { LANES = SILO_VECTOR_BYTES / 4 };
    typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
    typedef float singles __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
    for (; i + LANES <= count; i += LANES) {
        const halves narrow = *(const halves *)(from + i);
        singles wide;
        __asm__("vcvtph2ps %1, %0" : "=v"(wide) : "v"(narrow));
        *(singles *)(to + i) = wide;
    }
    if (i < count) {
        uint16_t some[LANES] = {0};
        singles wide;
        for (int64_t j = i; j < count; j++)
            some[j - i] = from[j];
        const halves narrow = *(const halves *)some;
        __asm__("vcvtph2ps %1, %0" : "=v"(wide) : "v"(narrow));
        for (int64_t j = i; j < count; j++)
            to[j] = wide[j - i];
    }
    i = count;
#endif
#pragma omp simd
    for (int64_t j = i; j < count; j++)
        to[j] = silo_f16_to_f32(from[j]);
}
