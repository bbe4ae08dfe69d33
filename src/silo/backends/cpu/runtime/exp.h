/* exp, exp2 and expm1 of f32 without branches or tables. x = n ln2 + r with |r| <= ln2 / 2 and a
   polynomial in r. Errors over all f32, subnormal results included: exp 1.1 ulp, exp2 1.1 ulp,
   expm1 1.6 ulp. */

/* 2^n for the integer n that was added to 1.5 * 2^23, in two factors so that subnormal results
 * round once. */
SILO_INLINE float silo_scale_f32(float y, float shifted) {
    int32_t n = (int32_t)(silo_bits_f32(shifted) - 0x4b400000u);
    int32_t half = n >> 1;
    float first = silo_f32_of_bits(((uint32_t)half + 127u) << 23);
    float second = silo_f32_of_bits(((uint32_t)n - (uint32_t)half + 127u) << 23);
    return y * first * second;
}

/* e^r - 1 - r, divided by r^2. */
SILO_INLINE float silo_exp_tail_f32(float r) {
    float p = 0x1.6a4da6p-10f;
    p = p * r + 0x1.123e5ap-7f;
    p = p * r + 0x1.5558b8p-5f;
    p = p * r + 0x1.55548cp-3f;
    return p * r + 0x1.fffffcp-2f;
}

SILO_INLINE float silo_exp_f32(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -104.0f ? -104.0f : c;
    float shifted = c * 0x1.715476p+0f + 0x1.8p23f;
    float n = shifted - 0x1.8p23f;
    float r = c - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    float y = 1.0f + (r + r * r * silo_exp_tail_f32(r));
    return silo_scale_f32(y, shifted);
}

SILO_INLINE float silo_exp2_f32(float x) {
    float c = x > 129.0f ? 129.0f : x;
    c = c < -151.0f ? -151.0f : c;
    float shifted = c + 0x1.8p23f;
    float r = c - (shifted - 0x1.8p23f);
    float q = 0x1.417a36p-13f;
    q = q * r + 0x1.5f0f74p-10f;
    q = q * r + 0x1.3b2ddap-7f;
    q = q * r + 0x1.c6af72p-5f;
    q = q * r + 0x1.ebfbdcp-3f;
    q = q * r + 0x1.62e430p-1f;
    return silo_scale_f32(1.0f + r * q, shifted);
}

SILO_INLINE float silo_expm1_f32(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -20.0f ? -20.0f : c;
    float shifted = c * 0x1.715476p+0f + 0x1.8p23f;
    float n = shifted - 0x1.8p23f;
    float r = c - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    float e = r + r * r * silo_exp_tail_f32(r);
    uint32_t exponent = silo_bits_f32(shifted) - 0x4b400000u;
    uint32_t over = n > 127.0f ? 1u : 0u;
    float scale = silo_f32_of_bits((exponent - over + 127u) << 23);
    float y = (e * scale + (scale - 1.0f)) * (over ? 2.0f : 1.0f);
    return x == 0.0f ? x : y;
}
