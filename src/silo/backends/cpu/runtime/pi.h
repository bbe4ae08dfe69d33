/* sin and cos of pi times x. The reduction is exact. */

SILO_INLINE double silo_quarters_f64(double x, double *quarter) {
    double turn = x - 2.0 * __builtin_rint(x * 0.5);
    double n = __builtin_rint(2.0 * turn);
    *quarter = n;
    return (turn - 0.5 * n) * 0x1.921fb54442d18p+1;
}

SILO_INLINE double silo_sinpi_f64(double x) {
    double quarter;
    double angle = silo_quarters_f64(x, &quarter);
    double size = __builtin_fabs(quarter) == 1.0 ? cos(angle) : sin(angle);
    double y = quarter == -1.0 || __builtin_fabs(quarter) == 2.0 ? -size : size;
    return y == 0.0 ? __builtin_copysign(y, x) : y;
}

SILO_INLINE double silo_cospi_f64(double x) {
    double quarter;
    double angle = silo_quarters_f64(x, &quarter);
    double size = __builtin_fabs(quarter) == 1.0 ? sin(angle) : cos(angle);
    double y = quarter == 1.0 || __builtin_fabs(quarter) == 2.0 ? -size : size;
    return y == 0.0 ? 0.0 : y;
}
