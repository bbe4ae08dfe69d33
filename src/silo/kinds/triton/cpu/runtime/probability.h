/* Relatives of the error function in f64. Inverses use Winitzki's approximation, which is good to
 * 2e-3, and three steps of Halley's method, each of which triples the correct digits. */

/* Solves erf(t) = x; `tail` is exactly 1 - |x|. */
SILO_INLINE double silo_erf_inverse(double x, double tail) {
    double size = __builtin_fabs(x);
    double l = log(tail) + log1p(size); /* log(1 - x^2) */
    double middle = 0x1.230029db59db6p+2 + 0.5 * l;
    double t = __builtin_sqrt(__builtin_sqrt(middle * middle - l * 0x1.c91a4ccc3a41cp+2) - middle);
    for (int step = 0; step < 3; step++) {
        double root = exp(0.5 * t * t);
        double error = size < 0.5 ? erf(t) - size : tail - erfc(t);
        double u = error * 0x1.c5bf891b4ef6bp-1 * root * root;
        t = t - u / (1.0 + t * u);
    }
    t = size == 0.0 ? 0.0 : t;
    t = tail == 0.0 ? __builtin_inf() : t;
    return __builtin_copysign(size <= 1.0 ? t : __builtin_nan(""), x);
}

SILO_INLINE double silo_erfinv_f64(double x) {
    return silo_erf_inverse(x, 1.0 - __builtin_fabs(x));
}

SILO_INLINE double silo_erfcinv_f64(double x) {
    if (x < 0.5)
        return x > 0.0 ? silo_erf_inverse(1.0 - x, x)
                       : (x == 0.0 ? __builtin_inf() : __builtin_nan(""));
    return silo_erf_inverse(1.0 - x, x > 1.0 ? 2.0 - x : x);
}

SILO_INLINE double silo_normcdfinv_f64(double x) {
    return -0x1.6a09e667f3bcdp+0 * silo_erfcinv_f64(2.0 * x);
}

/* erfc(-x / sqrt 2) / 2, corrected for the rounding error of -x / sqrt 2. */
SILO_INLINE double silo_normcdf_f64(double x) {
    double c = x < -39.0 ? -39.0 : x > 39.0 ? 39.0 : x;
    double z = c * -0x1.6a09e667f3bcdp-1;
    double lost = __builtin_fma(c, -0x1.6a09e667f3bcdp-1, -z) + c * 0x1.bdd3413b26456p-55;
    double y = 0.5 * (erfc(z) - lost * 0x1.20dd750429b6dp+0 * exp(-z * z));
    return x != x ? x : y;
}

/* exp(x^2) erfc(x): up to 10 the product, above 10 the asymptotic series. */
SILO_INLINE double silo_erfcx_f64(double x) {
    if (x > 10.0) {
        double inverse = 1.0 / (2.0 * x * x), sum = 1.0;
        for (double k = 15.0; k > 0.0; k -= 1.0)
            sum = 1.0 - (2.0 * k - 1.0) * inverse * sum;
        return 0x1.20dd750429b6dp-1 / x * sum;
    }
    double square = x * x;
    double lost = __builtin_fma(x, x, -square);
    double grown = exp(square);
    double y = grown * erfc(x);
    return grown > 0x1.fffffffffffffp1023 ? (x < 0.0 ? grown : 0.0) : x != x ? x : y + y * lost;
}
