/* Floating point to integer: truncates toward zero, saturates out of range, and turns NaN into 0.
 * NaN is handled by a mask: with a conditional expression, gcc 12 turns (float)(int)x into a
 * rounding of x, which keeps the sign of a zero. */

SILO_INLINE int32_t silo_f32_to_i32(float x) {
    float clamped = x > -0x1p31f ? x : -0x1p31f;
    clamped = clamped < 0x1.fffffep30f ? clamped : 0x1.fffffep30f;
    int32_t result = x >= 0x1p31f ? 2147483647 : (int32_t)clamped;
    return result & -(int32_t)(x == x);
}

SILO_INLINE int64_t silo_f32_to_i64(float x) {
    float clamped = x > -0x1p63f ? x : -0x1p63f;
    clamped = clamped < 0x1.fffffep62f ? clamped : 0x1.fffffep62f;
    int64_t result = x >= 0x1p63f ? 9223372036854775807 : (int64_t)clamped;
    return result & -(int64_t)(x == x);
}

SILO_INLINE uint32_t silo_f32_to_u32(float x) {
    float clamped = x > 0.0f ? x : 0.0f;
    clamped = clamped < 0x1.fffffep31f ? clamped : 0x1.fffffep31f;
    return x >= 0x1p32f ? 0xffffffffu : (uint32_t)clamped;
}

SILO_INLINE uint64_t silo_f32_to_u64(float x) {
    float clamped = x > 0.0f ? x : 0.0f;
    clamped = clamped < 0x1.fffffep63f ? clamped : 0x1.fffffep63f;
    return x >= 0x1p64f ? ~(uint64_t)0 : (uint64_t)clamped;
}

SILO_INLINE int32_t silo_f64_to_i32(double x) {
    double clamped = x > -0x1p31 ? x : -0x1p31;
    clamped = clamped < 2147483647.0 ? clamped : 2147483647.0;
    int32_t result = (int32_t)clamped;
    return result & -(int32_t)(x == x);
}

SILO_INLINE int64_t silo_f64_to_i64(double x) {
    double clamped = x > -0x1p63 ? x : -0x1p63;
    clamped = clamped < 0x1.fffffffffffffp62 ? clamped : 0x1.fffffffffffffp62;
    int64_t result = x >= 0x1p63 ? 9223372036854775807 : (int64_t)clamped;
    return result & -(int64_t)(x == x);
}

SILO_INLINE uint32_t silo_f64_to_u32(double x) {
    double clamped = x > 0.0 ? x : 0.0;
    clamped = clamped < 4294967295.0 ? clamped : 4294967295.0;
    return (uint32_t)clamped;
}

SILO_INLINE uint64_t silo_f64_to_u64(double x) {
    double clamped = x > 0.0 ? x : 0.0;
    clamped = clamped < 0x1.fffffffffffffp63 ? clamped : 0x1.fffffffffffffp63;
    return x >= 0x1p64 ? ~(uint64_t)0 : (uint64_t)clamped;
}

SILO_INLINE int32_t silo_clamp_i32(int32_t x, int32_t low, int32_t high) {
    int32_t above = x < low ? low : x;
    return above > high ? high : above;
}

SILO_INLINE uint32_t silo_cap_u32(uint32_t x, uint32_t high) {
    return x > high ? high : x;
}
