/* Structs among the parameters of a binary: address, extents and strides of an array, passed by
 * value in C's layout (silo.core.launch_info.StructLeaf). */
#ifndef SILO_STRUCT_FORM_H
#define SILO_STRUCT_FORM_H

#include "descriptor.h"

#define SILO_MAX_LEAVES (1 + 2 * SILO_MAX_RANK)
#define SILO_STRUCT_WORDS SILO_MAX_LEAVES /* the most words of a struct */

struct silo_struct_leaf {
    uint8_t part; /* SILO_PART_BASE, SILO_PART_SHAPE or SILO_PART_STRIDE */
    uint8_t axis;
    uint8_t bytes; /* 4 or 8 */
    uint8_t offset;
};

struct silo_struct_form {
    uint8_t count;
    uint8_t axes; /* an array needs at least this many axes: 1 more than the last axis that a member
                     reads */
    uint8_t bytes; /* size of the struct, including padding at the end */
    bool points;   /* the address is a member */
    struct silo_struct_leaf leaves[SILO_MAX_LEAVES];
};

/* Adds a member: "ptr" with the part "", "i32" or "i64" with "shape.0", "stride.4", ... Returns -1
 * with SILO_ERROR_UNSUPPORTED if the member is unknown or occurs twice. Initialize `form` with {0}.
 */
int silo_struct_add(struct silo_struct_form *form, const char *type, const char *part,
                    silo_error *error);

/* Writes the struct of an array at `address` to `to`, which has SILO_STRUCT_WORDS words. `layout`
 * holds the number of axes, the extents and the strides; NULL: unknown. Returns false if the array
 * has too few axes, or a number does not fit 32 bits. */
bool silo_struct_write(const struct silo_struct_form *form, uint64_t address,
                       const uint64_t *layout, void *to);

#endif
