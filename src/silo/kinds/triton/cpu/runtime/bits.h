/* libdevice's functions of integers, and of the two halves of a double. */

/* The position of the lowest set bit, counted from 1; 0 if no bit is set. */
SILO_INLINE int32_t silo_ffs_i32(uint32_t a) {
    return a == 0 ? 0 : __builtin_ctz(a == 0 ? 1u : a) + 1;
}

SILO_INLINE int32_t silo_ffs_i64(uint64_t a) {
    return a == 0 ? 0 : __builtin_ctzll(a == 0 ? 1u : a) + 1;
}

/* The bits in reverse order. */
SILO_INLINE int32_t silo_brev_i32(uint32_t a) {
    a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
    a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
    a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
    return (int32_t)__builtin_bswap32(a);
}

SILO_INLINE int64_t silo_brev_i64(uint64_t a) {
    uint64_t low = (uint32_t)silo_brev_i32((uint32_t)(a >> 32));
    return (int64_t)((uint64_t)(uint32_t)silo_brev_i32((uint32_t)a) << 32 | low);
}

/* Byte n of the result is byte (selector >> 4n & 7) of the eight bytes of a and b; a has the first
 * four. */
SILO_INLINE int32_t silo_byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (uint32_t n = 0; n < 4; n++)
        result |= (uint32_t)(both >> ((selector >> 4 * n & 7u) * 8) & 0xffu) << 8 * n;
    return (int32_t)result;
}

/* Like byte_perm, but if bit 3 of a selector is set, the byte is filled with the sign of the
 * selected byte. */
SILO_INLINE uint32_t silo_prmt(int32_t a, int32_t b, int32_t selector) {
    uint64_t both = (uint64_t)(uint32_t)b << 32 | (uint32_t)a;
    uint32_t result = 0;
    for (uint32_t n = 0; n < 4; n++) {
        uint32_t choice = (uint32_t)selector >> 4 * n & 15u;
        uint32_t byte = (uint32_t)(both >> ((choice & 7u) * 8)) & 0xffu;
        uint32_t sign = (byte >> 7) * 0xffu;
        result |= (choice & 8u ? sign : byte) << 8 * n;
    }
    return result;
}

/* Any function of three bits, applied to each bit. The bits of `table` are its results, in the
 * order of the arguments from 0, 0, 0 to 1, 1, 1. */
SILO_INLINE uint32_t silo_lop3(int32_t a, int32_t b, int32_t c, int32_t table) {
    uint32_t x = (uint32_t)a, y = (uint32_t)b, z = (uint32_t)c, result = 0;
    for (uint32_t n = 0; n < 8; n++) {
        uint32_t chosen = (n & 4u ? x : ~x) & (n & 2u ? y : ~y) & (n & 1u ? z : ~z);
        result |= (uint32_t)table >> n & 1u ? chosen : 0u;
    }
    return result;
}

SILO_INLINE int32_t silo_mulhisi_i32(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * (int64_t)b) >> 32);
}

SILO_INLINE int64_t silo_mulhisi_i64(int64_t a, int64_t b) {
    uint64_t high = silo_mulhiui_i64((uint64_t)a, (uint64_t)b);
    return (int64_t)(high - (a < 0 ? (uint64_t)b : 0u) - (b < 0 ? (uint64_t)a : 0u));
}

/* The low 32 bits of the product of the low 24 bits, signed (i32) or unsigned (u32). */
SILO_INLINE int32_t silo_mul24_i32(uint32_t a, uint32_t b) {
    uint32_t left = (uint32_t)((int32_t)(a << 8) >> 8), right = (uint32_t)((int32_t)(b << 8) >> 8);
    return (int32_t)(left * right);
}

SILO_INLINE uint32_t silo_mul24_u32(uint32_t a, uint32_t b) {
    return (a & 0xffffffu) * (b & 0xffffffu);
}

/* |a - b| + c. */
SILO_INLINE int32_t silo_sad_i32(int32_t a, int32_t b, uint32_t c) {
    return (int32_t)((a > b ? (uint32_t)a - (uint32_t)b : (uint32_t)b - (uint32_t)a) + c);
}

SILO_INLINE uint32_t silo_sad_u32(uint32_t a, uint32_t b, uint32_t c) {
    return (a > b ? a - b : b - a) + c;
}

/* Half the sum, rounded down (hadd) or up (rhadd), without overflow. */
SILO_INLINE int32_t silo_hadd_i32(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)(a & b) + (uint32_t)((a ^ b) >> 1));
}

SILO_INLINE uint32_t silo_hadd_u32(uint32_t a, uint32_t b) {
    return (a & b) + ((a ^ b) >> 1);
}

SILO_INLINE int32_t silo_rhadd_i32(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)(a | b) - (uint32_t)((a ^ b) >> 1));
}

SILO_INLINE uint32_t silo_rhadd_u32(uint32_t a, uint32_t b) {
    return (a | b) - ((a ^ b) >> 1);
}

SILO_INLINE double silo_hiloint2double(uint32_t high, uint32_t low) {
    return silo_f64_of_bits((uint64_t)high << 32 | low);
}

SILO_INLINE int32_t silo_double2hiint(double x) {
    return (int32_t)(silo_bits_f64(x) >> 32);
}

SILO_INLINE int32_t silo_double2loint(double x) {
    return (int32_t)(uint32_t)silo_bits_f64(x);
}
