/* Elements and scales of scaled dots. */

/* The low four bits: sign, two bits of exponent with bias 1, one of mantissa. */
SILO_INLINE float silo_e2m1_to_f32(uint32_t bits) {
    const uint32_t magnitude = bits & 7u;
    const uint32_t number = magnitude < 2u ? magnitude * 0x3f000000u : (magnitude + 252u) << 22;
    return silo_f32_of_bits(number | (bits & 8u) << 28);
}

/* 2^(bits - 127); all ones are NaN, 0 is what `least` says: 2^-127, or 0 among fp16. */
SILO_INLINE float silo_e8m0_to_f32(uint32_t bits, uint32_t least) {
    return silo_f32_of_bits(bits == 0xffu ? 0x7fc00000u : bits ? bits << 23 : least);
}
