/* Dynamic layouts: what code assumes of an array whose shape and strides are passed to it
 * (silo.core.extents). */
#ifndef SILO_DYNAMIC_LAYOUT_H
#define SILO_DYNAMIC_LAYOUT_H

#include "base.h"

#define SILO_DYNAMIC_AXES 5

/* The facts that distinguish arrays of `ndim` axes, up to SILO_DYNAMIC_AXES, whose elements have
 * `bits` bits, as one word: the number of axes in bits 0-2; whether extents (3) and offsets (4)
 * need more than 32 bits; four bits an axis from 5 on, whether its extent is a multiple of 16
 * bytes, its stride (1: it is 1, 2: it is 0, 0: another) and whether another stride is such a
 * multiple; and in 25-27 the logarithm of the elements in 16 bytes. */
uint64_t silo_dynamic_word(int32_t ndim, const int64_t *sizes, const int64_t *strides,
                           unsigned bits);

#define SILO_STRIDE_PASSED (-1)

struct silo_dynamic_axis {
    uint8_t divisor, stride_divisor; /* powers of two, in elements */
    int8_t stride;                   /* 0 or 1: compiled in; or SILO_STRIDE_PASSED */
};

struct silo_dynamic_layout {
    uint8_t rank, size_bits, offset_bits;
    struct silo_dynamic_axis axes[SILO_DYNAMIC_AXES];
};

struct silo_dynamic_layout silo_dynamic_of_word(uint64_t word);

/* Whether a call with the facts `call` meets all that `code` assumes. */
bool silo_dynamic_holds(const struct silo_dynamic_layout *code,
                        const struct silo_dynamic_layout *call);

bool silo_dynamic_same(const struct silo_dynamic_layout *left,
                       const struct silo_dynamic_layout *right);

#endif
