/* Integer operations that C leaves undefined for some operands, with the results of a GPU: x / 0 is
 * -1 (all ones), x % 0 is x, MIN / -1 is MIN, MIN % -1 is 0, and a shift by the width or more gives
 * 0 (for an arithmetic shift, the sign). Narrower types use the 32-bit forms and truncate. */

SILO_INLINE int32_t silo_divsi_i32(int32_t a, int32_t b) {
    int32_t safe = b == 0 || b == -1 ? 1 : b;
    int32_t quotient = a / safe;
    quotient = b == -1 ? (int32_t)(0u - (uint32_t)a) : quotient;
    return b == 0 ? -1 : quotient;
}

SILO_INLINE int32_t silo_remsi_i32(int32_t a, int32_t b) {
    int32_t safe = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : a % safe;
}

/* Division and remainder by a divisor that many elements share: they need no division for each
 * element, and vectorise. `reciprocal` is 1 / b in double. |a| + 1/2 is exact; its product with the
 * reciprocal has an error below 2^-19 / |b|, and the exact quotient of |a| + 1/2 differs from every
 * integer by at least (1/2) / |b|, so the integer part is right. */
SILO_INLINE double silo_reciprocal_i32(int32_t b) {
    return 1.0 / (double)(b == 0 || b == -1 ? 1 : b);
}

SILO_INLINE int32_t silo_divsi_by_i32(int32_t a, int32_t b, double reciprocal) {
    int32_t quotient = (int32_t)(((double)a + (a < 0 ? -0.5 : 0.5)) * reciprocal);
    quotient = b == -1 ? (int32_t)(0u - (uint32_t)a) : quotient;
    return b == 0 ? -1 : quotient;
}

SILO_INLINE int32_t silo_remsi_by_i32(int32_t a, int32_t b, double reciprocal) {
    uint32_t product = (uint32_t)silo_divsi_by_i32(a, b, reciprocal) * (uint32_t)b;
    return b == 0 ? a : (int32_t)((uint32_t)a - product);
}

SILO_INLINE uint32_t silo_divui_i32(uint32_t a, uint32_t b) {
    return b == 0 ? 0xffffffffu : a / (b == 0 ? 1u : b);
}

SILO_INLINE uint32_t silo_remui_i32(uint32_t a, uint32_t b) {
    return b == 0 ? a : a % (b == 0 ? 1u : b);
}

SILO_INLINE int64_t silo_divsi_i64(int64_t a, int64_t b) {
    int64_t safe = b == 0 || b == -1 ? 1 : b;
    int64_t quotient = a / safe;
    quotient = b == -1 ? (int64_t)((uint64_t)0 - (uint64_t)a) : quotient;
    return b == 0 ? -1 : quotient;
}

SILO_INLINE int64_t silo_remsi_i64(int64_t a, int64_t b) {
    int64_t safe = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : a % safe;
}

SILO_INLINE uint64_t silo_divui_i64(uint64_t a, uint64_t b) {
    return b == 0 ? ~(uint64_t)0 : a / (b == 0 ? 1u : b);
}

SILO_INLINE uint64_t silo_remui_i64(uint64_t a, uint64_t b) {
    return b == 0 ? a : a % (b == 0 ? 1u : b);
}

