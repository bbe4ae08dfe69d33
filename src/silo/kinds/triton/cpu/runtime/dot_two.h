/* c[m][n] += a[m][k] * b[k][n] of f16 by matrix tiles of bf16. Every finite f16 is the sum of two
 * bf16, the large part with the leading 8 bits and the small part with the rest, so a product is
 * the sum of four products, each of which is exact. Panels of the right operand, and rows of the
 * left one, are written as tiles: of the large parts, then of the small parts. A number that is not
 * finite is a large part alone: it is left out of the products with small parts, because infinity
 * times a small part of zero is NaN. */

/* Splits words of two f16 into words of their large and of their small parts. Bits 15 and 31 of
 * `others` become 1 if a number is not finite; its small part is then undefined. */
SILO_INLINE void silo_two_parts(silo_words_bf16 word, silo_words_bf16 *large,
                                silo_words_bf16 *small, silo_words_bf16 *others) {
    typedef float floats __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(4), may_alias));
    const uint32_t upper = 0xffff0000u, lower = 0xffffu;
    const silo_items_bf16 even = __builtin_convertvector(word & lower, silo_items_bf16);
    const silo_items_bf16 odd = __builtin_convertvector(word >> 16u, silo_items_bf16);
    floats wide[2];
    __asm__("vcvtph2ps %1, %0" : "=v"(wide[0]) : "v"(even));
    __asm__("vcvtph2ps %1, %0" : "=v"(wide[1]) : "v"(odd));
    const silo_words_bf16 high[2] = {(silo_words_bf16)wide[0] & upper,
                                     (silo_words_bf16)wide[1] & upper};
    const silo_words_bf16 low[2] = {(silo_words_bf16)(wide[0] - (floats)high[0]),
                                    (silo_words_bf16)(wide[1] - (floats)high[1])};
    *large = high[0] >> 16u | high[1];
    *small = low[0] >> 16u | low[1];
    *others |= (word & 0x7c007c00u) + 0x04000400u;
}

SILO_INLINE int silo_are_finite(silo_words_bf16 others) {
    uint32_t any = 0;
    for (int i = 0; i < SILO_WORDS_bf16; i++)
        any |= others[i];
    return !(any & 0x80008000u);
}

/* Sets parts that are not finite to 0. */
SILO_APART void silo_only_finite(uint16_t *parts, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if ((parts[i] & 0x7f80) == 0x7f80)
            parts[i] = 0;
}

/* Packs panels of `words` words, a multiple of 16, from `depth` rows of a right tile. Returns
 * whether all numbers are finite. */
SILO_APART int silo_two_panels(silo_tile from, int64_t first, int64_t depth, int64_t words,
                               int64_t columns, uint32_t *to) {
    silo_words_bf16 others = {0};
    for (int64_t j = 0; j < columns; j += 16, to += 32 * words) {
        const silo_tile panel = {(const uint16_t *)from.at + j * from.column, from.row,
                                 from.column};
        /* The words are read from the second half of the panel, each before it is overwritten. */
        const uint32_t *word = to + 16 * words;
        silo_pack_bf16(panel, first, depth, words, columns - j < 16 ? columns - j : 16,
                       to + 16 * words);
        for (int64_t q = 0; q < words; q++, word += 16) {
            silo_words_bf16 large, small;
            silo_two_parts(*(const silo_words_bf16 *)word, &large, &small, &others);
            uint32_t *row = to + q / 16 * 512 + q % 16 * 16;
            *(silo_words_bf16 *)row = large;
            *(silo_words_bf16 *)(row + 256) = small;
        }
    }
    return silo_are_finite(others);
}

/* Writes `depth` columns of a left tile as matrix tiles of 16 rows x 16 words: for each 16 rows,
 * the tiles along `words` words, each as a tile of large parts and then one of small parts. Returns
 * whether all numbers are finite. */
