/* c[m][n] += a[m][k] * b[k][n] by instructions that this CPU may have beyond its CPU level, which
 * is x86-64-v4. They take 32-bit words that hold SHARE consecutive k of one row or column: 2 of
 * bf16, 4 of i8. Panels of the right operand are rows of SILO_LANES_KIND such words. */

enum {
    SILO_SHARE_KIND = 4 / (int)sizeof(ITEM),
    SILO_WORDS_KIND = SILO_VECTOR_BYTES / 4,
    /* The words of one row or column in one pass: panels of two vectors stay in the first-level
     * cache. */
    SILO_DEPTH_KIND = 256,
};

typedef uint32_t silo_words_KIND
    __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(4), may_alias));
typedef TOTAL silo_sums_KIND __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(4), may_alias));
typedef ITEM silo_items_KIND
    __attribute__((vector_size(SILO_WORDS_KIND * sizeof(ITEM)), aligned(sizeof(ITEM)), may_alias));

/* Packs panels of `words` words from `depth` rows of a right tile, beginning with row `first`.
 * Elements beyond these rows, and columns beyond the last, are 0. */
SILO_APART void silo_pack_KIND(silo_tile from, int64_t first, int64_t depth, int64_t words,
                               int64_t columns, uint32_t *to) {
    const ITEM *at = (const ITEM *)from.at + first * from.row;
    if (from.column != 1 && from.row == 1) {
        silo_turn_panels((const char *)(const void *)at, from.column * (int64_t)sizeof(ITEM),
                         depth * (int64_t)sizeof(ITEM), words, columns, to);
        return;
    }
    for (int64_t q = 0; q < words; q++, at += SILO_SHARE_KIND * from.row)
        for (int64_t j = 0; j < columns; j += SILO_WORDS_KIND) {
            uint32_t *row = to + j * words + q * SILO_WORDS_KIND;
            const int64_t left = depth - q * SILO_SHARE_KIND;
            silo_words_KIND word = {0};
            if (from.column == 1 && j + SILO_WORDS_KIND <= columns && left >= SILO_SHARE_KIND) {
#pragma GCC unroll 4
                for (int i = 0; i < SILO_SHARE_KIND; i++)
                    word |= __builtin_convertvector(
                                *(const silo_items_KIND *)(at + i * from.row + j), silo_words_KIND)
                            << (uint32_t)(i * 8 * (int)sizeof(ITEM));
                *(silo_words_KIND *)row = word;
            } else if (from.column == 1) {
                for (int i = 0; i < SILO_SHARE_KIND && i < left; i++) {
                    ITEM some[SILO_WORDS_KIND] = {0};
                    for (int64_t l = 0; l < SILO_WORDS_KIND && j + l < columns; l++)
                        some[l] = at[i * from.row + j + l];
                    word |= __builtin_convertvector(*(const silo_items_KIND *)some, silo_words_KIND)
                            << (uint32_t)(i * 8 * (int)sizeof(ITEM));
                }
                *(silo_words_KIND *)row = word;
            } else
                for (int64_t l = 0; l < SILO_WORDS_KIND; l++) {
                    row[l] = 0;
                    for (int64_t i = 0; j + l < columns && i < SILO_SHARE_KIND && i < left; i++)
                        row[l] |= (uint32_t)at[i * from.row + (j + l) * from.column]
                                  << (i * 8 * (int64_t)sizeof(ITEM));
                }
        }
}

/* Packs rows of `words` words from `depth` columns of a left tile that cannot be read in place. If
 * its rows are not contiguous, the tile is packed like a right tile and then transposed. Rows up to
 * the next multiple of 16, and columns beyond the last, are 0. `work` is memory for twice the rows.
 */
