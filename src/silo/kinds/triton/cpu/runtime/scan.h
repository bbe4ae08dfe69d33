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

/* The cumulative sums of the elements of one vector. */
SILO_INLINE silo_sums_f32 silo_sums_of_vector_f32(silo_sums_f32 v, const int reverse) {
    const silo_sums_f32 nothing = SILO_SUMS_NOTHING_f32 - (silo_sums_f32){0};
    v += reverse ? SILO_SUMS_DOWN_f32(v, 1) : SILO_SUMS_UP_f32(v, 1);
    if (SILO_SUMS_LANES_f32 > 2)
        v += reverse ? SILO_SUMS_DOWN_f32(v, 2) : SILO_SUMS_UP_f32(v, 2);
    if (SILO_SUMS_LANES_f32 > 4)
        v += reverse ? SILO_SUMS_DOWN_f32(v, 4) : SILO_SUMS_UP_f32(v, 4);
    if (SILO_SUMS_LANES_f32 > 8)
        v += reverse ? SILO_SUMS_DOWN_f32(v, 8) : SILO_SUMS_UP_f32(v, 8);
    return v;
}

SILO_INLINE void silo_sums_f32_of(float *x, int64_t n, const int reverse) {
    if (n < SILO_SUMS_LANES_f32) {
        float sum = SILO_SUMS_NOTHING_f32;
        for (int64_t i = 0; i < n; i++) {
            sum += x[reverse ? n - 1 - i : i];
            x[reverse ? n - 1 - i : i] = sum;
        }
        return;
    }
    silo_sums_f32 carry = SILO_SUMS_NOTHING_f32 - (silo_sums_f32){0};
    for (int64_t done = 0; done < n; done += SILO_SUMS_LANES_f32) {
        float *place = x + (reverse ? n - SILO_SUMS_LANES_f32 - done : done);
        const silo_sums_f32 v = silo_sums_of_vector_f32(*(silo_sums_f32 *)place, reverse);
        /* The total does not include the carry, so the next carry waits only for the current carry,
         * and not for the sums of the vector. */
        const silo_sums_f32 total =
            reverse ? __builtin_shufflevector(v, v, SILO_LANES_OF_4(SILO_SUMS_FIRST_f32, 0))
                    : __builtin_shufflevector(v, v, SILO_LANES_OF_4(SILO_SUMS_LAST_f32, 0));
        *(silo_sums_f32 *)place = v + carry;
        carry += total;
    }
}

/* Writes the sums of n elements to `to`, which is `from` or does not overlap it. The additions are
 * the same as in silo_running_sum_f32 for a row that begins with these elements. */
static __attribute__((noinline, unused)) void silo_running_sum_to_f32(float *to, const float *from,
                                                                      int64_t n) {
    silo_sums_f32 carry = SILO_SUMS_NOTHING_f32 - (silo_sums_f32){0};
    int64_t done = 0;
    for (; done + SILO_SUMS_LANES_f32 <= n; done += SILO_SUMS_LANES_f32) {
        const silo_sums_f32 v = silo_sums_of_vector_f32(*(const silo_sums_f32 *)(from + done), 0);
        *(silo_sums_f32 *)(to + done) = v + carry;
        carry += __builtin_shufflevector(v, v, SILO_LANES_OF_4(SILO_SUMS_LAST_f32, 0));
    }
    if (done < n) {
        float part[SILO_SUMS_LANES_f32];
        silo_sums_f32 v;
        for (int64_t i = 0; i < SILO_SUMS_LANES_f32; i++)
            part[i] = done + i < n ? from[done + i] : SILO_SUMS_NOTHING_f32;
        __builtin_memcpy(&v, part, sizeof v);
        v = silo_sums_of_vector_f32(v, 0) + carry;
        __builtin_memcpy(part, &v, sizeof v);
        for (int64_t i = 0; done + i < n; i++)
            to[done + i] = part[i];
    }
}

static __attribute__((noinline, unused)) void silo_running_sum_f32(float *x, int64_t n) {
    silo_sums_f32_of(x, n, 0);
}

static __attribute__((noinline, unused)) void silo_running_sum_reverse_f32(float *x, int64_t n) {
    silo_sums_f32_of(x, n, 1);
}
