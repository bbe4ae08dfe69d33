/* Products by words of bf16 or int8, of random shapes and layouts, against sums of doubles. What is
   before this text: the runtime with its instructions for matrix tiles as calls of `tile_...`, and
   ELEMENT, SUMS, PRODUCT, OWN_UNIT, and HALVES for products of f16 by tiles of bf16. Operands and
   buffers end where a page begins that nobody may touch. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, KEPT = HALVES ? 800 : 400 };

static ELEMENT element_of(int number) {
    if (sizeof(ELEMENT) == 1)
        return (ELEMENT)number;
    if (HALVES) {
        const _Float16 half = (_Float16)number;
        ELEMENT element;
        memcpy(&element, &half, sizeof element);
        return element;
    }
    float wide = (float)number;
    uint32_t bits;
    memcpy(&bits, &wide, sizeof bits);
    return (ELEMENT)(bits >> 16);
}

static double number_of(ELEMENT element) {
    if (sizeof(ELEMENT) == 1)
        return (int8_t)element;
    if (HALVES) {
        _Float16 half;
        memcpy(&half, &element, sizeof half);
        return (double)half;
    }
    return tile_float((uint16_t)element);
}

typedef struct {
    char *map;
    size_t bytes;
} guarded;

static guarded maps[8];
static int mapped;

static void *guard(size_t size, int fill) {
    const size_t whole = (size + PAGE - 1) / PAGE * PAGE;
    char *map =
        mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + whole, PAGE, PROT_NONE) != 0)
        abort();
    maps[mapped++] = (guarded){map, whole + PAGE};
    memset(map, fill, whole);
    return map + whole - size;
}

static int pick(int most) {
    return 1 + rand() % most;
}

static int check(int round, int units) {
    const int all_rows[] = {1, 4, 8, 16, 32, 64, 128}, all_columns[] = {16, 32, 64};
    const int most = all_rows[rand() % 7], full = all_columns[rand() % 3];
    const int m = rand() % 3 ? pick(most) : most, n = rand() % 3 ? pick(full) : full;
    const int k = rand() % 2 ? pick(700) : pick(20) * 32;
    const int a_turned = rand() % 3 == 0, b_turned = rand() % 3 == 0;
    const int a_row = a_turned ? 1 : k + rand() % 3, a_column = a_turned ? m + rand() % 3 : 1;
    const int b_row = b_turned ? 1 : n + rand() % 3, b_column = b_turned ? k + rand() % 5 : 1;
    const int a_count = (m - 1) * a_row + (k - 1) * a_column + 1;
    const int b_count = (k - 1) * b_row + (n - 1) * b_column + 1;
    ELEMENT *a = guard((size_t)a_count * sizeof *a, 0), *b = guard((size_t)b_count * sizeof *b, 0);
    for (int i = 0; i < a_count; i++)
        a[i] = element_of(rand() % 9 - 4);
    for (int i = 0; i < b_count; i++)
        b[i] = element_of(rand() % 9 - 4);
    SUMS *c = guard((size_t)(most * full) * 4, 0);
    for (int i = 0; i < most * full; i++)
        c[i] = (SUMS)(i % 7);
    /* At first the buffers hold NaNs. */
    uint32_t *left = guard((size_t)(most < 16 ? 16 : most) * 2048, 0xff);
    uint32_t *right = guard((size_t)full * (HALVES ? 2048 : 1024), 0xff),
             *panels = guard(KEPT * (size_t)full * 4, 0xff);
    silo_kept kept = {0, 0, 0, 0, 0};
    const int keep = rand() % 2, times = keep ? 2 : 1, fresh = rand() % 4 == 0;
    const int tiles = HALVES || rand() % 2, own = !tiles && (sizeof(ELEMENT) == 1 || rand() % 2);
    const int possible = tiles || !own || (units & OWN_UNIT);
    for (int time = 0; possible && time < times; time++)
        PRODUCT(tiles, own, most, m, full, n, k, (silo_tile){a, a_row, a_column},
                (silo_tile){b, b_row, b_column}, c, fresh && !time, left, keep ? panels : right,
                keep ? &kept : NULL, keep ? KEPT * full : 0);
    for (int i = 0; possible && i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int q = 0; q < k; q++)
                sum +=
                    number_of(a[i * a_row + q * a_column]) * number_of(b[q * b_row + j * b_column]);
            const double wanted = sum * times + (fresh ? 0 : (i * full + j) % 7);
            if (wanted != (double)c[i * full + j]) {
                printf("round %d: %d of %d rows, %d of %d columns, depth %d, tiles %d, own %d: "
                       "(%d, %d)"
                       " is %g, not %g\n",
                       round, m, most, n, full, k, tiles, own, i, j, (double)c[i * full + j],
                       wanted);
                return 1;
            }
        }
    while (mapped)
        mapped--, munmap(maps[mapped].map, maps[mapped].bytes);
    return 0;
}

