/* e2m1, the 4-bit float with the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6. Conversion rounds to
 * nearest, ties to even; values above 6 become 6. The sign of zero is kept; NaN becomes +6. */

SILO_INLINE uint32_t silo_f32_to_e2m1(float x) {
    uint32_t bits = silo_bits_f32(x), size = bits & 0x7fffffffu;
    uint32_t sign = size > 0x7f800000u ? 0u : bits >> 28 & 8u;
    /* Compares with the numbers halfway between two magnitudes; they round down if the lower
     * magnitude is even. */
    uint32_t place = (uint32_t)(size > 0x3e800000u) + (uint32_t)(size >= 0x3f400000u);
    place += (uint32_t)(size > 0x3fa00000u) + (uint32_t)(size >= 0x3fe00000u);
    place += (uint32_t)(size > 0x40200000u) + (uint32_t)(size >= 0x40600000u) +
             (uint32_t)(size > 0x40a00000u);
    return sign | place;
}

/* Converts the lower four bits exactly: a sign, two bits of exponent with bias 1, one bit of
 * mantissa. */
SILO_INLINE float silo_e2m1_to_f32(uint32_t bits) {
    const uint32_t magnitude = bits & 7u;
    const uint32_t number = magnitude < 2u ? magnitude * 0x3f000000u : (magnitude + 252u) << 22;
    return silo_f32_of_bits(number | (bits & 8u) << 28);
}
