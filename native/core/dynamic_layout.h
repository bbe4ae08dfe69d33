/* Dynamic layouts: the assumptions of code about an array whose shape and strides are parameters of
 * the kernel (silo.core.extents). */
#ifndef SILO_DYNAMIC_LAYOUT_H
#define SILO_DYNAMIC_LAYOUT_H

#include "base.h"

#define SILO_DYNAMIC_AXES 5

/* Encodes the facts about an array's layout that code may assume, as one word. `ndim` is at most
 * SILO_DYNAMIC_AXES; an element has `bits` bits.
 *
 * Bits 0-2: number of axes. Bit 3: an extent needs more than 32 bits. Bit 4: an offset needs more
 * than 32 bits. From bit 5 on, 4 bits for each axis: 1 bit if the extent is a multiple of 16 bytes;
 * 2 bits for the stride (1: the stride is 1, 2: the stride is 0, 0: any other stride); 1 bit if a
 * stride other than 0 and 1 is a multiple of 16 bytes. Bits 25-27: base-2 logarithm of the number
 * of elements in 16 bytes. */
uint64_t silo_dynamic_word(int32_t ndim, const int64_t *sizes, const int64_t *strides,
                           unsigned bits);

#define SILO_STRIDE_PASSED (-1)

struct silo_dynamic_axis {
    uint8_t divisor, stride_divisor; /* powers of two that divide extent and stride, in elements */
    int8_t stride; /* 0 or 1: constant in the code; SILO_STRIDE_PASSED: a parameter */
};

struct silo_dynamic_layout {
    uint8_t rank, size_bits, offset_bits;
    struct silo_dynamic_axis axes[SILO_DYNAMIC_AXES];
};

struct silo_dynamic_layout silo_dynamic_of_word(uint64_t word);

/* Whether an array with the facts `call` meets all assumptions of `code`. */
bool silo_dynamic_holds(const struct silo_dynamic_layout *code,
                        const struct silo_dynamic_layout *call);

bool silo_dynamic_same(const struct silo_dynamic_layout *left,
                       const struct silo_dynamic_layout *right);

#endif
