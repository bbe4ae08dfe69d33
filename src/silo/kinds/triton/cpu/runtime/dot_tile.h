/* Operands of dots. A tile is the address of its first element, and the distances in elements
 * between neighbouring rows and between neighbouring columns. The right operand is read in panels:
 * as many columns as a vector has lanes, one row after the other. */

typedef struct {
    const void *at;
    int64_t row, column;
} silo_tile;

/* Identifies the tile whose panels are in a buffer, so that the next program need not pack them
 * again. */
typedef struct {
    const void *at;
    int64_t row, column, depth, columns;
} silo_kept;

SILO_INLINE int silo_is_kept(const silo_kept *kept, silo_tile tile, int64_t depth,
                             int64_t columns) {
    return kept->at == tile.at && kept->row == tile.row && kept->column == tile.column &&
           kept->depth == depth && kept->columns == columns;
}

/* Panels of the tiles that a loop reads, one slot for each of its iterations: a program often reads
 * the same tiles as the previous program, in the same order. */
typedef struct {
    uint64_t program; /* the program that used the slots last; `round` counts its iterations */
    int64_t round;
    int64_t worth; /* hits minus misses; below 0: the same tiles rarely come again */
} silo_slots;

/* The slot for the tile of this iteration. The last of the `count` slots serves all later
 * iterations, and every tile if the same tiles rarely come again. */
SILO_INLINE int64_t silo_next_slot(silo_slots *slots, const silo_kept *kept, int64_t count,
                                   uint64_t program, silo_tile tile, int64_t depth,
                                   int64_t columns) {
    slots->round = slots->program == program ? slots->round + 1 : 0;
    slots->program = program;
    if (slots->worth < -count || slots->round >= count)
        return count - 1;
    if (!silo_is_kept(kept + slots->round, tile, depth, columns))
        slots->worth--;
    else if (slots->worth < 0)
        slots->worth++;
    return slots->round;
}

/* The addresses of the last product's operands, and whether the left operand was the packed one; -1
 * if there was no product. */
typedef struct {
    const void *left, *right;
    int packs_left;
} silo_pair;

/* Whether a product whose operands are both contiguous along the inner axis is computed as b^T a^T,
 * which packs the left operand and reads the right one by rows. Packing pays for the operand that
 * the next program reads again: the one whose panels are kept, or else the one that had the same
 * address last time. Every sum adds the same numbers in the same order either way. */
SILO_INLINE int silo_packs_left(silo_pair *last, const silo_kept *kept, silo_tile a, silo_tile b,
                                int64_t depth, int64_t rows, int64_t columns) {
    if (a.column != 1 || b.row != 1 || b.column == 1)
        return 0;
    const silo_tile turned = {a.at, a.column, a.row};
    const int packs_left = silo_is_kept(kept, b, depth, columns)     ? 0
                           : silo_is_kept(kept, turned, depth, rows) ? 1
                           : last->left == a.at                      ? 1
                           : last->right == b.at                     ? 0
                           : last->packs_left >= 0                   ? last->packs_left
                                                                     : rows <= columns;
    *last = (silo_pair){a.at, b.at, packs_left};
    return packs_left;
}

SILO_INLINE float silo_f32_to_f32(float value) {
    return value;
}

SILO_INLINE double silo_f64_to_f64(double value) {
    return value;
}

SILO_INLINE float silo_i8_to_f32(int8_t value) {
    return (float)value;
}

/* Vectors at any address. Each 32-bit value may also be four bytes of a row of int8. */
typedef float silo_four __attribute__((vector_size(16), aligned(1), may_alias));

