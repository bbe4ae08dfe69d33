/* Tiles transposed with vectors: rows of `from`, `count` elements long, become columns of `to`,
 * whose rows have as many elements as `from` has rows. Both extents are powers of two, at least 8.
 */

#define SILO_TURN_PART 8

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SILO_TURNS_VECTORS 1
#endif
#endif

#ifdef SILO_TURNS_VECTORS
/* Written without loops, which gcc would not unroll, so that all rows stay in registers.
 * Interleaving the upper and the lower half of the rows three times exchanges rows and columns. */
#define SILO_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define SILO_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define SILO_INTERLEAVE(row, to, from)                                                             \
    row const to##0 = SILO_LOW(from##0, from##4), to##1 = SILO_HIGH(from##0, from##4),             \
              to##2 = SILO_LOW(from##1, from##5), to##3 = SILO_HIGH(from##1, from##5),             \
              to##4 = SILO_LOW(from##2, from##6), to##5 = SILO_HIGH(from##2, from##6),             \
              to##6 = SILO_LOW(from##3, from##7), to##7 = SILO_HIGH(from##3, from##7)
#define SILO_TURN(suffix, type)                                                                    \
    typedef type silo_row_##suffix                                                                 \
        __attribute__((vector_size(SILO_TURN_PART * sizeof(type)), aligned(1)));                   \
    SILO_INLINE void silo_turn_part_##suffix(type *to, void const *const *from, int64_t at,        \
                                             int64_t rows) {                                       \
        typedef silo_row_##suffix row;                                                             \
        row const a0 = *(row const *)((type const *)from[0] + at),                                 \
                  a1 = *(row const *)((type const *)from[1] + at),                                 \
                  a2 = *(row const *)((type const *)from[2] + at),                                 \
                  a3 = *(row const *)((type const *)from[3] + at),                                 \
                  a4 = *(row const *)((type const *)from[4] + at),                                 \
                  a5 = *(row const *)((type const *)from[5] + at),                                 \
                  a6 = *(row const *)((type const *)from[6] + at),                                 \
                  a7 = *(row const *)((type const *)from[7] + at);                                 \
        SILO_INTERLEAVE(row, b, a);                                                                \
        SILO_INTERLEAVE(row, c, b);                                                                \
        SILO_INTERLEAVE(row, d, c);                                                                \
        *(row *)(to) = d0, *(row *)(to + rows) = d1;                                               \
        *(row *)(to + 2 * rows) = d2, *(row *)(to + 3 * rows) = d3;                                \
        *(row *)(to + 4 * rows) = d4, *(row *)(to + 5 * rows) = d5;                                \
        *(row *)(to + 6 * rows) = d6, *(row *)(to + 7 * rows) = d7;                                \
    }
#else
#define SILO_TURN(suffix, type)                                                                    \
    SILO_INLINE void silo_turn_part_##suffix(type *to, void const *const *from, int64_t at,        \
                                             int64_t rows) {                                       \
        for (int i = 0; i < SILO_TURN_PART; i++)                                                   \
            for (int j = 0; j < SILO_TURN_PART; j++)                                               \
                to[i * rows + j] = ((type const *)from[j])[at + i];                                \
    }
#endif

#define SILO_TURN_TILE(suffix, type)                                                               \
    SILO_TURN(suffix, type)                                                                        \
    /* Transposes SILO_TURN_PART rows, whose addresses are in `from`, into as many columns that    \
     * begin at `to`. */                                                                           \
    SILO_INLINE void silo_turn_rows_##suffix(void *to, void const *const *from, int64_t rows,      \
                                             int64_t count) {                                      \
        for (int64_t j = 0; j < count; j += SILO_TURN_PART)                                        \
            silo_turn_part_##suffix((type *)to + j * rows, from, j, rows);                         \
    }                                                                                              \
    static __attribute__((unused)) void silo_turn_##suffix(void *to, void const *from,             \
                                                           int64_t rows, int64_t count) {          \
        for (int64_t i = 0; i < rows; i += SILO_TURN_PART) {                                       \
            void const *part[SILO_TURN_PART];                                                      \
            for (int k = 0; k < SILO_TURN_PART; k++)                                               \
                part[k] = (type const *)from + (i + k) * count;                                    \
            silo_turn_rows_##suffix((type *)to + i, part, rows, count);                            \
        }                                                                                          \
    }

