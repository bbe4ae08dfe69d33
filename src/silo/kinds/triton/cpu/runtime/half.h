/* f16 and bf16 are stored in uint16_t. Conversions are integer code without branches, so that loops
 * over them vectorise. They round to nearest, ties to even; subnormals and infinities are exact,
 * and NaN stays NaN. clang compiles its own conversions of f16 to vector instructions if the CPU
 * has them. */

SILO_INLINE float silo_bf16_to_f32(uint16_t half) {
    return silo_f32_of_bits((uint32_t)half << 16);
}

SILO_INLINE uint16_t silo_f32_to_bf16(float value) {
    uint32_t bits = silo_bits_f32(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)(value != value ? quiet : rounded);
}

#if defined(__clang__) && defined(__F16C__)
SILO_INLINE float silo_f16_to_f32(uint16_t half) {
    _Float16 value;
    __builtin_memcpy(&value, &half, sizeof value);
    return (float)value;
}

SILO_INLINE uint16_t silo_f32_to_f16(float value) {
    _Float16 rounded = (_Float16)value;
    uint16_t half;
    __builtin_memcpy(&half, &rounded, sizeof half);
    return half;
}
#else
SILO_INLINE float silo_f16_to_f32(uint16_t half) {
    uint32_t magnitude = half & 0x7fffu;
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    /* 0x1p-24 times the integer is exact for subnormals, and the calculation involves no subnormal
     * f32. */
    uint32_t subnormal = silo_bits_f32((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u);
    return silo_f32_of_bits((magnitude < 0x400u ? subnormal : normal) | sign);
}

SILO_INLINE uint16_t silo_f32_to_f16(float value) {
    uint32_t bits = silo_bits_f32(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    /* Adding 0.5 aligns the last bit of a subnormal f16 with the last bit of f32, so that the
     * addition rounds. */
    uint32_t subnormal = silo_bits_f32(silo_f32_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    return (uint16_t)((magnitude >= 0x47800000u ? special : finite) | sign);
}
#endif
