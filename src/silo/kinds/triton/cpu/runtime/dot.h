/* c[m][n] += a[m][k] * b[k][n]: a block of rows x (vectors * lanes) of c stays in registers for up
 * to SILO_DOT_DEPTH steps of k. The left operand is read as single elements from wherever it is.
 * The right operand is read as vectors, from packed panels unless its rows are close together. c is
 * row-major without gaps and must not overlap a or b. Operands of i8 are multiplied as floats into
 * totals of i32: the sum over one depth is below 2^24, so it is exact. */

typedef REAL silo_vector_KIND
    __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(__alignof__(REAL)), may_alias));
typedef TOTAL silo_totals_KIND
    __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(__alignof__(TOTAL)), may_alias));

enum {
    SILO_LANES_KIND = SILO_VECTOR_BYTES / (int)sizeof(REAL),
    SILO_DOT_DEPTH_KIND = SILO_DOT_DEPTH_BYTES / (int)sizeof(REAL),
    /* The most bytes of b that are read in place. */
    SILO_DOT_NEAR_KIND = 20480,
};

/* Computes one block. The distances between elements are a_row (rows of a), a_step (along k in a),
 * b_step (rows of b) and b_next (vectors in a row of b). */
SILO_INLINE void silo_dot_block_KIND(const int rows, const int vectors, int64_t k, const REAL *a,
                                     int64_t a_row, int64_t a_step, const REAL *b, int64_t b_step,
                                     int64_t b_next, TOTAL *c, int64_t ldc, int fresh) {
    silo_vector_KIND sum[16][4];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < vectors; j++)
            sum[i][j] = (silo_vector_KIND){0};
    for (int64_t p = 0; p < k; p++) {
        silo_vector_KIND right[4];
#pragma GCC unroll 16
        for (int j = 0; j < vectors; j++)
            right[j] = *(const silo_vector_KIND *)(b + j * b_next);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const REAL left = a[i * a_row];
#pragma GCC unroll 16
            for (int j = 0; j < vectors; j++)
                sum[i][j] += left * right[j];
        }
        a += a_step;
        b += b_step;
    }
    /* The address advances from row to row: if each row's address were computed from `c`, gcc would
     * keep the distances of all rows on the stack. */
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, c += ldc)
#pragma GCC unroll 16
        for (int j = 0; j < vectors; j++) {
            silo_totals_KIND *place = (silo_totals_KIND *)(c + j * SILO_LANES_KIND);
            const silo_totals_KIND add = __builtin_convertvector(sum[i][j], silo_totals_KIND);
            if (fresh)
                *place = add;
            else
                *place += add;
        }
}

typedef void silo_dot_kernel_KIND(int64_t m, int64_t k, const REAL *a, int64_t a_row,
                                  int64_t a_step, const REAL *b, int64_t b_step, int64_t b_next,
                                  TOTAL *c, int64_t ldc, int fresh);

/* Defines the function that multiplies blocks of ROWS x VECTORS, one below the other, over m rows.
 */
#define SILO_DOT_KERNEL_KIND(ROWS, VECTORS)                                                        \
    SILO_APART void silo_dot_KIND_##ROWS##x##VECTORS(                                              \
        int64_t m, int64_t k, const REAL *a, int64_t a_row, int64_t a_step, const REAL *b,         \
        int64_t b_step, int64_t b_next, TOTAL *c, int64_t ldc, int fresh) {                        \
        for (int64_t i = 0; i < m; i += ROWS)                                                      \
            silo_dot_block_KIND(ROWS, VECTORS, k, a + i * a_row, a_row, a_step, b, b_step, b_next, \
                                c + i * ldc, ldc, fresh);                                          \
    }

/* The function that converts an operand of another type: of a left operand all rows of `depth`
 * columns from column `first` on, without gaps and in the operand's own order; of a right operand
 * the panels of `depth` rows from row `first` on. `extent` is the number of rows (left) or columns
 * (right). */
typedef void silo_dot_read_KIND(silo_tile from, int64_t first, int64_t depth, int64_t extent,
                                REAL *to);

