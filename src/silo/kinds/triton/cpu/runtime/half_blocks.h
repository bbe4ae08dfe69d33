/* Converts rows of f16 to f32 and back, with conversion instructions if the CPU level has them.
 * clang turns the plain loops into these instructions; gcc needs the intrinsics. */

#if defined(__F16C__) && !defined(__clang__)
typedef short silo_half8 __attribute__((vector_size(16)));
typedef float silo_wide8 __attribute__((vector_size(32)));
typedef short silo_half16 __attribute__((vector_size(32)));
typedef float silo_wide16 __attribute__((vector_size(64)));
#endif

SILO_APART void silo_widen_row_f16(float *to, const uint16_t *from, int64_t count) {
    int64_t i = 0;
#if defined(__F16C__) && !defined(__clang__)
#ifdef __AVX512F__
    for (; i + 16 <= count; i += 16) {
        silo_half16 half;
        __builtin_memcpy(&half, from + i, sizeof half);
        silo_wide16 wide = __builtin_ia32_vcvtph2ps512_mask(half, (silo_wide16){0}, (short)-1, 4);
        __builtin_memcpy(to + i, &wide, sizeof wide);
    }
#endif
    for (; i + 8 <= count; i += 8) {
        silo_half8 half;
        __builtin_memcpy(&half, from + i, sizeof half);
        silo_wide8 wide = __builtin_ia32_vcvtph2ps256(half);
        __builtin_memcpy(to + i, &wide, sizeof wide);
    }
#endif
    for (; i < count; i++)
        to[i] = silo_f16_to_f32(from[i]);
}

SILO_APART void silo_narrow_row_f16(uint16_t *to, const float *from, int64_t count) {
    int64_t i = 0;
#if defined(__F16C__) && !defined(__clang__)
#ifdef __AVX512F__
    for (; i + 16 <= count; i += 16) {
        silo_wide16 wide;
        __builtin_memcpy(&wide, from + i, sizeof wide);
        silo_half16 half = __builtin_ia32_vcvtps2ph512_mask(wide, 0, (silo_half16){0}, 0xffff);
        __builtin_memcpy(to + i, &half, sizeof half);
    }
#endif
    for (; i + 8 <= count; i += 8) {
        silo_wide8 wide;
        __builtin_memcpy(&wide, from + i, sizeof wide);
        silo_half8 half = __builtin_ia32_vcvtps2ph256(wide, 0);
        __builtin_memcpy(to + i, &half, sizeof half);
    }
#endif
    for (; i < count; i++)
        to[i] = silo_f32_to_f16(from[i]);
}

#if SILO_VECTOR_BITS == 512
/* Conversions of f16 to the sixteen f32 lanes of a vector. silo_widen_some_f16 converts `count`
 * elements, fewer than sixteen, and sets the other lanes to 0. */
typedef float silo_widened_lanes __attribute__((vector_size(64), may_alias));

#if defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)
SILO_INLINE void silo_widen_lanes_f16(silo_widened_lanes *to, const uint16_t *from) {
    silo_half16 half;
    __builtin_memcpy(&half, from, sizeof half);
    *to = __builtin_ia32_vcvtph2ps512_mask(half, (silo_wide16){0}, (short)-1, 4);
}

SILO_INLINE void silo_widen_some_f16(silo_widened_lanes *to, const uint16_t *from, int32_t count) {
    silo_half16 half = __builtin_ia32_loaddquhi256_mask((const short *)from, (silo_half16){0},
                                                        (uint16_t)((1u << count) - 1u));
    *to = __builtin_ia32_vcvtph2ps512_mask(half, (silo_wide16){0}, (short)-1, 4);
}
#else
SILO_INLINE void silo_widen_lanes_f16(silo_widened_lanes *to, const uint16_t *from) {
    for (int32_t i = 0; i < 16; i++)
        ((float *)to)[i] = silo_f16_to_f32(from[i]);
}

SILO_INLINE void silo_widen_some_f16(silo_widened_lanes *to, const uint16_t *from, int32_t count) {
    for (int32_t i = 0; i < 16; i++)
        ((float *)to)[i] = i < count ? silo_f16_to_f32(from[i]) : 0.0f;
}
#endif
#endif
