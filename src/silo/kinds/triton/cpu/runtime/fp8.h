/* The 8-bit float KIND: MANTISSA bits of mantissa, an exponent biased by BIAS, NAN_BITS for NaN,
 * and LARGEST as its largest finite number. INFINITE: it has infinities. UNSIGNED_ZERO: it has no
 * negative zero. The code uses integers and no branches, as in half.h. Numbers out of range,
 * infinities included, become the largest finite number, as on GPUs; if rounded toward zero, an
 * infinity stays infinite in types that have one. */

SILO_INLINE float silo_KIND_to_f32(uint8_t x) {
    uint32_t magnitude = x & 0x7fu;
    uint32_t sign = (uint32_t)(x & 0x80u) << 24;
    float unit = silo_f32_of_bits((128u - BIAS - MANTISSA) << 23);
    uint32_t subnormal = silo_bits_f32((float)(int32_t)magnitude * unit);
    uint32_t normal = (magnitude << (23 - MANTISSA)) + ((127u - BIAS) << 23);
    uint32_t bits = magnitude < (1u << MANTISSA) ? subnormal : normal;
    bits = INFINITE && magnitude > LARGEST ? 0x7f800000u : bits;
    uint32_t compared = UNSIGNED_ZERO                          ? x
                        : INFINITE && magnitude > LARGEST + 1u ? NAN_BITS
                                                               : magnitude;
    return silo_f32_of_bits((compared == NAN_BITS ? 0x7fc00000u : bits) | sign);
}

/* `magnitude` with the sign bit of x; the NaN bits if x is NaN. */
SILO_INLINE uint8_t silo_KIND_signed(uint32_t x, uint32_t magnitude) {
    uint32_t sign = UNSIGNED_ZERO && magnitude == 0u ? 0u : (x >> 24) & 0x80u;
    return (uint8_t)((x & 0x7fffffffu) > 0x7f800000u ? NAN_BITS : magnitude | sign);
}

SILO_INLINE uint8_t silo_f32_to_KIND_sat(float value) {
    uint32_t bits = silo_bits_f32(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    /* Adding this aligns the last bit of the result with the last bit of f32, so that the addition
     * rounds. */
    uint32_t shift = (151u - BIAS - MANTISSA) << 23;
    uint32_t subnormal =
        silo_bits_f32(silo_f32_of_bits(magnitude) + silo_f32_of_bits(shift)) - shift;
    uint32_t even = (magnitude >> (23 - MANTISSA)) & 1u;
    uint32_t rounded = (magnitude + (1u << (22 - MANTISSA)) - 1u + even) >> (23 - MANTISSA);
    uint32_t normal = rounded - ((127u - BIAS) << MANTISSA);
    uint32_t finite = magnitude < ((128u - BIAS) << 23) ? subnormal : normal;
    return silo_KIND_signed(bits, finite < LARGEST ? finite : LARGEST);
}

/* Converts the result of an operation: an infinity stays infinite. */
SILO_INLINE uint8_t silo_f32_to_KIND(float value) {
    uint32_t magnitude = silo_bits_f32(value) & 0x7fffffffu;
    uint8_t saturated = silo_f32_to_KIND_sat(value);
    return (uint8_t)(INFINITE && magnitude == 0x7f800000u ? saturated + 1u : saturated);
}

SILO_INLINE uint8_t silo_f32_to_KIND_rtz(float value) {
    uint32_t bits = silo_bits_f32(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t is_small = magnitude < ((128u - BIAS) << 23) ? 1u : 0u;
    float units = silo_f32_of_bits(is_small ? magnitude : 0u) *
                  silo_f32_of_bits((126u + BIAS + MANTISSA) << 23);
    uint32_t normal = (magnitude >> (23 - MANTISSA)) - ((127u - BIAS) << MANTISSA);
    uint32_t finite = is_small ? (uint32_t)(int32_t)units : normal;
    finite = finite < LARGEST ? finite : LARGEST;
    return silo_KIND_signed(bits, INFINITE && magnitude == 0x7f800000u ? LARGEST + 1u : finite);
}

SILO_INLINE uint8_t silo_KIND_abs(uint8_t x) {
    return (uint8_t)(UNSIGNED_ZERO && x == NAN_BITS ? x : x & 0x7fu);
}

SILO_INLINE uint8_t silo_KIND_neg(uint8_t x) {
    return (uint8_t)(UNSIGNED_ZERO && (x & 0x7fu) == 0u ? x : x ^ 0x80u);
}
