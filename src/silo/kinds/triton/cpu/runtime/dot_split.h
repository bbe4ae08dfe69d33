/* Products of words of two bf16 with the instructions of the CPU level alone: the left operand is
 * widened first, and each word of the right operand is split into two floats when it is read. */

SILO_INLINE void silo_split_block(const int rows, const int vectors, int64_t words, const float *a,
                                  int64_t a_row, int64_t a_step, const uint32_t *b, int64_t b_next,
                                  float *c, int64_t ldc, int fresh) {
    enum { LANES = SILO_VECTOR_BYTES / 4 };
    typedef float floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
    typedef uint32_t bits __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
    floats sum[8][2];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] = (floats){0};
    for (int64_t q = 0; q < words; q++, b += LANES, a += 2 * a_step)
#pragma GCC unroll 2
        for (int part = 0; part < 2; part++) {
            floats right[2];
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) {
                const bits word = *(const bits *)(b + j * b_next);
                const bits whole = part ? word : word << (uint32_t)16;
                right[j] = (floats)(whole & (uint32_t)0xffff0000u);
            }
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) {
                const float left = a[i * a_row + part * a_step];
#pragma GCC unroll 2
                for (int j = 0; j < vectors; j++)
                    sum[i][j] += left * right[j];
            }
        }
    /* The address advances from row to row: if each row's address were computed from `c`, gcc would
     * keep the distances of all rows on the stack. */
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++, c += ldc)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            floats *place = (floats *)(c + j * LANES);
            if (fresh)
                *place = sum[i][j];
            else
                *place += sum[i][j];
        }
}

SILO_APART void silo_split_8x2(int64_t m, int64_t words, const float *a, int64_t row, int64_t step,
                               const uint32_t *b, float *c, int64_t ldc, int fresh) {
    for (int64_t i = 0; i < m; i += 8)
        silo_split_block(8, 2, words, a + i * row, row, step, b, words * (SILO_VECTOR_BYTES / 4),
                         c + i * ldc, ldc, fresh);
}

SILO_APART void silo_split_8x1(int64_t m, int64_t words, const float *a, int64_t row, int64_t step,
                               const uint32_t *b, float *c, int64_t ldc, int fresh) {
    for (int64_t i = 0; i < m; i += 8)
        silo_split_block(8, 1, words, a + i * row, row, step, b, words * (SILO_VECTOR_BYTES / 4),
                         c + i * ldc, ldc, fresh);
}

SILO_APART void silo_split_1x2(int64_t m, int64_t words, const float *a, int64_t row, int64_t step,
                               const uint32_t *b, float *c, int64_t ldc, int fresh) {
    for (int64_t i = 0; i < m; i += 1)
        silo_split_block(1, 2, words, a + i * row, row, step, b, words * (SILO_VECTOR_BYTES / 4),
                         c + i * ldc, ldc, fresh);
}

SILO_APART void silo_split_1x1(int64_t m, int64_t words, const float *a, int64_t row, int64_t step,
                               const uint32_t *b, float *c, int64_t ldc, int fresh) {
    for (int64_t i = 0; i < m; i += 1)
        silo_split_block(1, 1, words, a + i * row, row, step, b, words * (SILO_VECTOR_BYTES / 4),
                         c + i * ldc, ldc, fresh);
}

/* c[m][n] += a * b over `items` of k from `first` on, which are `words` words. `left` is memory for
 * `most` rows of floats. The contents of the sums between row m and the next block's end are
 * undefined. */
SILO_APART void silo_split_rows(int64_t most, int64_t m, int64_t n, int64_t first, int64_t items,
                                int64_t words, silo_tile a, float *left, const uint32_t *b,
                                float *c, int64_t ldc, int fresh) {
    enum { LANES = SILO_VECTOR_BYTES / 4 };
    const int turned = a.column != 1 && a.row == 1;
    const int64_t row = turned ? 1 : 2 * words, step = turned ? m : 1;
    const int64_t high = most % 8 == 0 ? 8 : 1;
    if (turned || items == 2 * words)
        silo_dot_left_bf16(a, first, items, m, left);
    else
        for (int64_t i = 0; i < m; i++) {
            const silo_tile one = {(const uint16_t *)a.at + i * a.row, a.row, a.column};
            silo_dot_left_bf16(one, first, items, 1, left + i * row);
        }
    /* Clears the half of the last word that is beyond k: it could hold infinity, and 0 x inf is
     * NaN. */
    for (int64_t i = 0; i < m; i++)
        for (int64_t q = items; q < 2 * words; q++)
            left[i * row + q * step] = 0;
    for (int64_t j = 0; j < n; j += 2 * LANES) {
        const uint32_t *panel = b + j * words;
        if (high == 8 && j + LANES < n)
            silo_split_8x2(m, words, left, row, step, panel, c + j, ldc, fresh);
        else if (high == 8)
            silo_split_8x1(m, words, left, row, step, panel, c + j, ldc, fresh);
        else if (j + LANES < n)
            silo_split_1x2(m, words, left, row, step, panel, c + j, ldc, fresh);
        else
            silo_split_1x1(m, words, left, row, step, panel, c + j, ldc, fresh);
    }
}
