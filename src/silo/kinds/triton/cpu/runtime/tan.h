/* tan of f32 for every angle, computed in f64 and rounded once: 0.51 ulp. */

SILO_INLINE float silo_tan_f32(float x) {
    uint32_t quarter;
    double r = silo_reduced_f64(x, &quarter);
    double s = r * r;
    double p = 0x1.6cb76945b8c66p-19;
    p = p * s - 0x1.a00ee898e2913p-13;
    p = p * s + 0x1.1111074c68d7cp-7;
    p = p * s - 0x1.555555494ab87p-3;
    p = r * (p * s + 0x1.fffffffff67fcp-1);
    double q = -0x1.23c5cd9a4e3cdp-22;
    q = q * s + 0x1.a00e96e386631p-16;
    q = q * s - 0x1.6c16b2d4d7a87p-10;
    q = q * s + 0x1.5555554478347p-5;
    q = q * s - 0x1.ffffffffe37bdp-2;
    q = q * s + 0x1.ffffffffffe0cp-1;
    double y = quarter & 1u ? -q / p : p / q;
    return x == 0.0f ? x : (float)y;
}