/* to[i][j] = from[j][i] for 4 x 4 values of 32 bits; `far` and `step` count 32-bit values. */
SILO_INLINE void silo_turn_four(const float *from, int64_t far, float *to, int64_t step) {
    const silo_four a = *(const silo_four *)from, b = *(const silo_four *)(from + far);
    const silo_four c = *(const silo_four *)(from + 2 * far);
    const silo_four d = *(const silo_four *)(from + 3 * far);
    const silo_four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const silo_four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const silo_four rest_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const silo_four rest_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(silo_four *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(silo_four *)(to + step) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(silo_four *)(to + 2 * step) = __builtin_shufflevector(rest_ab, rest_cd, 0, 1, 4, 5);
    *(silo_four *)(to + 3 * step) = __builtin_shufflevector(rest_ab, rest_cd, 2, 3, 6, 7);
}

/* to[p][l] = from[l][p] for 32-bit words: `from` has as many rows as a vector has lanes, each with
 * `words` words, a multiple of the lanes. */
SILO_INLINE void silo_turn_lanes(void const *const *from, int64_t words, void *to) {
#if SILO_VECTOR_BITS == 512
    silo_turn_lines_4(to, from, 16, words);
#elif SILO_VECTOR_BITS == 256
    silo_turn_rows_4(to, from, 8, words);
#else
    for (int64_t p = 0; p < words; p += 4) {
        silo_four four[4];
        for (int l = 0; l < 4; l++)
            four[l] = *(const silo_four *)((const float *)from[l] + p);
        silo_turn_four((const float *)(const void *)four, 4, (float *)to + 4 * p, 4);
    }
#endif
}

/* to[j][i] = from[i][j] for 32-bit values. Both extents are padded to whole vectors. */
SILO_APART void silo_turn_sums(const void *from, int64_t rows, int64_t columns, int64_t far,
                               void *to, int64_t next) {
    enum { LANES = SILO_VECTOR_BYTES / 4 };
    for (int64_t i = 0; i < rows; i += LANES)
        for (int64_t j = 0; j < columns; j += LANES) {
            const float *const corner = (const float *)from + i * far + j;
            float *const place = (float *)to + j * next + i;
#if SILO_VECTOR_BITS == 128
            silo_turn_four(corner, far, place, next);
#else
            void const *at[LANES];
            for (int64_t l = 0; l < LANES; l++)
                at[l] = corner + l * far;
#if SILO_VECTOR_BITS == 512
            silo_turn_lines_4(place, at, next, LANES);
#else
            silo_turn_rows_4(place, at, next, LANES);
#endif
#endif
        }
}

/* Copies `bytes` bytes, but at most a vector; the rest of the vector becomes 0. */
SILO_INLINE void silo_copy_some(const char *from, int64_t bytes, void *to) {
#if SILO_VECTOR_BITS == 512 && defined(__AVX512BW__)
    typedef char line __attribute__((vector_size(64), aligned(1), may_alias));
    const uint64_t some = bytes >= 64 ? ~(uint64_t)0 : bytes > 0 ? ((uint64_t)1 << bytes) - 1 : 0;
    line read;
    __asm__("kmovq %2, %%k1\n\tvmovdqu8 %1, %0%{%%k1%}%{z%}"
            : "=v"(read)
            : "m"(*(const line *)from), "r"(some)
            : "k1");
    *(line *)to = read;
    return;
#endif
    if (bytes >= SILO_VECTOR_BYTES) {
        __builtin_memcpy(to, from, SILO_VECTOR_BYTES);
        return;
    }
    __builtin_memset(to, 0, SILO_VECTOR_BYTES);
    int64_t at = 0;
    for (; at + 4 <= bytes; at += 4)
        __builtin_memcpy((char *)to + at, from + at, 4);
    for (; at < bytes; at++)
        ((char *)to)[at] = from[at];
}

/* Copies the leading `rows` rows of a square of words into a panel. */
SILO_INLINE void silo_put_square(const void *square, int64_t rows, void *to) {
    for (int64_t i = 0; i < rows * SILO_VECTOR_BYTES; i += SILO_VECTOR_BYTES)
        __builtin_memcpy((char *)to + i, (const char *)square + i, SILO_VECTOR_BYTES);
}

/* Packs panels of `words` words from columns that are `far` bytes apart and `bytes` bytes long
 * each; elements beyond them are 0. */
SILO_APART void silo_turn_panels(const char *from, int64_t far, int64_t bytes, int64_t words,
                                 int64_t columns, uint32_t *to) {
    enum { LANES = SILO_VECTOR_BYTES / 4 };
    uint32_t square[LANES][LANES], turned[LANES][LANES];
    for (int64_t j = 0; j < columns; j += LANES, to += LANES * words) {
        const int64_t some = columns - j < LANES ? columns - j : LANES;
        int64_t q = 0;
        if (some == LANES && bytes >= SILO_VECTOR_BYTES) {
            void const *at[LANES];
            for (int64_t l = 0; l < LANES; l++)
                at[l] = from + (j + l) * far;
            q = bytes / SILO_VECTOR_BYTES * LANES;
            silo_turn_lanes(at, q, to);
        }
        for (; q < words; q += LANES) {
            void const *at[LANES];
            for (int64_t l = 0; l < LANES; l++) {
                silo_copy_some(from + (j + l) * far + 4 * q, l < some ? bytes - 4 * q : 0,
                               square[l]);
                at[l] = square[l];
            }
            silo_turn_lanes(at, LANES, turned);
            silo_put_square(turned, words - q < LANES ? words - q : LANES, to + q * LANES);
        }
    }
}
