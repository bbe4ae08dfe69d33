/* log and log2 of f64 without branches or tables: x = 2^k (1 + f) with 1 + f in [sqrt(1/2),
   sqrt(2)), and 2 atanh(f / (2 + f)). */

SILO_INLINE double silo_log_split_f64(double x, double *k) {
    double normal = x < 0x1p-1022 ? x * 0x1p54 : x;
    uint64_t bits = silo_bits_f64(normal) + 0x00095f619980c433u;
    double exponent = silo_f64_of_bits(bits >> 52 | 0x4330000000000000u) - (0x1p52 + 1023.0);
    *k = exponent - (x < 0x1p-1022 ? 54.0 : 0.0);
    return silo_f64_of_bits((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
}

/* log(1 + f) - f + f^2 / 2. */
SILO_INLINE double silo_log_tail_f64(double f) {
    double s = f / (2.0 + f);
    double z = s * s;
    double p = 0x1.2b5f68a50d903p-3;
    p = p * z + 0x1.39fdcceb4bb45p-3;
    p = p * z + 0x1.7462b91b8df65p-3;
    p = p * z + 0x1.c71c62d5e53e0p-3;
    p = p * z + 0x1.2492492dfd86cp-2;
    p = p * z + 0x1.9999999995273p-2;
    p = p * z + 0x1.5555555555558p-1;
    return s * (0.5 * f * f + z * p);
}

SILO_INLINE double silo_log_special_f64(double x, double y) {
    double special = x > 0.0 ? x : __builtin_nan("");
    special = x == 0.0 ? -__builtin_inf() : special;
    return x > 0.0 && x < __builtin_inf() ? y : special;
}

SILO_INLINE double silo_log_f64(double x) {
    double k;
    double f = silo_log_split_f64(x, &k);
    double half = 0.5 * f * f;
    double low = k * 0x1.ef35793c76730p-45 + silo_log_tail_f64(f);
    return silo_log_special_f64(x, k * 0x1.62e42fefa3800p-1 + (f - (half - low)));
}

SILO_INLINE double silo_log2_f64(double x) {
    double k;
    double f = silo_log_split_f64(x, &k);
    double half = 0.5 * f * f;
    /* The leading bits, whose product with the leading bits of log2(e) is exact. */
    double high = silo_f64_of_bits(silo_bits_f64(f - half) & 0xffffffff00000000u);
    double low = (f - high) - half + silo_log_tail_f64(f);
    double y = high * 0x1.7154765200000p+0;
    double rest = (low + high) * 0x1.705fc2eefa200p-33 + low * 0x1.7154765200000p+0;
    double sum = k + y;
    return silo_log_special_f64(x, sum + (rest + (k - sum + y)));
}
