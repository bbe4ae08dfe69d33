/* sin and cos of pi times x. The reduction is exact. */

/* pi times the difference between x and the nearest multiple of 1/2; `quarter` is the number of
 * halves in that multiple, modulo 2^32. Large x count as an even number. */
SILO_INLINE float silo_half_turns_f32(float x, uint32_t *quarter) {
    double c = __builtin_fabsf(x) < 0x1p24f ? (double)x : (double)(x - x);
    double shifted = 2.0 * c + 0x1.8p52;
    *quarter = (uint32_t)silo_bits_f64(shifted);
    return (float)((c - 0.5 * (shifted - 0x1.8p52)) * 0x1.921fb54442d18p+1);
}

SILO_INLINE float silo_sinpi_f32(float x) {
    uint32_t quarter;
    float r = silo_half_turns_f32(x, &quarter);
    float y = silo_wave_f32(r, quarter);
    return y == 0.0f ? __builtin_copysignf(y, x) : y;
}

SILO_INLINE float silo_cospi_f32(float x) {
    uint32_t quarter;
    float r = silo_half_turns_f32(x, &quarter);
    return silo_wave_f32(r, quarter + 1u) + 0.0f;
}

SILO_INLINE double silo_quarters_f64(double x, double *quarter) {
    double turn = x - 2.0 * __builtin_rint(x * 0.5);
    double n = __builtin_rint(2.0 * turn);
    *quarter = n;
    return (turn - 0.5 * n) * 0x1.921fb54442d18p+1;
}

SILO_INLINE double silo_sinpi_f64(double x) {
    double quarter;
    double angle = silo_quarters_f64(x, &quarter);
    double size = __builtin_fabs(quarter) == 1.0 ? cos(angle) : sin(angle);
    double y = quarter == -1.0 || __builtin_fabs(quarter) == 2.0 ? -size : size;
    return y == 0.0 ? __builtin_copysign(y, x) : y;
}

SILO_INLINE double silo_cospi_f64(double x) {
    double quarter;
    double angle = silo_quarters_f64(x, &quarter);
    double size = __builtin_fabs(quarter) == 1.0 ? sin(angle) : cos(angle);
    double y = quarter == 1.0 || __builtin_fabs(quarter) == 2.0 ? -size : size;
    return y == 0.0 ? 0.0 : y;
}
