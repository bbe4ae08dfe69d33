/* 10^x of f64. */

SILO_INLINE double silo_exp10_f64(double x) {
    return pow(10.0, x);
}
