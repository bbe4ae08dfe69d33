/* erfc of f32, computed in f64 and rounded once: exp(-a^2) times a polynomial in (a - 3) / (a + 3),
 * divided by 1 + 2a. 0.51 ulp. */

SILO_INLINE float silo_erfc_f32(float x) {
    double a = (double)__builtin_fabsf(x);
    a = a > 10.25 ? 10.25 : a;
    double q = (a - 3.0) / (a + 3.0);
    double p = 0x1.364a35a610a8bp-15;
    p = p * q - 0x1.76eb9e7a375c7p-13;
    p = p * q - 0x1.83e00ce9bc5bbp-11;
    p = p * q + 0x1.fe9e554568e41p-10;
    p = p * q + 0x1.4b57db22512d6p-9;
    p = p * q - 0x1.85bb1e2737d1ap-6;
    p = p * q + 0x1.17c87ed9c2545p-4;
    p = p * q - 0x1.e889625eb8631p-4;
    p = p * q + 0x1.0983829b19144p-3;
    p = p * q - 0x1.85a18ca1a787ep-5;
    p = p * q - 0x1.15c085733edb5p-3;
    p = p * q + 0x1.40c522dad047dp+0;
    double y = silo_exp2_wide(a * a * -0x1.71547652b82fep+0) * p / (1.0 + 2.0 * a);
    return (float)(x < 0.0f ? 2.0 - y : y);
}
