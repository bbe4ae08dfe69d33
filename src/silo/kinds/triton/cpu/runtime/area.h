/* asinh, acosh and atanh of f32, computed in f64 and rounded once: 0.51 ulp. Small arguments use
 * two terms of the series. */

SILO_INLINE float silo_asinh_f32(float x) {
    float a = __builtin_fabsf(x);
    double d = (double)a;
    double far = silo_log2_wide(d + __builtin_sqrt(d * d + 1.0)) * 0x1.62e42fefa39efp-1;
    double y = a < 0x1p-12f ? d - d * d * d * 0x1.5555555555555p-3 : far;
    return __builtin_copysignf(a < __builtin_inff() ? (float)y : a, x);
}

SILO_INLINE float silo_acosh_f32(float x) {
    double d = (double)x;
    double y = silo_log2_wide(d + __builtin_sqrt(d * d - 1.0)) * 0x1.62e42fefa39efp-1;
    float special = x >= 1.0f ? x : __builtin_nanf("");
    return x >= 1.0f && x < __builtin_inff() ? (float)y : special;
}

SILO_INLINE float silo_atanh_f32(float x) {
    float a = __builtin_fabsf(x);
    double d = (double)a;
    double far = silo_log2_wide((1.0 + d) / (1.0 - d)) * 0x1.62e42fefa39efp-2;
    double y = a < 0x1p-12f ? d + d * d * d * 0x1.5555555555555p-2 : far;
    float special = a == 1.0f ? __builtin_inff() : __builtin_nanf("");
    return __builtin_copysignf(a < 1.0f ? (float)y : special, x);
}
