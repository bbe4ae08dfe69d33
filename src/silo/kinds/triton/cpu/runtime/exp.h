/* exp, exp2 and expm1 of f32 without branches or tables. x = n ln2 + r with |r| <= ln2 / 2 and a
   polynomial in r. Errors over all f32, subnormal results included: exp 1.2 ulp, exp2 1.1 ulp,
   expm1 1.6 ulp. */

/* Added to n, this number gives a float whose last bits are n + 254. 254 is twice the bias of an
 * exponent, because the scale 2^n is split into two factors. */
#define SILO_SHIFT_F32 (0x1.8p23f + 254.0f)

/* y * 2^(n + more) for the n in shifted = n + SILO_SHIFT_F32, in two factors so that subnormal
 * results are rounded once. */
SILO_INLINE float silo_scale_f32(float y, float shifted, uint32_t more) {
    uint32_t both = silo_bits_f32(shifted) + more;
    uint32_t half = both >> 1;
    return y * silo_f32_of_bits(half << 23) * silo_f32_of_bits((both - half) << 23);
}

/* e^r - 1 - r, divided by r^2. */
SILO_INLINE float silo_exp_tail_f32(float r) {
    float p = 0x1.6a4da6p-10f;
    p = p * r + 0x1.123e5ap-7f;
    p = p * r + 0x1.5558b8p-5f;
    p = p * r + 0x1.55548cp-3f;
    return p * r + 0x1.fffffcp-2f;
}

/* Below the first argument the result is 0, above the second it is infinite. */
#define SILO_EXP_LOW (-104.0f)
#define SILO_EXP_HIGH 90.0f
#define SILO_EXP2_LOW (-151.0f)
#define SILO_EXP2_HIGH 129.0f

SILO_INLINE float silo_exp_limited_f32(float x, float low, float high) {
    float c = x > high ? high : x;
    return c < low ? low : c;
}

/* e^c / 2^n, where *shifted = n + SILO_SHIFT_F32; c is NaN or in SILO_EXP_LOW .. SILO_EXP_HIGH. */
SILO_INLINE float silo_exp_start_f32(float c, float *shifted) {
    *shifted = c * 0x1.715476p+0f + SILO_SHIFT_F32;
    float n = *shifted - SILO_SHIFT_F32;
    float r = c - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    return 1.0f + r * (1.0f + r * silo_exp_tail_f32(r));
}

/* e^x * 2^more for a small `more`; a negative one is passed as its two's complement. */
SILO_INLINE float silo_exp_times_f32(float x, uint32_t more) {
    float shifted;
    float y = silo_exp_start_f32(silo_exp_limited_f32(x, SILO_EXP_LOW, SILO_EXP_HIGH), &shifted);
    return silo_scale_f32(y, shifted, more);
}

SILO_INLINE float silo_exp_f32(float x) {
    return silo_exp_times_f32(x, 0u);
}

/* 2^c / 2^n, where *shifted = n + SILO_SHIFT_F32; c is NaN or in SILO_EXP2_LOW .. SILO_EXP2_HIGH.
 */
SILO_INLINE float silo_exp2_start_f32(float c, float *shifted) {
    *shifted = c + SILO_SHIFT_F32;
    float r = c - (*shifted - SILO_SHIFT_F32);
    float q = 0x1.417a36p-13f;
    q = q * r + 0x1.5f0f74p-10f;
    q = q * r + 0x1.3b2ddap-7f;
    q = q * r + 0x1.c6af72p-5f;
    q = q * r + 0x1.ebfbdcp-3f;
    q = q * r + 0x1.62e430p-1f;
    return 1.0f + r * q;
}

SILO_INLINE float silo_exp2_f32(float x) {
    float shifted;
    float y = silo_exp2_start_f32(silo_exp_limited_f32(x, SILO_EXP2_LOW, SILO_EXP2_HIGH), &shifted);
    return silo_scale_f32(y, shifted, 0u);
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

#if SILO_VECTOR_BITS == 512
/* exp and exp2 of the sixteen lanes of a vector, with the CPU's instruction that multiplies by a
 * power of two and rounds once: the results have the same bits as those of the functions above. */
typedef float silo_exp_lanes __attribute__((vector_size(64), may_alias));

#ifdef __AVX512F__
/* Limits each element to low .. high, and keeps NaN. The intrinsics are for gcc, which makes three
 * comparisons and two blends of the loop. */
#ifdef __clang__
#define SILO_EXP_LIMIT(x, low, high)                                                               \
    _Pragma("omp simd") for (int32_t i = 0; i < 16; i++) {                                         \
        float c = ((float *)&x)[i] > (high) ? (high) : ((float *)&x)[i];                           \
        ((float *)&x)[i] = c < (low) ? (low) : c;                                                  \
    }
#else
#define SILO_EXP_EACH(value) ((value) - (silo_exp_lanes){0})
#define SILO_EXP_LIMIT(x, low, high)                                                               \
    x = __builtin_ia32_minps512_mask(SILO_EXP_EACH(high), x, x, (short)-1, 4);                     \
    x = __builtin_ia32_maxps512_mask(SILO_EXP_EACH(low), x, x, (short)-1, 4)
#endif
#define SILO_EXP_LANES(name, low, high)                                                            \
    SILO_INLINE void silo_##name##_lanes_f32(silo_exp_lanes *to, silo_exp_lanes const *from) {     \
        silo_exp_lanes x = *from, y, n;                                                            \
        SILO_EXP_LIMIT(x, low, high);                                                              \
        _Pragma("omp simd") for (int32_t i = 0; i < 16; i++) {                                     \
            float shifted;                                                                         \
            ((float *)&y)[i] = silo_##name##_start_f32(((float *)&x)[i], &shifted);                \
            ((float *)&n)[i] = shifted - SILO_SHIFT_F32;                                           \
        }                                                                                          \
        *to = __builtin_ia32_scalefps512_mask(y, n, y, (short)-1, 4);                              \
    }
#else
#define SILO_EXP_LANES(name, low, high)                                                            \
    SILO_INLINE void silo_##name##_lanes_f32(silo_exp_lanes *to, silo_exp_lanes const *from) {     \
        _Pragma("omp simd") for (int32_t i = 0; i < 16; i++) {                                     \
            ((float *)to)[i] = silo_##name##_f32(((float const *)from)[i]);                        \
        }                                                                                          \
    }
#endif
SILO_EXP_LANES(exp, SILO_EXP_LOW, SILO_EXP_HIGH)
SILO_EXP_LANES(exp2, SILO_EXP2_LOW, SILO_EXP2_HIGH)
#endif
