/* Modified Bessel functions of order 0 and 1 in f64: up to 20 the power series, whose terms are all
 * positive, and beyond 20 the asymptotic series. */

SILO_INLINE double silo_bessel_far(double size, double order_squared4) {
    double sum = 1.0, term = 1.0;
    for (double k = 1.0; k < 40.0; k += 1.0) {
        double odd = 2.0 * k - 1.0;
        term *= (odd * odd - order_squared4) / (8.0 * k * size);
        sum += term;
    }
    double half = exp(0.5 * size);
    return half * (half * (sum * 0x1.9884533d43651p-2 / __builtin_sqrt(size)));
}

SILO_INLINE double silo_bessel_near(double size, double order) {
    double half = 0.5 * size, square = half * half, sum = 1.0, slope = 0.0, term = 1.0;
    for (double k = 1.0; k < 60.0; k += 1.0) {
        term *= square / (k * (k + order));
        sum += term;
        slope += k * term;
    }
    /* The rounding error of the square is corrected to first order. */
    double lost = __builtin_fma(half, half, -square);
    return square > 0.0 ? sum + lost / square * slope : sum;
}

SILO_INLINE double silo_cyl_bessel_i0_f64(double x) {
    double size = __builtin_fabs(x);
    return size > 720.0  ? size * __builtin_inf()
           : size > 20.0 ? silo_bessel_far(size, 0.0)
                         : silo_bessel_near(size, 0.0);
}

SILO_INLINE double silo_cyl_bessel_i1_f64(double x) {
    double size = __builtin_fabs(x);
    double y = size > 720.0  ? size * __builtin_inf()
               : size > 20.0 ? silo_bessel_far(size, 4.0)
                             : 0.5 * size * silo_bessel_near(size, 1.0);
    return __builtin_copysign(y, x);
}
