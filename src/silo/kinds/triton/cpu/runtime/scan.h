/* Cumulative sums of n elements, in place: each element becomes the sum of all elements up to it;
 * with `reverse`, of all from it to the end. Sums within a vector come first, then the carry
 * between vectors, so additions are not in the order of the elements. */

typedef float silo_sums_f32
    __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(__alignof__(float)), may_alias));

enum { SILO_SUMS_LANES_f32 = SILO_VECTOR_BYTES / (int)sizeof(float) };

/* The neutral element of addition, which also keeps the sign of zeros. */
#define SILO_SUMS_NOTHING_f32 (-0.0f)

/* Element i of the result is element i - k (or i + k) of v, or the neutral element if that is
 * outside of v. */
#define SILO_SUMS_BEFORE_f32(i, k) ((i) >= (k) ? (i) - (k) : SILO_SUMS_LANES_f32)
#define SILO_SUMS_AFTER_f32(i, k)                                                                  \
    ((i) + (k) < SILO_SUMS_LANES_f32 ? (i) + (k) : SILO_SUMS_LANES_f32)
#define SILO_SUMS_UP_f32(v, k)                                                                     \
    __builtin_shufflevector(v, nothing, SILO_LANES_OF_4(SILO_SUMS_BEFORE_f32, k))
#define SILO_SUMS_DOWN_f32(v, k)                                                                   \
    __builtin_shufflevector(v, nothing, SILO_LANES_OF_4(SILO_SUMS_AFTER_f32, k))
#define SILO_SUMS_LAST_f32(i, k) (SILO_SUMS_LANES_f32 - 1)
#define SILO_SUMS_FIRST_f32(i, k) 0

SILO_INLINE void silo_sums_f32_of(float *x, int64_t n, const int reverse) {
    const silo_sums_f32 nothing = SILO_SUMS_NOTHING_f32 - (silo_sums_f32){0};
    if (n < SILO_SUMS_LANES_f32) {
        float sum = SILO_SUMS_NOTHING_f32;
        for (int64_t i = 0; i < n; i++) {
            sum += x[reverse ? n - 1 - i : i];
            x[reverse ? n - 1 - i : i] = sum;
        }
        return;
    }
    silo_sums_f32 carry = nothing;
    for (int64_t done = 0; done < n; done += SILO_SUMS_LANES_f32) {
        float *place = x + (reverse ? n - SILO_SUMS_LANES_f32 - done : done);
        silo_sums_f32 v = *(silo_sums_f32 *)place;
        v += reverse ? SILO_SUMS_DOWN_f32(v, 1) : SILO_SUMS_UP_f32(v, 1);
        if (SILO_SUMS_LANES_f32 > 2)
            v += reverse ? SILO_SUMS_DOWN_f32(v, 2) : SILO_SUMS_UP_f32(v, 2);
        if (SILO_SUMS_LANES_f32 > 4)
            v += reverse ? SILO_SUMS_DOWN_f32(v, 4) : SILO_SUMS_UP_f32(v, 4);
        if (SILO_SUMS_LANES_f32 > 8)
            v += reverse ? SILO_SUMS_DOWN_f32(v, 8) : SILO_SUMS_UP_f32(v, 8);
        /* The total does not include the carry, so the next carry waits only for this one, and not
         * for the sums of the vector. */
        const silo_sums_f32 total =
            reverse ? __builtin_shufflevector(v, v, SILO_LANES_OF_4(SILO_SUMS_FIRST_f32, 0))
                    : __builtin_shufflevector(v, v, SILO_LANES_OF_4(SILO_SUMS_LAST_f32, 0));
        *(silo_sums_f32 *)place = v + carry;
        carry += total;
    }
}

static __attribute__((noinline, unused)) void silo_running_sum_f32(float *x, int64_t n) {
    silo_sums_f32_of(x, n, 0);
}

static __attribute__((noinline, unused)) void silo_running_sum_reverse_f32(float *x, int64_t n) {
    silo_sums_f32_of(x, n, 1);
}
