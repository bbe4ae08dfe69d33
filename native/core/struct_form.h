/* Structs among the parameters of a binary: the address, extents and strides of an array, by value,
 * as C lays them out (silo.core.launch_info.StructLeaf). */
#ifndef SILO_STRUCT_FORM_H
#define SILO_STRUCT_FORM_H

#include "descriptor.h"

#define SILO_MAX_LEAVES (1 + 2 * SILO_MAX_RANK)
#define SILO_STRUCT_WORDS SILO_MAX_LEAVES /* the most that one takes */

struct silo_struct_leaf {
    uint8_t part; /* SILO_PART_BASE, SILO_PART_SHAPE or SILO_PART_STRIDE */
    uint8_t axis;
    uint8_t bytes; /* 4 or 8 */
    uint8_t offset;
};

struct silo_struct_form {
    uint8_t count;
    uint8_t axes;  /* that an array must have at least */
    uint8_t bytes; /* size of the struct, with C's padding at the end */
    bool points;   /* the address is among them */
    struct silo_struct_leaf leaves[SILO_MAX_LEAVES];
};

/* One more member: "ptr" with the part "", "i32" or "i64" with "shape.0", "stride.4", ... -1 with
 * SILO_ERROR_UNSUPPORTED: unknown member, or a repeated one. Begin with {0}. */
int silo_struct_add(struct silo_struct_form *form, const char *type, const char *part,
                    silo_error *error);

/* Write a struct of an array at `address` whose `layout` is its number of axes, its extents and its
 * strides, to `to`, SILO_STRUCT_WORDS words. False: the array has fewer axes than it takes
 * (`layout` may be NULL: none are known), or a number does not fit 32 bits. */
bool silo_struct_write(const struct silo_struct_form *form, uint64_t address,
                       const uint64_t *layout, void *to);

#endif
