/* ue8m0, an 8-bit exponent that stands for 2^(x - 127). Conversions take the magnitude and round it
 * toward zero (rz) or up (rp). NaN and infinity become 0xff, and so does a finite number that is
 * too large; with `_sat`, infinity and a number too large become 0xfe. Magnitudes up to 2^-127
 * become 0.
 */

SILO_INLINE uint8_t silo_f32_to_e8m0_rz(float x) {
    return (uint8_t)(silo_bits_f32(x) >> 23);
}

SILO_INLINE uint8_t silo_f32_to_e8m0_rp(float x) {
    uint32_t magnitude = silo_bits_f32(x) & 0x7fffffffu;
    uint32_t inexact = (magnitude & 0x7fffffu) != 0u ? 1u : 0u;
    uint32_t inside = magnitude > 0x00400000u && magnitude < 0x7f800000u ? 1u : 0u;
    return (uint8_t)((magnitude >> 23) + (inexact & inside));
}

SILO_INLINE uint8_t silo_e8m0_sat(float x, uint8_t found) {
    return (uint8_t)(found == 0xffu && x == x ? 0xfeu : found);
}

SILO_INLINE uint8_t silo_f32_to_e8m0_rz_sat(float x) {
    return silo_e8m0_sat(x, silo_f32_to_e8m0_rz(x));
}

SILO_INLINE uint8_t silo_f32_to_e8m0_rp_sat(float x) {
    return silo_e8m0_sat(x, silo_f32_to_e8m0_rp(x));
}

/* Converts to bf16, which represents every such power exactly; 0xff becomes NaN. */
SILO_INLINE uint16_t silo_e8m0_to_bf16(uint8_t x) {
    return (uint16_t)(x == 0xffu ? 0x7fffu : x == 0u ? 0x0040u : (uint32_t)x << 7);
}
