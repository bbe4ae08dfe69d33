/* 10^x and log10 of f32, computed in f64 and rounded once: 0.51 ulp. */

SILO_INLINE float silo_exp10_f32(float x) {
    return (float)silo_exp2_wide(silo_clamp_wide((double)x * 0x1.a934f0979a371p+1));
}

SILO_INLINE float silo_log10_f32(float x) {
    return silo_log_special_f32(x, (float)(silo_log2_wide((double)x) * 0x1.34413509f79ffp-2));
}
