/* Less common roundings: f64 to a type narrower than f32 with a single rounding, and rounding
 * toward zero. */

/* f64 to f32 rounded to odd: rounding the result to a narrower type then gives the same as rounding
 * only once. */
SILO_INLINE float silo_f64_to_f32_odd(double value) {
    float near = (float)value;
    double error = value - (double)near;
    uint32_t bits = silo_bits_f32(near);
    uint32_t away = (value < 0.0 ? error > 0.0 : error < 0.0) ? 1u : 0u;
    uint32_t inexact =
        error > 0.0 || error < 0.0 ? 1u : 0u; /* a NaN, as from inf - inf, counts as exact */
    return silo_f32_of_bits((bits - away) | inexact);
}

SILO_INLINE float silo_f64_to_f32_rtz(double value) {
    float near = (float)value;
    uint32_t away = __builtin_fabs((double)near) > __builtin_fabs(value) ? 1u : 0u;
    return silo_f32_of_bits(silo_bits_f32(near) - away);
}

SILO_INLINE uint16_t silo_f32_to_bf16_rtz(float value) {
    uint32_t high = silo_bits_f32(value) >> 16;
    return (uint16_t)(value != value ? high | 0x40u : high);
}

SILO_INLINE uint16_t silo_f32_to_f16_rtz(float value) {
    uint32_t bits = silo_bits_f32(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t is_small = magnitude < 0x38800000u ? 1u : 0u;
    float units = silo_f32_of_bits(is_small ? magnitude : 0u) * 0x1p24f;
    uint32_t normal = (magnitude - 0x38000000u) >> 13;
    uint32_t finite = is_small ? (uint32_t)(int32_t)units : normal < 0x7bffu ? normal : 0x7bffu;
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return (uint16_t)((magnitude >= 0x7f800000u ? special : finite) | ((bits >> 16) & 0x8000u));
}

/* a * b + c rounded to odd, for operands whose product is exact in f64. */
SILO_INLINE double silo_fma_odd(double a, double b, double c) {
    double product = a * b;
    double sum = product + c;
    double added = sum - product;
    double error = (product - (sum - added)) + (c - added);
    uint64_t bits = silo_bits_f64(sum);
    uint64_t away = (sum < 0.0 ? error > 0.0 : error < 0.0) ? 1u : 0u;
    uint64_t inexact = error > 0.0 || error < 0.0 ? 1u : 0u;
    return silo_f64_of_bits((bits - away) | inexact);
}