#if HALVES
static float float_of(ELEMENT element) {
    return (float)number_of(element);
}

/* Every f16 times special and usual numbers: an exact product, the same infinity, or NaN. */
static int check_exact(void) {
    static const uint16_t factors[16] = {0x3c00, 0,      0x8000, 0x7c00, 0xfc00, 0x7e00,
                                         0x0001, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff,
                                         0x3c01, 0xbbff, 0x4000, 0x3555};
    static uint32_t left[16 * 512], right[16 * 512];
    for (uint32_t first = 0; first < 0x10000; first += 16) {
        uint16_t numbers[16];
        float c[16 * 16];
        for (uint32_t i = 0; i < 16; i++)
            numbers[i] = (uint16_t)(first + i);
        PRODUCT(1, 0, 16, 16, 16, 16, 1, (silo_tile){numbers, 1, 1}, (silo_tile){factors, 16, 1}, c,
                1, left, right, NULL, 0);
        for (int i = 0; i < 256; i++) {
            const float wanted = float_of(numbers[i / 16]) * float_of(factors[i % 16]);
            if (!(wanted == c[i] || (wanted != wanted && c[i] != c[i]))) {
                printf("%04x times %04x is %g, not %g\n", numbers[i / 16], factors[i % 16],
                       (double)c[i], (double)wanted);
                return 1;
            }
        }
    }
    return 0;
}

/* The product of the transposes in reverse order has the same bits. So have all rows but one if an
   element of that row becomes infinite. */
static int check_turned(void) {
    enum { SIZE = 32, DEPTH = 600 };
    static uint16_t a[SIZE * DEPTH], b[SIZE * DEPTH];
    static uint32_t left[SIZE * 512], right[SIZE * 512];
    static float c[SIZE * SIZE], turned[SIZE * SIZE];
    for (int i = 0; i < SIZE * DEPTH; i++) {
        a[i] = element_of(0) | (uint16_t)(0x3000 + rand() % 0x1000 + (rand() % 2 << 15));
        b[i] = element_of(0) | (uint16_t)(0x3000 + rand() % 0x1000 + (rand() % 2 << 15));
    }
    silo_dot_two(0, SIZE, SIZE, SIZE, SIZE, DEPTH, (silo_tile){a, DEPTH, 1},
                 (silo_tile){b, 1, DEPTH}, c, 1, left, right, NULL, 0);
    silo_dot_two(1, SIZE, SIZE, SIZE, SIZE, DEPTH, (silo_tile){b, DEPTH, 1},
                 (silo_tile){a, 1, DEPTH}, turned, 1, left, right, NULL, 0);
    for (int i = 0; i < SIZE * SIZE; i++) {
        double sum = 0;
        for (int q = 0; q < DEPTH; q++)
            sum += number_of(a[i / SIZE * DEPTH + q]) * number_of(b[i % SIZE * DEPTH + q]);
        if (c[i] != turned[i % SIZE * SIZE + i / SIZE] ||
            !(c[i] - sum < 1e-3 && sum - c[i] < 1e-3)) {
            printf("sum %d is %g, its transpose %g, not %g\n", i, (double)c[i],
                   (double)turned[i % SIZE * SIZE + i / SIZE], sum);
            return 1;
        }
    }
    a[5 * DEPTH + 7] = 0x7c00;
    silo_dot_two(0, SIZE, SIZE, SIZE, SIZE, DEPTH, (silo_tile){a, DEPTH, 1},
                 (silo_tile){b, 1, DEPTH}, turned, 1, left, right, NULL, 0);
    for (int i = 0; i < SIZE * SIZE; i++)
        if (i / SIZE == 5 ? turned[i] - turned[i] == 0 : turned[i] != c[i]) {
            printf("sum %d beside infinity is %g, not %g\n", i, (double)turned[i], (double)c[i]);
            return 1;
        }
    return 0;
}
#endif

int main(void) {
    const int units = silo_units();
    srand(3);
    for (int round = 0; round < (HALVES ? 600 : 1500); round++)
        if (check(round, units))
            return 1;
#if HALVES
    return check_exact() || check_turned();
#endif
    return 0;
}
