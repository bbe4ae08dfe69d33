/* One step of a sorting network, in place. Element i is compared with its partner i ^ (1 << bit).
 * The lower element of a pair takes its partner's value if own > other, the upper element if not
 * (own > other). Bit `flip` of i, which is above `bit`, reverses that order, and so does `down` (0
 * or 1); `flip` is 30 for no bit. With a NaN, each element applies its rule by itself. n is a power
 * of two, at most 2^30. */

typedef float silo_swap_f32
    __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(__alignof__(float)), may_alias));
typedef int32_t silo_swap_bits_f32
    __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(__alignof__(int32_t)), may_alias));

enum { SILO_SWAP_LANES_f32 = SILO_VECTOR_BYTES / (int)sizeof(float) };

static const int32_t silo_swap_lane_f32[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                               8, 9, 10, 11, 12, 13, 14, 15};

SILO_INLINE silo_swap_f32 silo_swap_chosen_f32(silo_swap_f32 own, silo_swap_f32 other,
                                               silo_swap_bits_f32 turned) {
    silo_swap_bits_f32 exchange = (silo_swap_bits_f32)(own > other) ^ turned;
    silo_swap_bits_f32 kept = (silo_swap_bits_f32)own;
    return (silo_swap_f32)(kept ^ ((kept ^ (silo_swap_bits_f32)other) & exchange));
}

/* One step of a sorting network for partners that are in the same vector. */
SILO_INLINE void silo_swap_near_f32(float *x, int64_t n, const int bit, int flip, int32_t down) {
    silo_swap_bits_f32 lane = *(const silo_swap_bits_f32 *)silo_swap_lane_f32;
    silo_swap_bits_f32 right = (lane >> bit) ^ down;
    for (int64_t start = 0; start < n; start += SILO_SWAP_LANES_f32) {
        silo_swap_f32 own = *(silo_swap_f32 *)(x + start);
#ifdef __clang__
        silo_swap_f32 other = own;
#pragma GCC unroll 16
        for (int i = 0; i < SILO_SWAP_LANES_f32; i++)
            other[i] = own[i ^ (1 << bit)];
#else
        silo_swap_f32 other = __builtin_shuffle(own, lane ^ (1 << bit));
#endif
        silo_swap_bits_f32 turned = right ^ ((lane + (int32_t)start) >> flip);
        *(silo_swap_f32 *)(x + start) = silo_swap_chosen_f32(own, other, -(turned & 1));
    }
}

/* One step of a sorting network for partners that are in different vectors. */
SILO_INLINE void silo_swap_far_f32(float *x, int64_t n, int bit, int flip, int32_t down) {
    int64_t far = (int64_t)1 << bit;
    for (int64_t start = 0; start < n; start += 2 * far) {
        silo_swap_bits_f32 turned =
            (silo_swap_bits_f32){0} - (((int32_t)(start >> flip) ^ down) & 1);
        for (int64_t i = start; i < start + far; i += SILO_SWAP_LANES_f32) {
            silo_swap_f32 a = *(silo_swap_f32 *)(x + i);
            silo_swap_f32 b = *(silo_swap_f32 *)(x + i + far);
            *(silo_swap_f32 *)(x + i) = silo_swap_chosen_f32(a, b, turned);
            *(silo_swap_f32 *)(x + i + far) = silo_swap_chosen_f32(b, a, ~turned);
        }
    }
}

/* One step of a sorting network for fewer elements than a vector has lanes. */
SILO_INLINE void silo_swap_few_f32(float *x, int64_t n, int bit, int flip, int32_t down) {
    for (int64_t i = 0; i < n; i++)
        if (!(i >> bit & 1)) {
            int32_t turned = ((int32_t)(i >> flip) ^ down) & 1;
            float a = x[i], b = x[i + ((int64_t)1 << bit)];
            x[i] = (a > b) != turned ? b : a;
            x[i + ((int64_t)1 << bit)] = (b > a) != !turned ? a : b;
        }
}

static __attribute__((noinline, unused)) void silo_swap_step_f32(float *x, int64_t n, int bit,
                                                                 int flip, int32_t down) {
    if (n < SILO_SWAP_LANES_f32)
        silo_swap_few_f32(x, n, bit, flip, down);
    else if (1 << bit >= SILO_SWAP_LANES_f32)
        silo_swap_far_f32(x, n, bit, flip, down);
#ifdef __clang__
    else if (bit == 0)
        silo_swap_near_f32(x, n, 0, flip, down);
    else if (bit == 1)
        silo_swap_near_f32(x, n, 1, flip, down);
    else if (bit == 2)
        silo_swap_near_f32(x, n, 2, flip, down);
    else
        silo_swap_near_f32(x, n, 3, flip, down);
#else
    else
        silo_swap_near_f32(x, n, bit, flip, down);
#endif
}
