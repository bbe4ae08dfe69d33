/* Conversions to 64-bit integers that round first. */

SILO_INLINE int64_t silo_llrint_f32(float x) {
    return silo_f32_to_i64(__builtin_rintf(x));
}

SILO_INLINE int64_t silo_llrint_f64(double x) {
    return silo_f64_to_i64(__builtin_rint(x));
}

SILO_INLINE int64_t silo_llround_f32(float x) {
    return silo_f32_to_i64(silo_round_f32(x));
}

SILO_INLINE int64_t silo_llround_f64(double x) {
    return silo_f64_to_i64(silo_round_f64(x));
}