SILO_APART const ITEM *silo_turn_KIND(silo_tile from, int64_t first, int64_t depth, int64_t words,
                                      int64_t rows, uint32_t *work) {
    const int64_t filled = (rows + 15) / 16 * 16;
    const silo_tile turned = {from.at, from.column, from.row};
    uint32_t *to = work + filled * words;
    if (from.column == 1) { /* contiguous: rows are copied and padded with zeros */
        ITEM *row = (ITEM *)(void *)work;
        for (int64_t i = 0; i < filled; i++, row += words * SILO_SHARE_KIND) {
            const int64_t some = i < rows ? depth : 0, bytes = some * (int64_t)sizeof(ITEM);
            if (some)
                __builtin_memcpy(row, (const ITEM *)from.at + first + i * from.row,
                                 (uint64_t)bytes);
            __builtin_memset(row + some, 0, (uint64_t)(4 * words - bytes));
        }
        return (const ITEM *)(const void *)work;
    }
    silo_pack_KIND(turned, first, depth, words, rows, work);
    for (int64_t i = 0; i < filled; i++)
        for (int64_t q = 0; q < words; q++)
            to[i * words + q] = work[i / SILO_WORDS_KIND * SILO_WORDS_KIND * words +
                                     q * SILO_WORDS_KIND + i % SILO_WORDS_KIND];
    return (const ITEM *)(const void *)to;
}

/* Copies rows of `depth` contiguous items as matrix tiles, which are as wide as a line of memory:
 * of 16 rows the first lines, then their second lines, up to `words` words, a multiple of 16. Rows
 * up to the next multiple of 16, and items beyond the last, are 0. */
SILO_APART const ITEM *silo_line_up_KIND(silo_tile from, int64_t first, int64_t depth,
                                         int64_t words, int64_t rows, uint32_t *to) {
    const int64_t filled = (rows + 15) / 16 * 16;
    for (int64_t i = 0; i < filled; i++) {
        const char *row =
            (const char *)((const ITEM *)from.at + first + (i < rows ? i : 0) * from.row);
        uint32_t *line = to + i / 16 * 16 * words + i % 16 * 16;
        int64_t bytes = i < rows ? depth * (int64_t)sizeof(ITEM) : 0;
        for (int64_t q = 0; q < words; q += 16, row += 64, bytes -= 64, line += 256)
            silo_copy_some(row, bytes, line);
    }
    return (const ITEM *)(const void *)to;
}

/* ---- matrix tiles: 2 x 2 tiles of 16 x 16 sums stay in registers */

typedef struct {
    uint8_t palette, start, unused[14];
    uint16_t bytes[16]; /* bytes in a row of each tile */
    uint8_t rows[16];
} silo_shape_KIND;

/* Computes one block of up to 2 x 2 tiles. Tiles of `a` are a_step items apart along the depth and
 * a_next along the rows, and the rows of a tile are a_row apart. If `tail` is not NULL, the last
 * tiles of the depth are read from there, where they lie one after the other. */
SILO_INLINE void silo_tiles_block_KIND(int64_t words, int64_t step, const ITEM *a, int64_t a_row,
                                       int64_t a_step, int64_t a_next, const ITEM *tail,
                                       const uint32_t *b, int64_t b_next, TOTAL *c, int64_t c_next,
                                       int64_t ldc, int fresh, int two_rows, int two_columns) {
    const int64_t c_bytes = ldc * 4, b_bytes = 64;
    int64_t a_bytes = a_row * (int64_t)sizeof(ITEM);
    if (fresh) {
        __asm__ volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3"
                         :
                         :
                         : "memory");
    } else {
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
    for (int64_t q = 0; q < words; q += step, a += a_step, b += step * 16) {
        if (tail && q + step == words) {
            a = tail;
            a_bytes = 64;
            a_next = 256 * SILO_SHARE_KIND;
        }
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm6\n\ttileloadd (%2,%3,1), %%tmm4\n\t"
                         "MULTIPLY %%tmm6, %%tmm4, %%tmm0"
                         :
                         : "r"(b), "r"(b_bytes), "r"(a), "r"(a_bytes)
                         : "memory");
        if (two_columns)
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm7\n\tMULTIPLY %%tmm7, %%tmm4, %%tmm1"
                             :
                             : "r"(b + b_next), "r"(b_bytes)
                             : "memory");
        if (two_rows)
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm5\n\tMULTIPLY %%tmm6, %%tmm5, %%tmm2"
                             :
                             : "r"(a + a_next), "r"(a_bytes)
                             : "memory");
        if (two_rows && two_columns)
            __asm__ volatile("MULTIPLY %%tmm7, %%tmm5, %%tmm3" : : : "memory");
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