/* Computes m of `most` rows and `columns` of n columns; n is a multiple of the lanes. The contents
 * of the remaining sums are undefined. `full` computes blocks of `rows` x `vectors`, `rest` the
 * last rows of `most` that fill no block, and `narrow` one vector of `rows` rows. `work` is memory
 * for the output of the readers, and for a block of rows of a left operand that is otherwise read
 * in place. With `kept`, the panels of all of k, up to `room` values, outlive the call. */
SILO_APART void silo_dot_KIND(const int64_t most, int64_t m, const int64_t n, int64_t columns,
                              int64_t k, silo_tile a, silo_dot_read_KIND *left, silo_tile b,
                              silo_dot_read_KIND *right, const int near, TOTAL *c, int fresh,
                              silo_dot_kernel_KIND *full, const int64_t rows,
                              silo_dot_kernel_KIND *rest, const int64_t vectors,
                              silo_dot_kernel_KIND *narrow, REAL *left_work, REAL *right_work,
                              silo_kept *kept, int64_t room) {
    const int64_t width = vectors * SILO_LANES_KIND, top = m - m % rows;
    const int64_t filled = (columns + SILO_LANES_KIND - 1) / SILO_LANES_KIND * SILO_LANES_KIND;
    const int whole = kept && k * n <= room;
    const int made = whole && silo_is_kept(kept, b, k, columns);
    /* Panels are worth packing if several blocks of rows use them, and b is larger than the
     * first-level cache or its rows are so far apart that they compete for the same cache sets. */
    const int in_place = near && !kept && b.column == 1 && columns == n &&
                         (m < 4 * rows || k * b.row * (int64_t)sizeof(REAL) <= SILO_DOT_NEAR_KIND);
    for (int64_t p = 0; p < k; p += SILO_DOT_DEPTH_KIND) {
        const int64_t depth = k - p < SILO_DOT_DEPTH_KIND ? k - p : SILO_DOT_DEPTH_KIND;
        const REAL *from = (const REAL *)a.at + p * a.column, *last = from + top * a.row;
        int64_t a_row = a.row, a_step = a.column, last_row = a_row, last_step = a_step;
        if (left) {
            left(a, p, depth, m, left_work);
            const int turned = a.column != 1 && a.row == 1;
            a_row = last_row = turned ? 1 : depth;
            a_step = last_step = turned ? m : 1;
            from = left_work;
            last = from + top * a_row;
        } else if (top < m && m < most) {
            for (int64_t i = 0; i < m - top; i++)
                for (int64_t q = 0; q < depth; q++)
                    left_work[q * rows + i] = last[i * a_row + q * a_step];
            last = left_work;
            last_row = 1;
            last_step = rows;
        }
        const REAL *panels = (const REAL *)b.at + p * b.row;
        int64_t b_step = b.row, b_next = SILO_LANES_KIND;
        if (!in_place) {
            REAL *to = right_work + (whole ? p * filled : 0);
            if (!made)
                right(b, p, depth, columns, to);
            panels = to;
            b_step = SILO_LANES_KIND;
            b_next = depth * SILO_LANES_KIND;
        }
        for (int64_t j = 0; j < filled; j += width) {
            const REAL *panel = panels + j / SILO_LANES_KIND * b_next;
            if (j + width <= filled) {
                if (top)
                    full(top, depth, from, a_row, a_step, panel, b_step, b_next, c + j, n,
                         fresh && !p);
            } else
                for (int64_t v = 0; top && j + v < filled; v += SILO_LANES_KIND)
                    narrow(top, depth, from, a_row, a_step, panel + v / SILO_LANES_KIND * b_next,
                           b_step, b_next, c + j + v, n, fresh && !p);
            /* For rows that fill no whole block, the block also computes rows and columns outside
             * of the product, from whatever the buffers contain. */
            if (top < m)
                (top + rows <= most ? full : rest)(m - top, depth, last, last_row, last_step, panel,
                                                   b_step, b_next, c + top * n + j, n, fresh && !p);
        }
    }
    if (kept)
        *kept = (silo_kept){whole ? b.at : 0, b.row, b.column, k, columns};
}
