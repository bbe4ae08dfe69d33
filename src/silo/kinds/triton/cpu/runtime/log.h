/* log, log2 and log1p of f32 without branches or tables. x = 2^k (1 + f) with 1 + f in [sqrt(1/2),
   sqrt(2)). Errors over all positive f32, subnormals included: log 1.0 ulp, log2 1.2 ulp (2.1
   without fused multiply-add), log1p 1.6 ulp. */

/* log(1 + f) - f. */
SILO_INLINE float silo_log_tail_f32(float f) {
    float p = 0x1.14760cp-4f;
    p = p * f - 0x1.de02bcp-4f;
    p = p * f + 0x1.e6bf3ap-4f;
    p = p * f - 0x1.fc2886p-4f;
    p = p * f + 0x1.233ba8p-3f;
    p = p * f - 0x1.555c46p-3f;
    p = p * f + 0x1.99a476p-3f;
    p = p * f - 0x1.000006p-2f;
    p = p * f + 0x1.555548p-2f;
    float square = f * f;
    return square * f * p - 0.5f * square;
}

/* x scaled to a normal number: if x was subnormal, the exponent of the result is 25 too large. */
SILO_INLINE float silo_log_normal_f32(float x) {
    return x < 0x1p-126f ? x * 0x1p25f : x;
}

SILO_INLINE int32_t silo_log_exponent_f32(float normal) {
    return (int32_t)(silo_bits_f32(normal) - 0x3f3504f3u) >> 23;
}

SILO_INLINE float silo_log_fraction_f32(float normal, int32_t exponent) {
    return silo_f32_of_bits(silo_bits_f32(normal) - ((uint32_t)exponent << 23)) - 1.0f;
}

/* y for 0 < x < inf; inf for inf, -inf for zeros, NaN for all other x. */
SILO_INLINE float silo_log_special_f32(float x, float y) {
    float special = x > 0.0f ? x : __builtin_nanf("");
    special = x == 0.0f ? -__builtin_inff() : special;
    return x > 0.0f && x < __builtin_inff() ? y : special;
}

SILO_INLINE float silo_log_f32(float x) {
    float normal = silo_log_normal_f32(x);
    int32_t exponent = silo_log_exponent_f32(normal);
    float f = silo_log_fraction_f32(normal, exponent);
    float k = (float)exponent - (x < 0x1p-126f ? 25.0f : 0.0f);
    float y = k * 0x1.62e4p-1f + (f + (silo_log_tail_f32(f) + k * 0x1.7f7d1cp-20f));
    return silo_log_special_f32(x, y);
}

SILO_INLINE float silo_log2_f32(float x) {
    float normal = silo_log_normal_f32(x);
    int32_t exponent = silo_log_exponent_f32(normal);
    float f = silo_log_fraction_f32(normal, exponent);
    float k = (float)exponent - (x < 0x1p-126f ? 25.0f : 0.0f);
    /* log2(e) = 0x1.715p0 + 0x1.d94ae0p-14 - ...; the product of the two leading parts is exact. */
    float high = silo_f32_of_bits(silo_bits_f32(f) & 0xfffff000u);
    float low = (f - high) + silo_log_tail_f32(f);
    float y = low * 0x1.715476p+0f + high * 0x1.1d94aep-14f;
    y = k + (high * 0x1.715p+0f + y);
    return silo_log_special_f32(x, y);
}

SILO_INLINE float silo_log1p_f32(float x) {
    float u = 1.0f + x;
    float lost = (x - (u - 1.0f)) / u;
    lost = lost == lost ? lost : 0.0f; /* `lost` is NaN if u is 0 or infinite */
    return __builtin_copysignf(silo_log_f32(u) + lost, x);
}