/* ---- vectors: sums of 4 rows x 2 vectors, or 8 rows x 1 */

SILO_INLINE void silo_vectors_block_KIND(const int rows, const int vectors, int64_t words,
                                         const ITEM *a, int64_t a_row, const uint32_t *b,
                                         int64_t b_next, TOTAL *c, int64_t ldc, int fresh) {
    silo_sums_KIND sum[8][2], bias[2];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] = (silo_sums_KIND){0};
    bias[0] = bias[1] = (silo_sums_KIND){0};
    for (int64_t q = 0; q < words; q++) {
        silo_words_KIND right[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            right[j] = *(const silo_words_KIND *)(b + j * b_next + q * SILO_WORDS_KIND);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            uint32_t word;
            __builtin_memcpy(&word, a + i * a_row + q * SILO_SHARE_KIND, sizeof word);
            const silo_words_KIND left = (word ^ SIGNS) - (silo_words_KIND){0};
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                __asm__("ACCUMULATE %2, %1, %0" : "+v"(sum[i][j]) : "v"(left), "v"(right[j]));
        }
        if (SIGNS) {
            const silo_words_KIND shift = (uint32_t)SIGNS - (silo_words_KIND){0};
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                __asm__("ACCUMULATE %2, %1, %0" : "+v"(bias[j]) : "v"(shift), "v"(right[j]));
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            silo_sums_KIND *place = (silo_sums_KIND *)(c + i * ldc + j * SILO_WORDS_KIND);
            silo_sums_KIND add = sum[i][j];
            if (SIGNS)
                add -= bias[j];
            if (fresh)
                *place = add;
            else
                *place += add;
        }
}

/* Computes m rows in blocks of several rows and vectors; rows and vectors that fill no block are
 * computed one by one. */
SILO_APART void silo_vectors_rows_KIND(int64_t m, int64_t n, int64_t words, const ITEM *a,
                                       int64_t a_row, const uint32_t *b, TOTAL *c, int64_t ldc,
                                       int fresh) {
    const int64_t next = words * SILO_WORDS_KIND, top = m - m % 4;
    int64_t j = 0;
    for (; j + 2 * SILO_WORDS_KIND <= n; j += 2 * SILO_WORDS_KIND) {
        for (int64_t i = 0; i < top; i += 4)
            silo_vectors_block_KIND(4, 2, words, a + i * a_row, a_row, b + j * words, next,
                                    c + i * ldc + j, ldc, fresh);
        for (int64_t i = top; i < m; i++)
            silo_vectors_block_KIND(1, 2, words, a + i * a_row, a_row, b + j * words, next,
                                    c + i * ldc + j, ldc, fresh);
    }
    if (j < n) {
        int64_t i = 0;
        for (; i + 8 <= m; i += 8)
            silo_vectors_block_KIND(8, 1, words, a + i * a_row, a_row, b + j * words, 0,
                                    c + i * ldc + j, ldc, fresh);
        for (; i < top; i += 4)
            silo_vectors_block_KIND(4, 1, words, a + i * a_row, a_row, b + j * words, 0,
                                    c + i * ldc + j, ldc, fresh);
        for (; i < m; i++)
            silo_vectors_block_KIND(1, 1, words, a + i * a_row, a_row, b + j * words, 0,
                                    c + i * ldc + j, ldc, fresh);
    }
}

/* Computes m rows with matrix tiles of `rows` rows each. The rows of `a` are a_row items apart, or,
 * if `lined` is set, in the form that silo_line_up_KIND writes. If `tail` is not NULL, it has the
 * last words of the depth in that form. */