/* Floor and ceiling division of signed integers (arith.floordivsi, arith.ceildivsi). */
SILO_INLINE int64_t silo_floordiv_i64(int64_t a, int64_t b) {
    int64_t quotient = silo_divsi_i64(a, b);
    return b != 0 && silo_remsi_i64(a, b) != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

SILO_INLINE int64_t silo_ceildiv_i64(int64_t a, int64_t b) {
    int64_t quotient = silo_divsi_i64(a, b);
    return b != 0 && silo_remsi_i64(a, b) != 0 && (a < 0) == (b < 0) ? quotient + 1 : quotient;
}

SILO_INLINE uint64_t silo_ceildivui_i64(uint64_t a, uint64_t b) {
    uint64_t quotient = silo_divui_i64(a, b);
    return b != 0 && silo_remui_i64(a, b) != 0 ? quotient + 1 : quotient;
}

SILO_INLINE uint32_t silo_shl_i32(uint32_t a, uint32_t count, uint32_t width) {
    return count < width ? a << (count & 31u) : 0u;
}

SILO_INLINE uint32_t silo_shrui_i32(uint32_t a, uint32_t count, uint32_t width) {
    return count < width ? a >> (count & 31u) : 0u;
}

SILO_INLINE int32_t silo_shrsi_i32(int32_t a, uint32_t count, uint32_t width) {
    return a >> (count < width ? count & 31u : width - 1u);
}

SILO_INLINE uint64_t silo_shl_i64(uint64_t a, uint64_t count, uint32_t width) {
    return count < width ? a << (count & 63u) : 0u;
}

SILO_INLINE uint64_t silo_shrui_i64(uint64_t a, uint64_t count, uint32_t width) {
    return count < width ? a >> (count & 63u) : 0u;
}

SILO_INLINE int64_t silo_shrsi_i64(int64_t a, uint64_t count, uint32_t width) {
    return a >> (count < width ? count & 63u : width - 1u);
}

SILO_INLINE int32_t silo_minsi_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

SILO_INLINE int32_t silo_maxsi_i32(int32_t a, int32_t b) {
    return a > b ? a : b;
}

SILO_INLINE uint32_t silo_minui_i32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

SILO_INLINE uint32_t silo_maxui_i32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

SILO_INLINE int64_t silo_minsi_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

SILO_INLINE int64_t silo_maxsi_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

SILO_INLINE uint64_t silo_minui_i64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

SILO_INLINE uint64_t silo_maxui_i64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* The absolute value of MIN is MIN. */
SILO_INLINE int32_t silo_absi_i32(int32_t a) {
    return a < 0 ? (int32_t)(0u - (uint32_t)a) : a;
}

SILO_INLINE int64_t silo_absi_i64(int64_t a) {
    return a < 0 ? (int64_t)((uint64_t)0 - (uint64_t)a) : a;
}

SILO_INLINE uint32_t silo_mulhiui_i32(uint32_t a, uint32_t b) {
    return (uint32_t)(((uint64_t)a * (uint64_t)b) >> 32);
}

SILO_INLINE uint64_t silo_mulhiui_i64(uint64_t a, uint64_t b) {
    uint64_t al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
    uint64_t middle = ah * bl + ((al * bl) >> 32);
    uint64_t carry = al * bh + (middle & 0xffffffffu);
    return ah * bh + (middle >> 32) + (carry >> 32);
}

/* The numbers of leading and trailing zeros; for 0, the width. */
SILO_INLINE int32_t silo_ctlz_i32(uint32_t a) {
    return a == 0 ? 32 : __builtin_clz(a | 1u);
}

SILO_INLINE int32_t silo_cttz_i32(uint32_t a) {
    return a == 0 ? 32 : __builtin_ctz(a == 0 ? 1u : a);
}

SILO_INLINE int64_t silo_ctlz_i64(uint64_t a) {
    return a == 0 ? 64 : __builtin_clzll(a | 1u);
}

SILO_INLINE int64_t silo_cttz_i64(uint64_t a) {
    return a == 0 ? 64 : __builtin_ctzll(a == 0 ? 1u : a);
}

/* Exclusive or of two conditions, written as a conditional expression because gcc 12 does not
 * vectorise an exclusive or of comparisons. */
SILO_INLINE uint8_t silo_differ_i1(uint8_t a, uint8_t b) {
    return (uint8_t)(a ? !b : b);
}

SILO_INLINE uint8_t silo_same_i1(uint8_t a, uint8_t b) {
    return (uint8_t)(a ? b : !b);
}
