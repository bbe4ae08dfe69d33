/* Vectors of floats along the inner axis of a product: loads from f32, bf16 and f16, and sums of
 * their lanes. */

enum {
    SILO_THIN_ROWS = 4,
    SILO_THIN_COLUMNS = 4,
    SILO_THIN_LANES = SILO_VECTOR_BYTES / 4,
};

typedef float silo_thin_floats
    __attribute__((vector_size(4 * SILO_THIN_LANES), aligned(4), may_alias));
typedef uint32_t silo_thin_words
    __attribute__((vector_size(4 * SILO_THIN_LANES), aligned(4), may_alias));
typedef uint16_t silo_thin_halves
    __attribute__((vector_size(2 * SILO_THIN_LANES), aligned(2), may_alias));

SILO_INLINE silo_thin_floats silo_thin_read_f32(const float *at) {
    return *(const silo_thin_floats *)at;
}

SILO_INLINE silo_thin_floats silo_thin_read_bf16(const uint16_t *at) {
    const silo_thin_words wide =
        __builtin_convertvector(*(const silo_thin_halves *)at, silo_thin_words);
    return (silo_thin_floats)(wide << (uint32_t)16);
}

SILO_INLINE silo_thin_floats silo_thin_read_f16(const uint16_t *at) {
    silo_thin_floats wide;
#ifdef __F16C__
    const silo_thin_halves narrow = *(const silo_thin_halves *)at;
    __asm__("vcvtph2ps %1, %0" : "=v"(wide) : "v"(narrow));
#else
    for (int l = 0; l < SILO_THIN_LANES; l++)
        wide[l] = silo_f16_to_f32(at[l]);
#endif
    return wide;
}

SILO_INLINE float silo_thin_fold(silo_thin_floats sums) {
    float half[SILO_THIN_LANES];
    __builtin_memcpy(half, &sums, sizeof half);
#pragma GCC unroll 4
    for (int width = SILO_THIN_LANES / 2; width > 0; width /= 2)
#pragma GCC unroll 8
        for (int l = 0; l < width; l++)
            half[l] += half[l + width];
    return half[0];
}
