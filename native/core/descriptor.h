/* Tensor descriptors made on the host: an address, a shape, strides and a block shape. A kernel
 * takes a descriptor as a tensor map (128 bytes encoded by the driver) with its shape and strides,
 * or, if the target lacks tensor maps, as separate values. */
#ifndef SILO_DESCRIPTOR_H
#define SILO_DESCRIPTOR_H

#include "argument_word.h"
#include "error.h"

#define SILO_MAX_RANK 5
/* The most descriptors in one call: 32 tensor maps fill the 4 KiB of parameters that every driver
 * accepts. */
#define SILO_MAX_DESCRIPTORS 32
/* A kernel may take two tensor maps of one array: one to load from it and one to store to it. A
 * call has memory for two maps for each argument. */
#define SILO_MAX_ARRAY_MAPS 2

/* A tensor descriptor of a call. The parameters of a kernel point into this struct. */
struct silo_descriptor {
    uint64_t address; /* address of the base array, a multiple of 16 */
    uint64_t nan;     /* 1: elements out of bounds load as NaN, 0: as zero */
    uint64_t tf32;    /* 1: float32 is rounded to tf32 when it is loaded */
    int64_t shape[SILO_MAX_RANK];
    int64_t strides[SILO_MAX_RANK]; /* in elements; the last is 1 */
    uint32_t rank;
};

/* The part of a descriptor that a parameter of a kernel receives. */
enum silo_part {
    SILO_PART_MAP,
    SILO_PART_BASE,
    SILO_PART_SHAPE,
    SILO_PART_STRIDE,
    SILO_PART_NAN,
    SILO_PART_TF32,
};

/* Returns the part named "base", "shape.0", "stride.4", "nan" or "tf32", and sets `*axis` to its
 * axis; -1 for other texts. */
int silo_part_named(const char *name, uint8_t *axis);

/* Returns the address of the value of a part, which must not be SILO_PART_MAP. */
SILO_INLINE void *silo_descriptor_part(struct silo_descriptor *descriptor, unsigned part,
                                       unsigned axis) {
    switch ((enum silo_part)part) {
    case SILO_PART_SHAPE:
        return &descriptor->shape[axis];
    case SILO_PART_STRIDE:
        return &descriptor->strides[axis];
    case SILO_PART_NAN:
        return &descriptor->nan;
    case SILO_PART_TF32:
        return &descriptor->tf32;
    case SILO_PART_MAP:
    case SILO_PART_BASE:
        break;
    }
    return &descriptor->address;
}

/* Checks the conditions that every target requires of a descriptor with elements of `type`; Triton
 * checks the same when it makes a descriptor. Returns -1 with SILO_ERROR_MISALIGNED, NULL, SHAPE or
 * DTYPE. The error text continues the descriptor's name: "has a base without memory". */
int silo_descriptor_check(const struct silo_descriptor *descriptor, struct silo_dtype type,
                          silo_error *error);

/* Encodes a block shape of `rank` extents as bits of the descriptor's guard word. Returns -1 with
 * SILO_ERROR_SHAPE; the error text continues the descriptor's name. */
int silo_descriptor_block_bits(const int64_t *block, uint32_t rank, uint64_t *bits,
                               silo_error *error);

#endif
