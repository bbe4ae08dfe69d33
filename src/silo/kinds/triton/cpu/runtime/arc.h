/* asin, acos, atan and atan2 of f32 without branches. */

/* asin(s) for s in [0, 1/2], z its square. */
SILO_INLINE float silo_asin_near_f32(float s, float z) {
    float p = 0x1.34b224p-5f;
    p = p * z + 0x1.d5d14cp-7f;
    p = p * z + 0x1.04c6dap-5f;
    p = p * z + 0x1.6ca808p-5f;
    p = p * z + 0x1.3338acp-4f;
    p = p * z + 0x1.55554cp-3f;
    return s + s * z * p;
}

/* Beyond 1/2, asin(a) = pi / 2 - 2 asin(sqrt((1 - a) / 2)). */
SILO_INLINE float silo_asin_f32(float x) {
    float a = __builtin_fabsf(x);
    float z = a > 0.5f ? (1.0f - a) * 0.5f : a * a;
    float p = silo_asin_near_f32(a > 0.5f ? __builtin_sqrtf(z) : a, z);
    float far = (0x1.921fb6p+0f - 2.0f * p) - 0x1.777a5cp-25f;
    return __builtin_copysignf(a > 0.5f ? far : p, x);
}

SILO_INLINE float silo_acos_f32(float x) {
    float a = __builtin_fabsf(x);
    float z = a > 0.5f ? (1.0f - a) * 0.5f : a * a;
    float p = silo_asin_near_f32(a > 0.5f ? __builtin_sqrtf(z) : a, z);
    float far = x > 0.0f ? 2.0f * p : 0x1.921fb6p+1f - (2.0f * p + 0x1.777a5cp-24f);
    float near = 0x1.921fb6p+0f - (__builtin_copysignf(p, x) + 0x1.777a5cp-25f);
    return a > 0.5f ? far : near;
}

/* atan(t) for t in [0, 1]. */
SILO_INLINE float silo_atan_near_f32(float t) {
    float z = t * t;
    float p = -0x1.d32dacp-10f;
    p = p * z + 0x1.6410e4p-7f;
    p = p * z - 0x1.fd6fbcp-6f;
    p = p * z + 0x1.da24cap-5f;
    p = p * z - 0x1.580814p-4f;
    p = p * z + 0x1.c08c1ap-4f;
    p = p * z - 0x1.242084p-3f;
    p = p * z + 0x1.9991e4p-3f;
    p = p * z - 0x1.55553ep-2f;
    return t + t * z * p;
}

SILO_INLINE float silo_atan_f32(float x) {
    float a = __builtin_fabsf(x);
    float p = silo_atan_near_f32(a > 1.0f ? 1.0f / a : a);
    float far = 0x1.921fb6p+0f - (p + 0x1.777a5cp-25f);
    return __builtin_copysignf(a > 1.0f ? far : p, x);
}

SILO_INLINE float silo_atan2_f32(float y, float x) {
    float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
    float small = a < b ? a : b, large = a < b ? b : a;
    float ratio =
        small == large ? 1.0f : small / large; /* the ratio of two infinities counts as 1 */
    float p = silo_atan_near_f32(large == 0.0f ? 0.0f : ratio);
    p = a < b ? 0x1.921fb6p+0f - (p + 0x1.777a5cp-25f) : p;
    p = silo_bits_f32(x) >> 31 ? 0x1.921fb6p+1f - (p + 0x1.777a5cp-24f) : p;
    return x != x || y != y ? x + y : __builtin_copysignf(p, y);
}