SILO_TURN_TILE(2, uint16_t)
SILO_TURN_TILE(4, uint32_t)
SILO_TURN_TILE(8, uint64_t)

#if defined(SILO_TURNS_VECTORS) && defined(__AVX512F__)
/* Sixteen rows take four interleavings. Each row is one cache line, which is read once and
 * completely. */
#define SILO_LOW_16(a, b)                                                                          \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define SILO_HIGH_16(a, b)                                                                         \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define SILO_INTERLEAVE_16(to, from)                                                               \
    silo_line const to##0 = SILO_LOW_16(from##0, from##8), to##1 = SILO_HIGH_16(from##0, from##8), \
                    to##2 = SILO_LOW_16(from##1, from##9), to##3 = SILO_HIGH_16(from##1, from##9), \
                    to##4 = SILO_LOW_16(from##2, from##10),                                        \
                    to##5 = SILO_HIGH_16(from##2, from##10),                                       \
                    to##6 = SILO_LOW_16(from##3, from##11),                                        \
                    to##7 = SILO_HIGH_16(from##3, from##11),                                       \
                    to##8 = SILO_LOW_16(from##4, from##12),                                        \
                    to##9 = SILO_HIGH_16(from##4, from##12),                                       \
                    to##10 = SILO_LOW_16(from##5, from##13),                                       \
                    to##11 = SILO_HIGH_16(from##5, from##13),                                      \
                    to##12 = SILO_LOW_16(from##6, from##14),                                       \
                    to##13 = SILO_HIGH_16(from##6, from##14),                                      \
                    to##14 = SILO_LOW_16(from##7, from##15),                                       \
                    to##15 = SILO_HIGH_16(from##7, from##15)
typedef uint32_t silo_line __attribute__((vector_size(64), aligned(1)));
#define SILO_LINE(k) a##k = *(silo_line const *)((uint32_t const *)from[k] + j)
#define SILO_COLUMN(k) *(silo_line *)(place + k * rows) = e##k
SILO_INLINE void silo_turn_lines_4(void *to, void const *const *from, int64_t rows, int64_t count) {
    for (int64_t j = 0; j < count; j += 16) {
        uint32_t *const place = (uint32_t *)to + j * rows;
        silo_line const SILO_LINE(0), SILO_LINE(1), SILO_LINE(2), SILO_LINE(3), SILO_LINE(4),
            SILO_LINE(5), SILO_LINE(6), SILO_LINE(7), SILO_LINE(8), SILO_LINE(9), SILO_LINE(10),
            SILO_LINE(11), SILO_LINE(12), SILO_LINE(13), SILO_LINE(14), SILO_LINE(15);
        SILO_INTERLEAVE_16(b, a);
        SILO_INTERLEAVE_16(c, b);
        SILO_INTERLEAVE_16(d, c);
        SILO_INTERLEAVE_16(e, d);
        SILO_COLUMN(0), SILO_COLUMN(1), SILO_COLUMN(2), SILO_COLUMN(3), SILO_COLUMN(4);
        SILO_COLUMN(5), SILO_COLUMN(6), SILO_COLUMN(7), SILO_COLUMN(8), SILO_COLUMN(9);
        SILO_COLUMN(10), SILO_COLUMN(11), SILO_COLUMN(12), SILO_COLUMN(13), SILO_COLUMN(14);
        SILO_COLUMN(15);
    }
}
#else
SILO_INLINE void silo_turn_lines_4(void *to, void const *const *from, int64_t rows, int64_t count) {
    silo_turn_rows_4(to, from, rows, count);
    silo_turn_rows_4((uint32_t *)to + SILO_TURN_PART, from + SILO_TURN_PART, rows, count);
}
#endif

/* The transpose of `count` rows of `used` elements each, both at most 16, as 16 rows of 16 elements
 * that begin at `to`. The other elements are zero. */
static __attribute__((unused)) void silo_turn_some_4(void *to, void const *const *from,
                                                     int64_t count, int64_t used) {
    uint32_t lines[16][16] = {{0}};
    void const *rows[16];
    for (int64_t i = 0; i < 16; i++)
        rows[i] = lines[i];
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < used; j++)
            lines[i][j] = ((uint32_t const *)from[i])[j];
    silo_turn_lines_4(to, rows, 16, 16);
}
