/* erf of f32 without branches: an odd polynomial near zero, and 1 - exp of a polynomial elsewhere;
 * 1.6 ulp. */

SILO_INLINE float silo_erf_f32(float x) {
    float a = __builtin_fabsf(x);
    a = a > 4.0f ? 4.0f : a;
    float s = a * a;
    float p = 0x1.4f9a32p-14f;
    p = p * s - 0x1.a61504p-11f;
    p = p * s + 0x1.544ad6p-8f;
    p = p * s - 0x1.b80122p-6f;
    p = p * s + 0x1.ce2d64p-4f;
    p = p * s - 0x1.812740p-2f;
    p = p * s + 0x1.06eba8p-3f;
    float near = a + a * p;
    float g = 0x1.78e02cp-17f;
    g = g * a - 0x1.527e46p-12f;
    g = g * a + 0x1.dd6e36p-9f;
    g = g * a - 0x1.8551d2p-6f;
    g = g * a + 0x1.b3259cp-4f;
    g = g * a + 0x1.45328ap-1f;
    g = g * a + 0x1.20ef1cp+0f;
    float far = 1.0f - silo_exp_f32(-a * g);
    return __builtin_copysignf(a < 0.921875f ? near : far, x);
}
