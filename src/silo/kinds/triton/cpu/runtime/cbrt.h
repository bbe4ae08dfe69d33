/* The cube root of f32, computed in f64 and rounded once: 0.51 ulp. Dividing the exponent by three
 * gives an estimate within 3 %; each of two steps of Halley's method triples the correct digits. */

SILO_INLINE float silo_cbrt_f32(float x) {
    double d = (double)__builtin_fabsf(x);
    uint32_t high = (uint32_t)(silo_bits_f64(d) >> 32);
    double t = silo_f64_of_bits((uint64_t)(high / 3u + 0x2a9f762bu) << 32);
    for (int step = 0; step < 2; step++) {
        double cube = t * t * t;
        t = t * ((cube + d + d) / (cube + cube + d));
    }
    float y = __builtin_copysignf((float)t, x);
    return x == 0.0f || !(d < __builtin_inf()) ? x : y;
}
