/* sinh and cosh of f32 from e^x / 2, which is finite wherever their results are. */

SILO_INLINE float silo_sinh_f32(float x) {
    float a = __builtin_fabsf(x);
    float s = a * a;
    float p = 0x1.756cb4p-19f;
    p = p * s + 0x1.a022bap-13f;
    p = p * s + 0x1.1110e0p-7f;
    p = p * s + 0x1.555556p-3f;
    float near = a + a * s * p;
    float half = silo_exp_times_f32(a, 0xffffffffu);
    float far = half - 0.25f / half;
    return __builtin_copysignf(a < 1.0f ? near : far, x);
}

SILO_INLINE float silo_cosh_f32(float x) {
    float half = silo_exp_times_f32(__builtin_fabsf(x), 0xffffffffu);
    return half + 0.25f / half;
}
