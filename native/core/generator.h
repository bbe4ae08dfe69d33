/* The counter-based generator that fills the arrays of cases. It makes the same bits as
 * silo.core.generator.
 *
 * Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; 2011).
 * Uses only integer operations and correctly rounded double + - *. Compile with -ffp-contract=off:
 * a fused multiply-add would change the last bit. */
#ifndef SILO_GENERATOR_H
#define SILO_GENERATOR_H

#include <stdint.h>

/* The kinds of fills, as in silo.core.generator.Fill. */
enum {
    SILO_FILL_ZEROS = 0,
    SILO_FILL_EMPTY = 1, /* NaN; for integers bytes of 0xA5, for bools true */
    SILO_FILL_FULL = 2,
    SILO_FILL_ARANGE = 3,
    SILO_FILL_UNIFORM = 4,
    SILO_FILL_NORMAL = 5,
    SILO_FILL_INTEGERS = 6
};

/* Results of silo_generate. */
enum {
    SILO_GENERATE_OK = 0,
    SILO_GENERATE_FILL = 1, /* an unknown fill, or one that does not support the dtype */
    SILO_GENERATE_DTYPE = 2 /* an unknown dtype */
};

/* A fill's parameters besides the seed:
 *   uniform: a = low, b = high         normal: a = mean, b = standard deviation
 *   integers: low, span = high - low   full: a for floats, low otherwise
 *   arange: start a and step b for floats, low and span (modulo 2^64) otherwise */
typedef struct {
    double a;
    double b;
    int64_t low;
    uint64_t span;
} silo_fill_params;

/* Computes one block: four 32-bit words from a counter and a key. */
void silo_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Writes elements first ... first + count - 1 of an array to `out`, which must be large enough and
 * aligned to the size of an element. The dtype is given by its DLPack code and its width in bits.
 * Each part of an array can be made by itself, also by several threads at the same time. */
int silo_generate(int32_t fill, int32_t dtype_code, int32_t dtype_bits, uint64_t seed,
                  uint64_t first, uint64_t count, const silo_fill_params *params, void *out);

#endif
