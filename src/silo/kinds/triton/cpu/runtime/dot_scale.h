/* Scales of tl.dot_scaled. */

/* 2^(bits - 127). All ones are NaN; 0 gives the f32 with the bits `least`: 2^-127, or 0 for fp16
 * elements. */
SILO_INLINE float silo_e8m0_to_f32(uint32_t bits, uint32_t least) {
    return silo_f32_of_bits(bits == 0xffu ? 0x7fc00000u : bits ? bits << 23 : least);
}
