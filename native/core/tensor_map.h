/* Tensor maps of descriptors and arrays: 128 bytes that the CUDA driver encodes. */
#ifndef SILO_TENSOR_MAP_H
#define SILO_TENSOR_MAP_H

#include "descriptor.h"
#include "gpu.h"

#define SILO_MAP_BYTES 128
#define SILO_MAP_ALIGN 64

/* In place of an axis: the dimension has the form's own extent and stride. */
#define SILO_NO_AXIS (-1)

/* The encoding of one kernel parameter's map, besides the members of the descriptor or the array.
 * Without holes, so that forms may be compared as bytes. */
struct silo_map_form {
    int32_t element_type; /* CUtensorMapDataType */
    uint32_t element_bytes;
    int32_t swizzle; /* CUtensorMapSwizzle */
    uint32_t rank;
    uint32_t box[SILO_MAX_RANK]; /* elements, outermost first; 0 past the rank */
    uint32_t fp4_padded;         /* 0 or 1 */
    /* Only for an array's map, outermost first like the box; 0 past the rank and in a descriptor's
     * map: */
    uint32_t of_array;              /* 0 or 1 */
    int32_t axes[SILO_MAX_RANK];    /* of the array, or SILO_NO_AXIS */
    int64_t shape[SILO_MAX_RANK];   /* of a dimension that is not an axis */
    int64_t strides[SILO_MAX_RANK]; /* in elements */
};

_Static_assert(sizeof(struct silo_map_form) == 144, "compared as bytes");

/* Whether a driver may take maps of this form, whatever the descriptor; else -1 with
 * SILO_ERROR_UNSUPPORTED and a text without a name: "its box is 64 bytes wide, ...". */
int silo_map_form_check(const struct silo_map_form *form, silo_error *error);

/* Whether an array's map needs the array's own shape, not its address alone. */
bool silo_map_reads_shape(const struct silo_map_form *form);

/* The values of an array's map, from the array's address and shape (`ndim` axes, strides in
 * elements; none are read if silo_map_reads_shape() returns false). -1 with SILO_ERROR_MISALIGNED,
 * NULL or SHAPE; texts begin after the array's name: "has strides[1] = 4; ...". */
int silo_map_of_array(const struct silo_map_form *form, uint64_t address, int32_t ndim,
                      const int64_t *sizes, const int64_t *strides, struct silo_descriptor *out,
                      silo_error *error);

/* Encode the map of a descriptor of the form's rank into SILO_MAP_BYTES aligned to SILO_MAP_ALIGN,
 * for a device of CUDA. -1 with SILO_ERROR_UNSUPPORTED, or SILO_ERROR_SHAPE with the driver's
 * code; their texts begin after the argument's name: "cannot be used: the driver refuses ...". Or
 * with the driver's error of making its context current. */
int silo_tensor_map_encode(struct silo_gpu_device *device, const struct silo_map_form *form,
                           const struct silo_descriptor *descriptor, void *map, silo_error *error);

#endif