SILO_APART int silo_two_rows(silo_tile from, int64_t first, int64_t depth, int64_t words,
                             int64_t rows, uint32_t *to) {
    uint32_t turned[16][16], line[16];
    silo_words_bf16 others = {0};
    for (int64_t i = 0; i < rows; i += 16) {
        const int64_t some = rows - i < 16 ? rows - i : 16;
        const uint16_t *at = (const uint16_t *)from.at + i * from.row;
        const silo_tile right = {at, from.column, from.row};
        for (int64_t q = 0; q < words; q += 16, to += 512) {
            const int64_t left = depth - 2 * q < 0 ? 0 : depth - 2 * q < 32 ? depth - 2 * q : 32;
            if (from.column != 1) {
                uint32_t square[16][16];
                void const *lines[16];
                for (int l = 0; l < 16; l++)
                    lines[l] = square[l];
                silo_pack_bf16(right, first + 2 * q, left, 16, some, square[0]);
                silo_turn_lines_4(turned[0], lines, 16, 16);
            }
            for (int64_t r = 0; r < 16; r++) {
                silo_words_bf16 large, small;
                const char *row = (const char *)(at + (r < some ? r : 0) * from.row + first);
                if (from.column == 1)
                    silo_copy_some(row + 4 * q, r < some ? 2 * left : 0, line);
                silo_two_parts(*(const silo_words_bf16 *)(from.column == 1 ? line : turned[r]),
                               &large, &small, &others);
                *(silo_words_bf16 *)(to + 16 * r) = large;
                *(silo_words_bf16 *)(to + 256 + 16 * r) = small;
            }
        }
    }
    return silo_are_finite(others);
}

#define SILO_TWO_LOAD(first, second, from, next, both)                                             \
    do {                                                                                           \
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm" first : : "r"(from), "r"(line) : "memory");  \
        if (both)                                                                                  \
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm" second                                   \
                             :                                                                     \
                             : "r"((from) + (next)), "r"(line)                                     \
                             : "memory");                                                          \
    } while (0)

/* Multiplies the tiles of both operands that were loaded last. */
#define SILO_TWO_MULTIPLY()                                                                        \
    do {                                                                                           \
        __asm__ volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0" : : : "memory");                       \
        if (two_columns)                                                                           \
            __asm__ volatile("tdpbf16ps %%tmm7, %%tmm4, %%tmm1" : : : "memory");                   \
        if (two_rows)                                                                              \
            __asm__ volatile("tdpbf16ps %%tmm6, %%tmm5, %%tmm2" : : : "memory");                   \
        if (two_rows && two_columns)                                                               \
            __asm__ volatile("tdpbf16ps %%tmm7, %%tmm5, %%tmm3" : : : "memory");                   \
    } while (0)

/* Computes one block of 2 x 2 tiles of sums: `large` adds the products of large parts, and `small`
 * then adds the products with small parts. With exchanged operands (`turned`), the sums are added
 * in the same order as without. */
SILO_APART void silo_two_block(int64_t words, const uint32_t *a, int64_t a_next, const uint32_t *b,
                               int64_t b_next, float *c, int64_t c_next, int64_t ldc, int fresh,
                               int two_rows, int two_columns, int turned, int large, int small) {
    const int64_t c_bytes = ldc * 4, line = 64;
    __asm__ volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3"
                     :
                     :
                     : "memory");
    if (!fresh) {
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm0" : : "r"(c), "r"(c_bytes) : "memory");
        if (two_columns)
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm1"
                             :
                             : "r"(c + 16), "r"(c_bytes)
                             : "memory");
        if (two_rows)
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm2"
                             :
                             : "r"(c + c_next), "r"(c_bytes)
                             : "memory");
        if (two_rows && two_columns)
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm3"
                             :
                             : "r"(c + c_next + 16), "r"(c_bytes)
                             : "memory");
    }
    for (int64_t q = 0; large && q < words; q += 16) {
        SILO_TWO_LOAD("4", "5", a + 32 * q, a_next, two_rows);
        SILO_TWO_LOAD("6", "7", b + 32 * q, b_next, two_columns);
        SILO_TWO_MULTIPLY();
    }
    for (int64_t q = 0; small && q < words; q += 16) {
        SILO_TWO_LOAD("4", "5", a + 32 * q + (turned ? 256 : 0), a_next, two_rows);
        SILO_TWO_LOAD("6", "7", b + 32 * q + (turned ? 0 : 256), b_next, two_columns);
        SILO_TWO_MULTIPLY();
        if (turned)
            SILO_TWO_LOAD("6", "7", b + 32 * q + 256, b_next, two_columns);
        else
            SILO_TWO_LOAD("4", "5", a + 32 * q + 256, a_next, two_rows);
        SILO_TWO_MULTIPLY();
        if (turned)
            SILO_TWO_LOAD("4", "5", a + 32 * q, a_next, two_rows);
        else
            SILO_TWO_LOAD("6", "7", b + 32 * q, b_next, two_columns);
        SILO_TWO_MULTIPLY();
    }
    __asm__ volatile("tilestored %%tmm0, (%0,%1,1)" : : "r"(c), "r"(c_bytes) : "memory");
    if (two_columns)
        __asm__ volatile("tilestored %%tmm1, (%0,%1,1)" : : "r"(c + 16), "r"(c_bytes) : "memory");
    if (two_rows)
        __asm__ volatile("tilestored %%tmm2, (%0,%1,1)"
                         :
                         : "r"(c + c_next), "r"(c_bytes)
                         : "memory");
    if (two_rows && two_columns)
        __asm__ volatile("tilestored %%tmm3, (%0,%1,1)"
                         :
                         : "r"(c + c_next + 16), "r"(c_bytes)
                         : "memory");
}

