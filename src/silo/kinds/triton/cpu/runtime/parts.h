/* Exponents, neighbours and other parts of a number. */

SILO_INLINE float silo_fdim_f32(float x, float y) {
    float above = x > y ? x - y : 0.0f;
    return x != x ? x : y != y ? y : above;
}

SILO_INLINE double silo_fdim_f64(double x, double y) {
    double above = x > y ? x - y : 0.0;
    return x != x ? x : y != y ? y : above;
}

/* Clamps to [0, 1]; NaN becomes 0. */
SILO_INLINE float silo_saturate_f32(float x) {
    float above = x > 0.0f ? x : 0.0f;
    return above < 1.0f ? above : 1.0f;
}

/* The exponent of a finite number that is not 0. */
SILO_INLINE int32_t silo_exponent_f64(double x) {
    int32_t is_small = __builtin_fabs(x) < 0x1p-1022 ? 1 : 0;
    uint64_t bits = silo_bits_f64(is_small ? x * 0x1p54 : x);
    return (int32_t)(bits >> 52 & 0x7ffu) - 1023 - (is_small ? 54 : 0);
}

SILO_INLINE double silo_logb_f64(double x) {
    double exponent = (double)silo_exponent_f64(x);
    double special = x == 0.0 ? -__builtin_inf() : x * x;
    return x == 0.0 || x - x != 0.0 ? special : exponent;
}

SILO_INLINE float silo_logb_f32(float x) {
    return (float)silo_logb_f64((double)x);
}

SILO_INLINE int32_t silo_ilogb_f64(double x) {
    int32_t special = __builtin_fabs(x) == __builtin_inf() ? 2147483647 : -2147483647 - 1;
    return x == 0.0 || x - x != 0.0 ? special : silo_exponent_f64(x);
}

SILO_INLINE int32_t silo_ilogb_f32(float x) {
    return silo_ilogb_f64((double)x);
}

SILO_INLINE float silo_nextafter_f32(float x, float y) {
    uint32_t bits = silo_bits_f32(x);
    bits += (y > x) == (x > 0.0f) ? 1u : 0xffffffffu;
    float next = x == 0.0f ? __builtin_copysignf(0x1p-149f, y) : silo_f32_of_bits(bits);
    next = x == y ? y : next;
    return x != x ? x : y != y ? y : next;
}

SILO_INLINE double silo_nextafter_f64(double x, double y) {
    uint64_t bits = silo_bits_f64(x);
    bits += (y > x) == (x > 0.0) ? 1u : ~(uint64_t)0;
    double next = x == 0.0 ? __builtin_copysign(0x1p-1074, y) : silo_f64_of_bits(bits);
    next = x == y ? y : next;
    return x != x ? x : y != y ? y : next;
}

/* x * 2^n, rounded once. */
SILO_INLINE float silo_ldexp_f32(float x, int32_t n) {
    int32_t power = n < -400 ? -400 : n > 400 ? 400 : n;
    return (float)((double)x * silo_f64_of_bits((uint64_t)(power + 1023) << 52));
}

/* x * 2^n in several factors. To scale up, the larger factors come first; to scale down, the first
 * two keep 53 bits above the smallest normal number, so that only the last product rounds. */
SILO_INLINE double silo_ldexp_f64(double x, int32_t n) {
    int32_t power = n < -2200 ? -2200 : n > 2200 ? 2200 : n;
    for (int step = 0; step < 2; step++) {
        double factor = power > 1023 ? 0x1p1023 : power < -1022 ? 0x1p-969 : 1.0;
        power -= power > 1023 ? 1023 : power < -1022 ? -969 : 0;
        x *= factor;
    }
    power = power < -1022 ? -1022 : power > 1023 ? 1023 : power;
    return x * silo_f64_of_bits((uint64_t)(power + 1023) << 52);
}

SILO_INLINE double silo_powi_f64(double x, int32_t n) {
    return pow(x, (double)n);
}

SILO_INLINE float silo_powi_f32(float x, int32_t n) {
    return (float)pow((double)x, (double)n);
}
