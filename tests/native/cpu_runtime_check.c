/* Edge values through every function of the C runtime; appended to its text by
 * test_cpu_runtime_sanitized.py. */
int printf(const char *, ...);
void *malloc(unsigned long);
void free(void *);

static const double edges[] = {0.0,
                               -0.0,
                               1.0,
                               -1.0,
                               0.5,
                               -2.5,
                               1e-45,
                               -1e-40,
                               3e38,
                               -3e38,
                               65504.0,
                               65520.0,
                               2147483647.0,
                               2147483648.0,
                               -2147483649.0,
                               4294967296.0,
                               9.3e18,
                               -9.3e18,
                               1.9e19,
                               1e300,
                               __builtin_inf(),
                               -__builtin_inf(),
                               __builtin_nan("")};
static const int64_t wholes[] = {0,
                                 1,
                                 -1,
                                 2,
                                 -2,
                                 31,
                                 32,
                                 33,
                                 63,
                                 64,
                                 127,
                                 -128,
                                 255,
                                 65535,
                                 2147483647,
                                 -2147483647 - 1,
                                 9223372036854775807,
                                 -9223372036854775807 - 1};
static volatile double sink;

static void use(double value) {
    sink = value;
}

#define FP8(kind)                                                                                  \
    use(silo_##kind##_to_f32(silo_f32_to_##kind(x)));                                              \
    use(silo_##kind##_to_f32(silo_f32_to_##kind##_sat(silo_f64_to_f32_odd(d))));                   \
    use(silo_##kind##_to_f32(silo_f32_to_##kind##_rtz(x)));                                        \
    use(silo_##kind##_neg(silo_##kind##_abs(silo_f32_to_##kind(x))))

static void narrow(double d, float x) {
    FP8(f8E4M3FN);
    FP8(f8E5M2);
    FP8(f8E4M3FNUZ);
    FP8(f8E5M2FNUZ);
    FP8(f8E4M3B11FNUZ);
    use(silo_f64_to_f32_rtz(d));
    use(silo_f32_to_f16_rtz(x));
    use(silo_f32_to_bf16_rtz(x));
}

/* Rows in memory of exactly their size. */
static void rows(int count) {
    uint16_t *half = malloc((unsigned long)count * sizeof *half);
    float *wide = malloc((unsigned long)count * sizeof *wide);
    for (int i = 0; i < count; i++)
        wide[i] = (float)i;
    silo_narrow_row_f16(half, wide, count);
    silo_widen_row_f16(wide, half, count);
    use(wide[count - 1]);
    free(half);
    free(wide);
}

static void library(double d, double e, float x, float y) {
    use(silo_fdim_f64(d, e) + silo_fdim_f32(x, y));
    use(silo_logb_f32(x) + silo_ilogb_f64(d));
    use(silo_nextafter_f32(x, y) + silo_nextafter_f64(d, e));
    use(silo_ldexp_f32(x, (int32_t)silo_f64_to_i32(e)));
    use(silo_ldexp_f64(d, (int32_t)silo_f64_to_i32(e)));
    use(silo_powi_f32(x, 7) + silo_saturate_f32(x));
    use((double)silo_llrint_f32(x) + (double)silo_llround_f64(d));
    use(silo_sinpi_f64(d) + silo_cospi_f64(d));
    use(silo_erfinv_f64(d) + silo_erfcinv_f64(d) + silo_erfcx_f64(d));
    use(silo_normcdf_f64(d) + silo_normcdfinv_f64(d));
    use(silo_cyl_bessel_i0_f64(d) + silo_cyl_bessel_i1_f64(d));
    use(silo_norm4d_f64(d, e, 1.0, 2.0) + silo_rcbrt_f64(d));
}

static void directed(double d, double e, float x, float y) {
    use(silo_f64_to_f32_rd(d) + silo_f64_to_f32_ru(d));
    use(silo_add_rd_f32(x, y) + silo_sub_ru_f32(x, y) + silo_mul_rz_f32(x, y));
    use(silo_fma_ru_f32(x, y, x) + silo_div_rd_f32(x, y == 0 ? 1 : y) + silo_sqrt_rn_f32(x));
    use(silo_add_rn_f64(d, e) + silo_mul_rn_f64(d, e));
}

static void floats(double d, double e) {
    float x = d > 3.4e38 || d < -3.4e38 ? (float)(d > 0 ? 3.4e38 : -3.4e38) : (float)d,
          y = (float)(e > 3e38 || e < -3e38 ? 1 : e);
    if (d - d != 0)
        x = d != d ? __builtin_nanf("") : d > 0 ? __builtin_inff() : -__builtin_inff();
    use(silo_exp_f32(x));
    use(silo_exp2_f32(x));
    use(silo_expm1_f32(x));
    use(silo_log_f32(x));
    use(silo_log2_f32(x));
    use(silo_log1p_f32(x));
    use(silo_tanh_f32(x));
    use(silo_erf_f32(x));
    use(silo_sin_f32(x));
    use(silo_cos_f32(x));
    use(silo_round_f32(x));
    use(silo_round_f64(d));
    use(silo_f16_to_f32(silo_f32_to_f16(x)));
    use(silo_bf16_to_f32(silo_f32_to_bf16(x)));
    use(silo_maxnum_f32(x, y));
    use(silo_minnum_f32(x, y));
    use(silo_maximum_f32(x, y));
    use(silo_minimum_f64(d, e));
    use(silo_f32_to_i32(x));
    use(silo_f32_to_i64(x));
    use(silo_f32_to_u32(x));
    use(silo_f32_to_u64(x));
    use(silo_f64_to_i32(d));
    use(silo_f64_to_i64(d));
    use(silo_f64_to_u32(d));
    use(silo_f64_to_u64(d));
    narrow(d, x);
    library(d, e, x, y);
    directed(d, e, x, y);
}

static void integers(int64_t a, int64_t b) {
    int32_t x = (int32_t)a, y = (int32_t)b;
    uint32_t u = (uint32_t)x, v = (uint32_t)y;
    use(silo_divsi_i32(x, y));
    use(silo_remsi_i32(x, y));
    use(silo_divui_i32(u, v));
    use(silo_remui_i32(u, v));
    use(silo_divsi_i64(a, b));
    use(silo_remsi_i64(a, b));
    use(silo_floordiv_i64(x, y));
    use(silo_shl_i32(u, v, 32));
    use(silo_shrui_i32(u, v, 16));
    use(silo_shrsi_i32(x, v, 8));
    use(silo_absi_i32(x));
    use(silo_shl_i64((uint64_t)a, (uint64_t)b, 64));
    use(silo_shrsi_i64(a, (uint64_t)b, 64));
    use(silo_absi_i64(a));
    use(silo_mulhiui_i32(u, v));
    use(silo_mulhiui_i64((uint64_t)a, (uint64_t)b));
    use(silo_ctlz_i32(u));
    use(silo_ffs_i32(u) + silo_ffs_i64((uint64_t)a));
    use((double)silo_brev_i64((uint64_t)a) + silo_byte_perm(u, v, u));
    use((double)silo_mulhisi_i64(a, b) + silo_mulhisi_i32(x, y));
    use((double)silo_mul24_i32(u, v) + silo_mul24_u32(u, v));
    use((double)silo_sad_i32(x, y, v) + silo_sad_u32(u, v, u));
    use((double)silo_hadd_i32(x, y) + silo_rhadd_i32(x, y) + silo_rhadd_u32(u, v));
    use((double)silo_i64_to_f32_ru(a) + silo_u64_to_f64_rd((uint64_t)a));
    use((double)silo_ceildivui_i64((uint64_t)a, (uint64_t)b));
    use(silo_cttz_i64((uint64_t)a));
}

#define BLOCKS(kind)                                                                               \
    SILO_DOT_KERNEL_##kind(4, 2) SILO_DOT_KERNEL_##kind(1, 2) SILO_DOT_KERNEL_##kind(4, 1)         \
        SILO_DOT_KERNEL_##kind(1, 1)
BLOCKS(f32)
BLOCKS(f64)
BLOCKS(i8)

/* Tiles in memory of exactly their size, so that one element too many is seen; the left one by
   rows, the right one by rows or, turned, by columns. Of `most` x n sums, m x `columns` are
   seen. */
#define DOT_PART(kind, element, type, real, total, most, m, n, columns, k, turned)                 \
    do {                                                                                           \
        enum { LANES = SILO_VECTOR_BYTES / sizeof(real), WIDTH = n < LANES ? LANES : n };          \
        const int wide = WIDTH % (2 * LANES) == 0;                                                 \
        type *a = malloc(m * k * sizeof *a), *b = malloc(k * columns * sizeof *b);                 \
        total *c = malloc(most * WIDTH * sizeof *c);                                               \
        real *left = malloc(most * SILO_DOT_DEPTH_BYTES),                                          \
             *right = malloc(WIDTH * SILO_DOT_DEPTH_BYTES);                                        \
        for (int i = 0; i < m * k; i++)                                                            \
            a[i] = (type)(i % 5);                                                                  \
        for (int i = 0; i < k * columns; i++)                                                      \
            b[i] = (type)(i % 3);                                                                  \
        for (int i = 0; i < most * WIDTH; i++)                                                     \
            c[i] = 0;                                                                              \
        silo_dot_##kind(most, m, WIDTH, columns, k, (silo_tile){a, k, 1}, silo_dot_left_##element, \
                        (silo_tile){b, turned ? 1 : columns, turned ? k : 1},                      \
                        silo_dot_right_##element, 0, c, 0,                                         \
                        wide ? silo_dot_##kind##_4x2 : silo_dot_##kind##_4x1, 4,                   \
                        wide ? silo_dot_##kind##_1x2 : silo_dot_##kind##_1x1, wide + 1,            \
                        silo_dot_##kind##_4x1, left, right, 0, 0);                                 \
        use((double)c[m * WIDTH - 1]);                                                             \
        free(a), free(b), free(c), free(left), free(right);                                        \
    } while (0)
#define DOT(kind, element, type, real, total, m, n, k, turned)                                     \
    DOT_PART(kind, element, type, real, total, m, m, n, n, k, turned)

/* Words of a right tile, and of a left one whose columns are contiguous. */
#define PACK(kind, type, m, k)                                                                     \
    do {                                                                                           \
        enum { FILLED = m < 16 ? 16 : m, WORDS = k * sizeof(type) / 4 };                           \
        type *a = malloc(m * k * sizeof *a);                                                       \
        uint32_t *work = malloc(2 * FILLED * WORDS * sizeof *work);                                \
        for (int i = 0; i < m * k; i++)                                                            \
            a[i] = (type)i;                                                                        \
        for (int turned = 0; turned < 2; turned++) {                                               \
            const silo_tile tile = {a, turned ? k : 1, turned ? 1 : m};                            \
            use((double)silo_turn_##kind(tile, 0, k, WORDS, m, work)[FILLED * k - 1]);             \
        }                                                                                          \
        free(a), free(work);                                                                       \
    } while (0)

int main(void) {
    for (unsigned i = 0; i < sizeof edges / sizeof *edges; i++)
        for (unsigned j = 0; j < sizeof edges / sizeof *edges; j++)
            floats(edges[i], edges[j]);
    for (unsigned i = 0; i < sizeof wholes / sizeof *wholes; i++)
        for (unsigned j = 0; j < sizeof wholes / sizeof *wholes; j++)
            integers(wholes[i], wholes[j]);
    for (uint32_t h = 0; h < 65536; h++)
        use(silo_f16_to_f32((uint16_t)h) + silo_bf16_to_f32((uint16_t)h));
    for (int count = 1; count < 40; count++)
        rows(count);
    DOT(f32, f32, float, float, float, 64, 64, 64, 0);
    DOT(f32, f32, float, float, float, 13, 32, 270, 1);
    DOT(f32, f32, float, float, float, 1, 1, 1, 0);
    DOT(f32, f16, uint16_t, float, float, 31, 16, 5, 0);
    DOT(f32, f16, uint16_t, float, float, 31, 16, 8, 1);
    DOT(f32, bf16, uint16_t, float, float, 3, 2, 8, 1);
    DOT(f64, f64, double, double, double, 13, 32, 7, 0);
    DOT(f64, f64, double, double, double, 64, 2, 16, 1);
    DOT(i8, i8, int8_t, float, int32_t, 13, 32, 7, 0);
    DOT(i8, i8, int8_t, float, int32_t, 64, 4, 300, 1);
    DOT_PART(f32, f32, float, float, float, 16, 13, 64, 37, 270, 0);
    DOT_PART(f32, f32, float, float, float, 16, 13, 64, 37, 20, 1);
    DOT_PART(f32, f16, uint16_t, float, float, 32, 1, 32, 3, 9, 1);
    DOT_PART(f32, bf16, uint16_t, float, float, 18, 17, 32, 31, 16, 0);
    DOT_PART(f64, f64, double, double, double, 16, 16, 32, 9, 7, 1);
    DOT_PART(i8, i8, int8_t, float, int32_t, 15, 14, 64, 33, 7, 0);
    PACK(bf16, uint16_t, 32, 8);
    PACK(bf16, uint16_t, 2, 2);
    PACK(i8, uint8_t, 16, 64);
    PACK(i8, uint8_t, 1, 4);
    printf("done\n");
    return 0;
}
