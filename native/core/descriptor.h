/* Tensor descriptors made on the host: an address, a shape, strides and a block shape. A kernel
 * takes one as a tensor map (128 bytes that the driver encodes), its shape and its strides, or
 * taken apart, if the target lacks tensor maps. */
#ifndef SILO_DESCRIPTOR_H
#define SILO_DESCRIPTOR_H

#include "argument_word.h"
#include "error.h"

#define SILO_MAX_RANK 5
/* The most in one call: 32 tensor maps fill the 4 KiB of parameters that every driver takes. */
#define SILO_MAX_DESCRIPTORS 32
/* The most tensor maps that a kernel takes of one array, to load it and to store it. A call has
 * room for as many for each argument. */
#define SILO_MAX_ARRAY_MAPS 2

/* One descriptor of a call, in the form that the parameters of a kernel need. */
struct silo_descriptor {
    uint64_t address; /* of the base, a multiple of 16 */
    uint64_t nan;     /* 1: elements outside are NaN, 0: zero */
    uint64_t tf32;    /* 1: float32 is rounded to tf32 when it is loaded */
    int64_t shape[SILO_MAX_RANK];
    int64_t strides[SILO_MAX_RANK]; /* in elements; the last is 1 */
    uint32_t rank;
};

/* Which part of a descriptor a parameter of a binary is. */
enum silo_part {
    SILO_PART_MAP,
    SILO_PART_BASE,
    SILO_PART_SHAPE,
    SILO_PART_STRIDE,
    SILO_PART_NAN,
    SILO_PART_TF32,
};

/* "base", "shape.0", "stride.4", "nan", "tf32"; -1 for other texts. `axis` gets its axis. */
int silo_part_named(const char *name, uint8_t *axis);

/* The address of the value of any part but the map. */
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

/* Every target's conditions on a descriptor with elements of `type`; Triton checks the same when a
 * descriptor is made. -1 with SILO_ERROR_MISALIGNED, NULL, SHAPE or DTYPE; texts begin after its
 * name: "has a base without memory". */
int silo_descriptor_check(const struct silo_descriptor *descriptor, struct silo_dtype type,
                          silo_error *error);

/* The block shape, of `rank` extents, as bits of an argument's word. -1 with SILO_ERROR_SHAPE, as
 * above. */
int silo_descriptor_block_bits(const int64_t *block, uint32_t rank, uint64_t *bits,
                               silo_error *error);

#endif