/* The arguments are those of silo_dot_f32; `left_work` and `right_work` have memory for twice the
 * words of one pass. */
SILO_APART void silo_dot_two(const int turned, int64_t most, int64_t m, int64_t n, int64_t columns,
                             int64_t k, silo_tile a, silo_tile b, float *c, int fresh,
                             uint32_t *left_work, uint32_t *right_work, silo_kept *kept,
                             int64_t room) {
    const int64_t words = (k + 31) / 32 * 16;
    const int64_t filled = (columns + 15) / 16 * 16, high = most < 16 ? most : 16;
    const int whole = kept && 2 * words * filled <= room;
    const int made = whole && silo_is_kept(kept, b, k, columns);
    int may_keep = whole;
    silo_shape_bf16 shape = {1, 0, {0}, {0}, {0}};
    for (int i = 0; i < 8; i++) {
        shape.rows[i] = (uint8_t)(i < 6 ? high : 16);
        shape.bytes[i] = 64;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
    for (int64_t p = 0; p < words; p += SILO_DEPTH_bf16) {
        const int64_t depth = words - p < SILO_DEPTH_bf16 ? words - p : SILO_DEPTH_bf16;
        const int64_t items = k - 2 * p < 2 * depth ? k - 2 * p : 2 * depth;
        uint32_t *panels = right_work + (whole ? 2 * p * filled : 0);
        const int b_finite = made || silo_two_panels(b, 2 * p, items, depth, columns, panels);
        const int finite = silo_two_rows(a, 2 * p, items, depth, m, left_work) && b_finite;
        for (int step = 0; step < 2 - finite; step++) {
            if (step) {
                may_keep = 0;
                silo_only_finite((uint16_t *)left_work, (m + 15) / 16 * 64 * depth);
                silo_only_finite((uint16_t *)panels, 4 * filled * depth);
            }
            for (int64_t j = 0; j < filled; j += 32)
                for (int64_t i = 0; i < m; i += 32)
                    silo_two_block(depth, left_work + 2 * i * depth, 32 * depth,
                                   panels + 2 * j * depth, 32 * depth, c + i * n + j, 16 * n, n,
                                   fresh && !p && !step, i + high < m, j + 16 < filled, turned,
                                   !step, step || finite);
        }
    }
    __asm__ volatile("tilerelease");
    if (kept)
        *kept = (silo_kept){may_keep ? b.at : 0, b.row, b.column, k, columns};
}
