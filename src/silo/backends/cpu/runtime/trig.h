/* sin and cos of f32 without branches. The angle is reduced in f64 by three parts of pi / 2, the
   first two of 24 bits, so that their products with the quadrant are exact: 1.6 ulp for |x| <=
   2^28. Larger angles give NaN: no wrong number is passed off as right where the parts do not
   suffice. */

SILO_INLINE float silo_sincos_f32(float x, uint32_t quadrants) {
    double wide = (double)x;
    double shifted = wide * 0x1.45f306dc9c883p-1 + 0x1.8p52;
    double n = shifted - 0x1.8p52;
    double reduced = wide - n * 0x1.921fb4p+0;
    reduced = reduced - n * 0x1.4442dp-24;
    reduced = reduced - n * 0x1.8469898cc5170p-48;
    uint32_t quadrant = (uint32_t)silo_bits_f64(shifted) + quadrants;
    float r = (float)reduced;
    float s = r * r;
    float p = 0x1.7c3226p-19f;
    p = p * s - 0x1.a0595ep-13f;
    p = p * s + 0x1.111174p-7f;
    p = p * s - 0x1.555556p-3f;
    float sine = r + r * s * p;
    float q = -0x1.36147cp-22f;
    q = q * s + 0x1.a071b6p-16f;
    q = q * s - 0x1.6c175ep-10f;
    q = q * s + 0x1.555556p-5f;
    float cosine = (1.0f - 0.5f * s) + s * s * q;
    float y = quadrant & 1u ? cosine : sine;
    y = silo_f32_of_bits(silo_bits_f32(y) ^ ((quadrant & 2u) << 30));
    return __builtin_fabsf(x) <= 0x1p28f ? y : __builtin_nanf("");
}

SILO_INLINE float silo_sin_f32(float x) {
    float y = silo_sincos_f32(x, 0u);
    return x == 0.0f ? x : y;
}

SILO_INLINE float silo_cos_f32(float x) {
    return silo_sincos_f32(x, 1u);
}