SILO_APART void silo_tiles_rows_KIND(int64_t rows, int64_t m, int64_t n, int64_t words,
                                     int64_t step, const ITEM *a, int64_t a_row, int lined,
                                     const ITEM *tail, const uint32_t *b, TOTAL *c, int64_t ldc,
                                     int fresh) {
    const int64_t b_next = words * 16, line = 16 * SILO_SHARE_KIND;
    const int64_t a_step = lined ? 16 * line : step * SILO_SHARE_KIND;
    const int64_t each = lined ? words * SILO_SHARE_KIND : a_row;
    for (int64_t j = 0; j < n; j += 32)
        for (int64_t i = 0; i < m; i += 2 * rows)
            silo_tiles_block_KIND(words, step, a + i * each, lined ? line : a_row, a_step,
                                  rows * each, tail ? tail + i * line : 0, b + j * words, b_next,
                                  c + i * ldc + j, rows * ldc, ldc, fresh, i + rows < m,
                                  j + 16 < n);
}

/* Computes the product with matrix tiles or vectors, whichever the CPU has. The last words are
 * filled with zeros if k is not a multiple of SHARE, or if tiles would otherwise be less than 16
 * words deep. The arguments are those of silo_dot_f32. */
SILO_APART void silo_dot_packed_KIND(const int tiles, const int own, int64_t most, int64_t m,
                                     int64_t n, int64_t columns, int64_t k, silo_tile a,
                                     silo_tile b, TOTAL *c, int fresh, uint32_t *left_work,
                                     uint32_t *right_work, silo_kept *kept, int64_t room) {
    const int64_t exact = (k + SILO_SHARE_KIND - 1) / SILO_SHARE_KIND, low = exact & -exact;
    const int thin = tiles && low < 16 && exact > 16;
    const int64_t words = thin ? (exact + 15) / 16 * 16 : exact;
    const int64_t step = thin || low > 16 ? 16 : low;
    const int64_t filled = (columns + SILO_WORDS_KIND - 1) / SILO_WORDS_KIND * SILO_WORDS_KIND;
    const int64_t high = most < 16 ? most : 16; /* rows of a tile */
    const int whole = kept && words * filled <= room;
    const int made = whole && silo_is_kept(kept, b, k, columns);
    if (tiles) {
        silo_shape_KIND shape = {1, 0, {0}, {0}, {0}};
        for (int i = 0; i < 8; i++) {
            shape.rows[i] = (uint8_t)(i < 6 ? high : step);
            shape.bytes[i] = (uint16_t)(i == 4 || i == 5 ? 4 * step : 64);
        }
        __asm__ volatile("ldtilecfg %0" : : "m"(shape));
    }
    for (int64_t p = 0; p < words; p += SILO_DEPTH_KIND) {
        const int64_t depth = words - p < SILO_DEPTH_KIND ? words - p : SILO_DEPTH_KIND;
        const int64_t first = p * SILO_SHARE_KIND, wanted = depth * SILO_SHARE_KIND;
        const int64_t items = k - first < wanted ? k - first : wanted;
        const int starts = fresh && !p;
        const ITEM *from = (const ITEM *)a.at + first;
        const ITEM *tail = 0;
        int64_t a_row = a.row;
        int lined = 0;
        if (tiles && a.column == 1 && step == 16 && (items < wanted || m % high)) {
            /* Rows of whole tiles are read in place, except for their last words. */
            const int64_t before = m % high ? 0 : depth - 16, left = before * SILO_SHARE_KIND;
            const ITEM *copy =
                silo_line_up_KIND(a, first + left, items - left, depth - before, m, left_work);
            lined = m % high != 0;
            if (lined)
                from = copy;
            else
                tail = copy;
        } else if ((tiles || own) && (a.column != 1 || items < wanted || (tiles && m % high))) {
            from = silo_turn_KIND(a, first, items, depth, m, left_work);
            a_row = wanted;
        }
        uint32_t *panels = right_work + (whole ? p * filled : 0);
        if (!made)
            silo_pack_KIND(b, first, items, depth, columns, panels);
        if (tiles)
            silo_tiles_rows_KIND(high, m, filled, depth, step, from, a_row, lined, tail, panels, c,
                                 n, starts);
        else if (own)
            silo_vectors_rows_KIND(m, filled, depth, from, a_row, panels, c, n, starts);
        else
            OTHERWISE;
    }
    if (tiles)
        __asm__ volatile("tilerelease");
    if (kept)
        *kept = (silo_kept){whole ? b.at : 0, b.row, b.column, k, columns};
}
