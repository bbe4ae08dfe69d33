/* Rounds to the nearest integer, ties away from zero. */

SILO_INLINE float silo_round_f32(float x) {
    float whole = __builtin_truncf(x);
    float step = __builtin_fabsf(x - whole) >= 0.5f ? 1.0f : 0.0f;
    return whole + __builtin_copysignf(step, x);
}

SILO_INLINE double silo_round_f64(double x) {
    double whole = __builtin_trunc(x);
    double step = __builtin_fabs(x - whole) >= 0.5 ? 1.0 : 0.0;
    return whole + __builtin_copysign(step, x);
}

/* Rounds to the 10 fraction bits of TF32, ties away from zero (`rna`) or to even (`rn`); infinities
 * and NaNs stay as they are. */
SILO_INLINE float silo_round_tf32(uint32_t bits, uint32_t half) {
    uint32_t rounded = (bits + half) & 0xffffe000u;
    return silo_f32_of_bits((bits & 0x7f800000u) == 0x7f800000u ? bits : rounded);
}

SILO_INLINE float silo_round_tf32_rna(float x) {
    return silo_round_tf32(silo_bits_f32(x), 0x1000u);
}

SILO_INLINE float silo_round_tf32_rn(float x) {
    uint32_t bits = silo_bits_f32(x);
    return silo_round_tf32(bits, 0x0fffu + (bits >> 13 & 1u));
}
