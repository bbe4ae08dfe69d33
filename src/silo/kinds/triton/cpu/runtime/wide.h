/* log2 and exp2 in f64, exact enough for f32 results: the basis of the functions that are computed
 * in f64 and rounded once. They convert nothing between integers and f64, because few vector units
 * can do that. */

/* log2 of a finite x > 0 that is normal in f64; relative error 2^-37. x = 2^k m with m in
 * [sqrt(1/2), sqrt(2)), log(m) = 2 atanh((m - 1) / (m + 1)). */
SILO_INLINE double silo_log2_wide(double x) {
    uint64_t bits = silo_bits_f64(x) + 0x00095f619980c433u;
    double k = silo_f64_of_bits(bits >> 52 | 0x4330000000000000u) - (0x1p52 + 1023.0);
    double m = silo_f64_of_bits((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double p = 0x1.5ce85aa5838d3p-2;
    p = p * z + 0x1.a58d887c0bab6p-2;
    p = p * z + 0x1.27777fe9113a6p-1;
    p = p * z + 0x1.ec709d12cef15p-1;
    p = p * z + 0x1.71547652bedf3p+1;
    return k + s * p;
}

/* 2^x for |x| <= 1000 and NaN; relative error 2^-33. */
SILO_INLINE double silo_exp2_wide(double x) {
    double shifted = x + 0x1.8p52;
    double r = x - (shifted - 0x1.8p52);
    double p = 0x1.fdfccbc6604cdp-17;
    p = p * r + 0x1.4469aa9b2ec61p-13;
    p = p * r + 0x1.5d8a73e69c1d8p-10;
    p = p * r + 0x1.3b29dc14c02e1p-7;
    p = p * r + 0x1.c6b08aae71763p-5;
    p = p * r + 0x1.ebfbe0a4f2956p-3;
    p = p * r + 0x1.62e42ff116b4bp-1;
    p = p * r + 0x1.ffffffffab9afp-1;
    return p * silo_f64_of_bits((silo_bits_f64(shifted) + 1023u) << 52);
}

/* Clamps x to +-200; beyond that, 2^x overflows or underflows f32. */
SILO_INLINE double silo_clamp_wide(double x) {
    double above = x < -200.0 ? -200.0 : x;
    return above > 200.0 ? 200.0 : above;
}
