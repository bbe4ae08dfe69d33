/* Arithmetic and conversions with the rounding in their names: rn to nearest even, rz toward zero,
 * rd down, ru up. Operations on f32 are exact in f64 or rounded to odd there, and then rounded once
 * more; the compiler cannot fuse them with other operations. */

SILO_INLINE float silo_f64_to_f32_rn(double value) {
    return (float)value;
}

SILO_INLINE float silo_f64_to_f32_rz(double value) {
    return silo_f64_to_f32_rtz(value);
}

/* If the nearest number is above the value, the result is the neighbour below that number; the
 * neighbour below -0 is the negative number nearest to zero. */
SILO_INLINE float silo_f64_to_f32_rd(double value) {
    float near = (float)value;
    uint32_t bits = silo_bits_f32(near);
    uint32_t below = bits & 0x80000000u ? bits + 1u : bits - 1u;
    return silo_f32_of_bits((double)near > value ? below : bits);
}

SILO_INLINE float silo_f64_to_f32_ru(double value) {
    float near = (float)value;
    uint32_t bits = silo_bits_f32(near);
    uint32_t above = bits & 0x80000000u ? bits - 1u : bits + 1u;
    return silo_f32_of_bits((double)near < value ? above : bits);
}

/* a * b + c rounded to odd. A zero result has the sign of rounding down: negative unless both terms
 * are positive zeros. */
SILO_INLINE double silo_fma_odd_rd(double a, double b, double c) {
    double sum = silo_fma_odd(a, b, c);
    uint64_t signs = silo_bits_f64(a * b) | silo_bits_f64(c);
    return sum == 0.0 ? (signs == 0u ? 0.0 : -0.0) : sum;
}

SILO_INLINE double silo_fma_odd_rz(double a, double b, double c) {
    return silo_fma_odd(a, b, c);
}

SILO_INLINE double silo_fma_odd_ru(double a, double b, double c) {
    return silo_fma_odd(a, b, c);
}

SILO_INLINE double silo_fma_odd_rn(double a, double b, double c) {
    return silo_fma_odd(a, b, c);
}

/* The sum of the two halves of a 64-bit integer, rounded to odd. */
SILO_INLINE double silo_odd_of_i64(int64_t x) {
    return silo_fma_odd((double)(x >> 32), 0x1p32, (double)(uint32_t)x);
}

SILO_INLINE double silo_odd_of_u64(uint64_t x) {
    return silo_fma_odd((double)(x >> 32), 0x1p32, (double)(uint32_t)x);
}

/* high * 2^32 + low in f64, rounded to nearest. In the functions below, `error` is the exact value
 * minus this rounded one. */
SILO_INLINE double silo_halves_rn(double high, double low) {
    return high * 0x1p32 + low;
}

SILO_INLINE double silo_halves_step(double high, double low, double away) {
    double near = high * 0x1p32 + low;
    double error = low - (near - high * 0x1p32);
    uint64_t bits = silo_bits_f64(near);
    uint64_t inward = bits - 1u, outward = bits + 1u;
    uint64_t stepped = (near > 0.0) == (away > 0.0) ? outward : inward;
    return silo_f64_of_bits(error * away > 0.0 ? stepped : bits);
}

SILO_INLINE double silo_halves_rd(double high, double low) {
    return silo_halves_step(high, low, -1.0);
}

SILO_INLINE double silo_halves_ru(double high, double low) {
    return silo_halves_step(high, low, 1.0);
}

SILO_INLINE double silo_halves_rz(double high, double low) {
    return silo_halves_step(high, low, high < 0.0 ? 1.0 : -1.0);
}

