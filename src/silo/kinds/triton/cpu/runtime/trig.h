/* sin and cosine of f32 without branches, for every angle: 1.6 ulp. The angle divided by 2 pi is a
 * sum of products of the angle with parts of 1 / (2 pi); parts of 29 bits make these products exact
 * in f64. Whole turns are dropped from each product separately, so large angles lose no accuracy.
 */

/* The angle minus its nearest multiple of pi / 2; `quarter` is that multiple, modulo 4, plus a
 * constant multiple of 4. */
SILO_INLINE double silo_reduced_f64(float x, uint32_t *quarter) {
    double wide = (double)x;
    int far = __builtin_fabsf(x) >= 0x1p82f;
    double a = wide * (far ? 0x1.4fe13a8p-61 : 0x1.45f306cp-3);
    double b = wide * (far ? 0x1.f47d4d3p-88 : 0x1.c9c882ap-31);
    double c = wide * (far ? 0x1.dc0db62p-118 : 0x1.4fe13a8p-61);
    double rest = wide * (far ? 0x1.2b3278872083ep-147 : 0x1.f47d4d377036dp-88);
    a = a - __builtin_rint(a);
    b = b - __builtin_rint(b);
    c = c - __builtin_rint(c);
    double shifted = 4.0 * (a + b + c + rest) + 0x1.8p52;
    double n = shifted - 0x1.8p52;
    *quarter = (uint32_t)silo_bits_f64(shifted);
    /* The terms are added from the largest to the smallest, so that terms that cancel each other
     * cancel exactly. */
    return (a - 0.25 * n + b + c + rest) * 0x1.921fb54442d18p+2;
}

/* The sine of an angle of at most pi / 4; for an odd `quarter`, its cosine. */
SILO_INLINE float silo_wave_f32(float r, uint32_t quarter) {
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
    float y = quarter & 1u ? cosine : sine;
    return silo_f32_of_bits(silo_bits_f32(y) ^ ((quarter & 2u) << 30));
}

SILO_INLINE float silo_sin_f32(float x) {
    uint32_t quarter;
    float r = (float)silo_reduced_f64(x, &quarter);
    return x == 0.0f ? x : silo_wave_f32(r, quarter);
}

SILO_INLINE float silo_cos_f32(float x) {
    uint32_t quarter;
    float r = (float)silo_reduced_f64(x, &quarter);
    return silo_wave_f32(r, quarter + 1u);
}
