/* Products of few rows (or columns) whose operands of type ELEMENT are both contiguous along k:
 * sums of vectors along k, whose lanes are added at the end. Nothing is packed, because packing
 * panels pays only if several blocks use them. */

/* The end of a block: adds the lanes of its sums. It is a function of its own because a C compiler
 * takes longer to unroll it into every block than to compile all other functions of a product. */
SILO_APART void silo_thin_end_ELEMENT(const silo_thin_floats (*sums)[SILO_THIN_COLUMNS],
                                      const int rows, const int columns, float *c, int64_t c_row,
                                      int64_t c_column, int fresh) {
#pragma GCC unroll 1
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 1
        for (int j = 0; j < columns; j++) {
            float *const place = c + i * c_row + j * c_column;
            const float total = silo_thin_fold(sums[i][j]);
            *place = fresh ? total : *place + total;
        }
}

/* Computes one block of `rows` x `columns` sums; each column is read once. */
SILO_INLINE void silo_thin_block_ELEMENT(const int rows, const int columns, int64_t k,
                                         const CTYPE *a, int64_t a_row, const CTYPE *b,
                                         int64_t b_column, float *c, int64_t c_row,
                                         int64_t c_column, int fresh) {
    silo_thin_floats sum[SILO_THIN_ROWS][SILO_THIN_COLUMNS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
            sum[i][j] = (silo_thin_floats){0};
    int64_t p = 0;
    for (; p + SILO_THIN_LANES <= k; p += SILO_THIN_LANES) {
        silo_thin_floats right[SILO_THIN_COLUMNS];
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
            right[j] = silo_thin_read_ELEMENT(b + j * b_column + p);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            const silo_thin_floats left = silo_thin_read_ELEMENT(a + i * a_row + p);
#pragma GCC unroll 4
            for (int j = 0; j < columns; j++)
                sum[i][j] += left * right[j];
        }
    }
    if (p < k) {
        /* The bytes of the last k - p elements, written so that the compiler sees that they fit in
         * a row of `some`. */
        const uint64_t rest = (uint64_t)k % SILO_THIN_LANES * sizeof(CTYPE);
        CTYPE some[SILO_THIN_COLUMNS][SILO_THIN_LANES] = {{0}};
        for (int j = 0; j < columns; j++)
            __builtin_memcpy(some[j], b + j * b_column + p, rest);
        for (int i = 0; i < rows; i++) {
            CTYPE last[SILO_THIN_LANES] = {0};
            __builtin_memcpy(last, a + i * a_row + p, rest);
            for (int j = 0; j < columns; j++)
                sum[i][j] += silo_thin_read_ELEMENT(last) * silo_thin_read_ELEMENT(some[j]);
        }
    }
    silo_thin_floats sums[SILO_THIN_ROWS]
                         [SILO_THIN_COLUMNS]; /* a copy, so that `sum` itself stays in registers */
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
            sums[i][j] = sum[i][j];
    silo_thin_end_ELEMENT(sums, rows, columns, c, c_row, c_column, fresh);
}

SILO_INLINE void silo_thin_rows_ELEMENT(const int rows, int64_t n, int64_t k, const CTYPE *a,
                                        int64_t a_row, const CTYPE *b, int64_t b_column, float *c,
                                        int64_t c_row, int64_t c_column, int fresh) {
    int64_t j = 0;
    for (; j + SILO_THIN_COLUMNS <= n; j += SILO_THIN_COLUMNS)
        silo_thin_block_ELEMENT(rows, SILO_THIN_COLUMNS, k, a, a_row, b + j * b_column, b_column,
                                c + j * c_column, c_row, c_column, fresh);
    for (; j < n; j++)
        silo_thin_block_ELEMENT(rows, 1, k, a, a_row, b + j * b_column, b_column, c + j * c_column,
                                c_row, c_column, fresh);
}

/* c += a * b over m rows and n columns, if one of these numbers is small and k is contiguous in
 * both operands. Returns whether it computed the product. */
SILO_APART int silo_dot_thin_ELEMENT(int64_t m, int64_t n, int64_t k, silo_tile a, silo_tile b,
                                     float *c, int64_t ldc, int fresh) {
    if ((m > SILO_THIN_ROWS && n > SILO_THIN_ROWS) || k < 4 * SILO_THIN_LANES || a.column != 1 ||
        b.row != 1)
        return 0;
    const int turned = m > SILO_THIN_ROWS;
    const CTYPE *few = (const CTYPE *)(turned ? b.at : a.at);
    const CTYPE *many = (const CTYPE *)(turned ? a.at : b.at);
    const int64_t far = turned ? b.column : a.row, next = turned ? a.row : b.column;
    const int64_t row = turned ? 1 : ldc, column = turned ? ldc : 1, count = turned ? m : n;
    switch (turned ? n : m) {
    case 1:
        silo_thin_rows_ELEMENT(1, count, k, few, far, many, next, c, row, column, fresh);
        break;
    case 2:
        silo_thin_rows_ELEMENT(2, count, k, few, far, many, next, c, row, column, fresh);
        break;
    case 3:
        silo_thin_rows_ELEMENT(3, count, k, few, far, many, next, c, row, column, fresh);
        break;
    default:
        silo_thin_rows_ELEMENT(4, count, k, few, far, many, next, c, row, column, fresh);
    }
    return 1;
}