#define SILO_DIRECTED(mode)                                                                        \
    SILO_INLINE float silo_add_##mode##_f32(float a, float b) {                                    \
        return silo_f64_to_f32_##mode(silo_fma_odd_##mode((double)a, 1.0, (double)b));             \
    }                                                                                              \
    SILO_INLINE float silo_sub_##mode##_f32(float a, float b) {                                    \
        return silo_f64_to_f32_##mode(silo_fma_odd_##mode((double)a, 1.0, -(double)b));            \
    }                                                                                              \
    SILO_INLINE float silo_mul_##mode##_f32(float a, float b) {                                    \
        return silo_f64_to_f32_##mode((double)a * (double)b);                                      \
    }                                                                                              \
    SILO_INLINE float silo_fma_##mode##_f32(float a, float b, float c) {                           \
        return silo_f64_to_f32_##mode(silo_fma_odd_##mode((double)a, (double)b, (double)c));       \
    }                                                                                              \
    SILO_INLINE float silo_div_##mode##_f32(float a, float b) {                                    \
        return silo_f64_to_f32_##mode((double)a / (double)b);                                      \
    }                                                                                              \
    SILO_INLINE float silo_rcp_##mode##_f32(float a) {                                             \
        return silo_f64_to_f32_##mode(1.0 / (double)a);                                            \
    }                                                                                              \
    SILO_INLINE float silo_sqrt_##mode##_f32(float a) {                                            \
        return silo_f64_to_f32_##mode(__builtin_sqrt((double)a));                                  \
    }                                                                                              \
    SILO_INLINE float silo_i32_to_f32_##mode(int32_t x) {                                          \
        return silo_f64_to_f32_##mode((double)x);                                                  \
    }                                                                                              \
    SILO_INLINE float silo_u32_to_f32_##mode(uint32_t x) {                                         \
        return silo_f64_to_f32_##mode((double)x);                                                  \
    }                                                                                              \
    SILO_INLINE float silo_i64_to_f32_##mode(int64_t x) {                                          \
        return silo_f64_to_f32_##mode(silo_odd_of_i64(x));                                         \
    }                                                                                              \
    SILO_INLINE float silo_u64_to_f32_##mode(uint64_t x) {                                         \
        return silo_f64_to_f32_##mode(silo_odd_of_u64(x));                                         \
    }                                                                                              \
    SILO_INLINE double silo_i64_to_f64_##mode(int64_t x) {                                         \
        return silo_halves_##mode((double)(x >> 32), (double)(uint32_t)x);                         \
    }                                                                                              \
    SILO_INLINE double silo_u64_to_f64_##mode(uint64_t x) {                                        \
        return silo_halves_##mode((double)(x >> 32), (double)(uint32_t)x);                         \
    }
SILO_DIRECTED(rn)
SILO_DIRECTED(rz)
SILO_DIRECTED(rd)
SILO_DIRECTED(ru)

SILO_INLINE double silo_i32_to_f64_rn(int32_t x) {
    return (double)x;
}

SILO_INLINE double silo_u32_to_f64_rn(uint32_t x) {
    return (double)x;
}

/* In f64, the errors of the division and the root are far smaller than the distance between any
 * exact result and the nearest halfway point between two f32 numbers, so the result is rounded as
 * the exact one would be. */
SILO_INLINE float silo_rsqrt_rn_f32(float x) {
    return (float)(1.0 / __builtin_sqrt((double)x));
}

/* f64 arithmetic, rounded to nearest. The compiler cannot fuse operations on volatile values. */
SILO_INLINE double silo_add_rn_f64(double a, double b) {
    volatile double left = a, right = b;
    return left + right;
}

SILO_INLINE double silo_sub_rn_f64(double a, double b) {
    volatile double left = a, right = b;
    return left - right;
}

SILO_INLINE double silo_mul_rn_f64(double a, double b) {
    volatile double product = a * b;
    return product;
}

SILO_INLINE double silo_div_rn_f64(double a, double b) {
    return a / b;
}

SILO_INLINE double silo_rcp_rn_f64(double a) {
    return 1.0 / a;
}

SILO_INLINE double silo_sqrt_rn_f64(double a) {
    return __builtin_sqrt(a);
}
