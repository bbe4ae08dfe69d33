/* Roots and lengths. Unless a comment says otherwise, f32 results are computed in f64. */

SILO_INLINE float silo_rsqrt_f32(float x) {
    return 1.0f / __builtin_sqrtf(x);
}

SILO_INLINE double silo_rsqrt_f64(double x) {
    return 1.0 / __builtin_sqrt(x);
}

SILO_INLINE double silo_rcbrt_f64(double x) {
    return 1.0 / cbrt(x);
}

SILO_INLINE double silo_rhypot_f64(double x, double y) {
    return 1.0 / hypot(x, y);
}

SILO_INLINE double silo_norm3d_f64(double x, double y, double z) {
    return hypot(hypot(x, y), z);
}

SILO_INLINE double silo_rnorm3d_f64(double x, double y, double z) {
    return 1.0 / silo_norm3d_f64(x, y, z);
}

SILO_INLINE double silo_norm4d_f64(double x, double y, double z, double w) {
    return hypot(hypot(x, y), hypot(z, w));
}

SILO_INLINE double silo_rnorm4d_f64(double x, double y, double z, double w) {
    return 1.0 / silo_norm4d_f64(x, y, z, w);
}
