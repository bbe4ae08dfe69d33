/* pow of f32, computed in f64 and rounded once: 0.51 ulp. Special values follow C's Annex F. */

SILO_INLINE float silo_pow_f32(float x, float y) {
    float a = __builtin_fabsf(x);
    double t = (double)y * silo_log2_wide((double)a);
    float z = (float)silo_exp2_wide(silo_clamp_wide(t));
    float end = (a == 0.0f) == (y < 0.0f) ? __builtin_inff() : 0.0f;
    z = a == 0.0f || a == __builtin_inff() ? end : z;
    z = a == 1.0f ? 1.0f : z; /* 1 to the power of infinity is 1 */
    float half = y * 0.5f;
    int32_t is_whole = __builtin_rintf(y) == y;
    uint32_t sign = is_whole && __builtin_rintf(half) != half ? silo_bits_f32(x) & 0x80000000u : 0u;
    z = silo_f32_of_bits(silo_bits_f32(z) | sign);
    z = x < 0.0f && !is_whole && a < __builtin_inff() ? __builtin_nanf("") : z;
    z = x != x || y != y ? x + y : z;
    return y == 0.0f || x == 1.0f ? 1.0f : z;
}
