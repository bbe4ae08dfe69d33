/* c[m][n] += a[m][k] * b[k][n] for i8 operands and i32 sums, row-major, sizes constant where it is
   called. Rows of b are widened vector by vector; c must not overlap a or b. */

typedef int32_t silo_vector_i32
    __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(4), may_alias));
typedef int8_t silo_quarter_i8
    __attribute__((vector_size(SILO_VECTOR_BYTES / 4), aligned(1), may_alias));

enum { SILO_LANES_i8 = SILO_VECTOR_BYTES / 4 };

SILO_INLINE void silo_dot_block_i8(const int rows, int64_t k, const int8_t *a, int64_t lda,
                                   const int8_t *b, int64_t ldb, int32_t *c, int64_t ldc) {
    silo_vector_i32 sum[8];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        sum[i] = *(const silo_vector_i32 *)(c + i * ldc);
    for (int64_t p = 0; p < k; p++) {
        const silo_quarter_i8 narrow = *(const silo_quarter_i8 *)(b + p * ldb);
        const silo_vector_i32 right = __builtin_convertvector(narrow, silo_vector_i32);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            sum[i] += (int32_t)a[i * lda + p] * right;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        *(silo_vector_i32 *)(c + i * ldc) = sum[i];
}

static __attribute__((noinline, unused)) void silo_dot_rows_i8(int64_t m, int64_t k,
                                                               const int8_t *a, int64_t lda,
                                                               const int8_t *b, int64_t ldb,
                                                               int32_t *c, int64_t ldc) {
    int64_t i = 0;
    for (; i + 8 <= m; i += 8)
        silo_dot_block_i8(8, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
    for (; i < m; i++)
        silo_dot_block_i8(1, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
}

static __attribute__((noinline, unused)) void silo_dot_columns_i8(int64_t m, int64_t n, int64_t k,
                                                                  const int8_t *a, int64_t lda,
                                                                  const int8_t *b, int64_t ldb,
                                                                  int32_t *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++)
                c[i * ldc + j] += (int32_t)a[i * lda + p] * (int32_t)b[p * ldb + j];
}

SILO_INLINE void silo_dot_i8(int64_t m, int64_t n, int64_t k, const int8_t *a, int64_t lda,
                             const int8_t *b, int64_t ldb, int32_t *c, int64_t ldc) {
    const int64_t left = n % SILO_LANES_i8, whole = n - left;
    for (int64_t j = 0; j < whole; j += SILO_LANES_i8)
        silo_dot_rows_i8(m, k, a, lda, b + j, ldb, c + j, ldc);
    if (left)
        silo_dot_columns_i8(m, left, k, a, lda, b + whole, ldb, c + whole, ldc);
}
