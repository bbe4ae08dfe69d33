/* c[m][n] += a[m][k] * b[k][n], row-major, for tiles whose sizes are constants where it is called.
   A block of rows x (vectors * lanes) of c stays in registers over k. Where rows of b are far
   apart, each panel of b is first copied to the stack, so that the inner loop reads it in order. c
   must not overlap a or b. */

typedef float silo_vector_f32
    __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(__alignof__(float)), may_alias));

enum {
    SILO_LANES_f32 = SILO_VECTOR_BYTES / (int)sizeof(float),
    /* Vectors and rows of one block: its sums, one row of b and one element of a fill the
       registers. */
    SILO_DOT_VECTORS_f32 = 2,
    SILO_DOT_ROWS_f32 = SILO_VECTOR_BYTES > 32 ? 8
    : SILO_VECTOR_BYTES > 16                   ? 6
                                               : 4,
    /* Rows of b in one packed panel: at most 32 KiB of stack. */
    SILO_DOT_PANEL_f32 = 256,
    /* Bytes of b that are read in place. */
    SILO_DOT_NEAR_f32 = 20480,
};

SILO_INLINE void silo_dot_block_f32(const int rows, const int vectors, int64_t k, const float *a,
                                    int64_t lda, const float *b, int64_t ldb, float *c,
                                    int64_t ldc) {
    silo_vector_f32 sum[SILO_DOT_ROWS_f32][SILO_DOT_VECTORS_f32];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < vectors; j++)
            sum[i][j] = *(const silo_vector_f32 *)(c + i * ldc + j * SILO_LANES_f32);
    for (int64_t p = 0; p < k; p++) {
        silo_vector_f32 right[SILO_DOT_VECTORS_f32];
#pragma GCC unroll 16
        for (int j = 0; j < vectors; j++)
            right[j] = *(const silo_vector_f32 *)(b + p * ldb + j * SILO_LANES_f32);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            float left = a[i * lda + p];
#pragma GCC unroll 16
            for (int j = 0; j < vectors; j++)
                sum[i][j] += left * right[j];
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < vectors; j++)
            *(silo_vector_f32 *)(c + i * ldc + j * SILO_LANES_f32) = sum[i][j];
}

/* One function per block shape, so that a kernel with many dots carries each shape once. */
static __attribute__((noinline, unused)) void silo_dot_full_f32(int64_t m, int64_t k,
                                                                const float *a, int64_t lda,
                                                                const float *b, int64_t ldb,
                                                                float *c, int64_t ldc) {
    for (int64_t i = 0; i + SILO_DOT_ROWS_f32 <= m; i += SILO_DOT_ROWS_f32)
        silo_dot_block_f32(SILO_DOT_ROWS_f32, SILO_DOT_VECTORS_f32, k, a + i * lda, lda, b, ldb,
                           c + i * ldc, ldc);
}

static __attribute__((noinline, unused)) void silo_dot_four_f32(int64_t k, const float *a,
                                                                int64_t lda, const float *b,
                                                                int64_t ldb, float *c,
                                                                int64_t ldc) {
    silo_dot_block_f32(4, SILO_DOT_VECTORS_f32, k, a, lda, b, ldb, c, ldc);
}

static __attribute__((noinline, unused)) void silo_dot_two_f32(int64_t k, const float *a,
                                                               int64_t lda, const float *b,
                                                               int64_t ldb, float *c, int64_t ldc) {
    silo_dot_block_f32(2, SILO_DOT_VECTORS_f32, k, a, lda, b, ldb, c, ldc);
}

static __attribute__((noinline, unused)) void silo_dot_one_f32(int64_t m, int64_t k, const float *a,
                                                               int64_t lda, const float *b,
                                                               int64_t ldb, float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        silo_dot_block_f32(1, SILO_DOT_VECTORS_f32, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
}

/* Columns that fill no pair of vectors: one vector at a time, then one column at a time. */
static __attribute__((noinline, unused)) void silo_dot_narrow_f32(int64_t m, int64_t k,
                                                                  const float *a, int64_t lda,
                                                                  const float *b, int64_t ldb,
                                                                  float *c, int64_t ldc) {
    int64_t i = 0;
    for (; i + 4 <= m; i += 4)
        silo_dot_block_f32(4, 1, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
    for (; i < m; i++)
        silo_dot_block_f32(1, 1, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
}

static __attribute__((noinline, unused)) void silo_dot_columns_f32(int64_t m, int64_t n, int64_t k,
                                                                   const float *a, int64_t lda,
                                                                   const float *b, int64_t ldb,
                                                                   float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++)
                c[i * ldc + j] += a[i * lda + p] * b[p * ldb + j];
}

/* The rows of one full-width panel: blocks of the best height, then what is left of m. */
SILO_INLINE void silo_dot_panel_f32(int64_t m, int64_t k, const float *a, int64_t lda,
                                    const float *b, int64_t ldb, float *c, int64_t ldc) {
    const int64_t left = m % SILO_DOT_ROWS_f32;
    int64_t i = m - left;
    if (i > 0)
        silo_dot_full_f32(i, k, a, lda, b, ldb, c, ldc);
    if (left & 4) {
        silo_dot_four_f32(k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
        i += 4;
    }
    if (left & 2) {
        silo_dot_two_f32(k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
        i += 2;
    }
    if (left & 1)
        silo_dot_one_f32(1, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
}

static __attribute__((noinline, unused)) void silo_dot_pack_f32(int64_t k, const float *b,
                                                                int64_t ldb, float *packed) {
    for (int64_t p = 0; p < k; p++)
#pragma GCC unroll 4
        for (int j = 0; j < SILO_DOT_VECTORS_f32; j++)
            *(silo_vector_f32 *)(packed + (p * SILO_DOT_VECTORS_f32 + j) * SILO_LANES_f32) =
                *(const silo_vector_f32 *)(b + p * ldb + j * SILO_LANES_f32);
}

SILO_INLINE void silo_dot_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                              const float *b, int64_t ldb, float *c, int64_t ldc) {
    const int64_t width = SILO_DOT_VECTORS_f32 * SILO_LANES_f32;
    /* Packing pays when a panel is used by several blocks of rows, and b is too large for the
       first-level cache or has rows so far apart that they compete for its sets. */
    const int64_t spread = k * ldb * (int64_t)sizeof(float);
    if (m >= 4 * SILO_DOT_ROWS_f32 && n >= width && spread > SILO_DOT_NEAR_f32) {
        _Alignas(64) float packed[SILO_DOT_PANEL_f32 * SILO_DOT_VECTORS_f32 * SILO_LANES_f32];
        for (int64_t p = 0; p < k; p += SILO_DOT_PANEL_f32) {
            const int64_t depth = k - p < SILO_DOT_PANEL_f32 ? k - p : SILO_DOT_PANEL_f32;
            for (int64_t j = 0; j + width <= n; j += width) {
                silo_dot_pack_f32(depth, b + p * ldb + j, ldb, packed);
                silo_dot_panel_f32(m, depth, a + p, lda, packed, width, c + j, ldc);
            }
        }
    } else {
        for (int64_t j = 0; j + width <= n; j += width)
            silo_dot_panel_f32(m, k, a, lda, b + j, ldb, c + j, ldc);
    }
    int64_t j = n - n % width;
    if (n % width >= SILO_LANES_f32) {
        silo_dot_narrow_f32(m, k, a, lda, b + j, ldb, c + j, ldc);
        j += SILO_LANES_f32;
    }
    if (n % SILO_LANES_f32 != 0)
        silo_dot_columns_f32(m, n - j, k, a, lda, b + j, ldb, c + j, ldc);
}
