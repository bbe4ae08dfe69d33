/* Tensor maps of descriptors and arrays: 128 bytes, encoded by the CUDA driver. */
#ifndef SILO_TENSOR_MAP_H
#define SILO_TENSOR_MAP_H

#include "descriptor.h"
#include "gpu.h"

#define SILO_MAP_BYTES 128
#define SILO_MAP_ALIGN 64

/* The value in `axes` for a dimension of the map that is not an axis of the array, but has its own
 * extent and stride. */
#define SILO_NO_AXIS (-1)

/* How the tensor map of a kernel's parameter is encoded, apart from the values of the descriptor or
 * array. The struct has no padding, so that forms can be compared as bytes. */
struct silo_map_form {
    int32_t element_type; /* CUtensorMapDataType */
    uint32_t element_bytes;
    int32_t swizzle; /* CUtensorMapSwizzle */
    uint32_t rank;
    uint32_t box[SILO_MAX_RANK]; /* extents in elements, outermost first; 0 from `rank` on */
    uint32_t fp4_padded;         /* 0 or 1 */
    /* Used only for maps of an array, outermost dimension first; 0 from `rank` on: */
    uint32_t of_array;              /* 0 or 1 */
    int32_t axes[SILO_MAX_RANK];    /* axis of the array, or SILO_NO_AXIS */
    int64_t shape[SILO_MAX_RANK];   /* extent of a dimension with SILO_NO_AXIS */
    int64_t strides[SILO_MAX_RANK]; /* stride of a dimension with SILO_NO_AXIS, in elements */
};

_Static_assert(sizeof(struct silo_map_form) == 144, "compared as bytes");

/* Checks whether a driver may accept maps of this form, as far as that does not depend on the
 * descriptor. If not, returns -1 with SILO_ERROR_UNSUPPORTED and a text that names no parameter:
 * "its box is 64 bytes wide, ...". */
int silo_map_form_check(const struct silo_map_form *form, silo_error *error);

/* Whether the map of an array depends on the array's shape, not only on its address. */
bool silo_map_reads_shape(const struct silo_map_form *form);

/* Fills `out` for the map of an array from its address and shape: `ndim` axes, strides in elements,
 * neither of which is read if silo_map_reads_shape returns false. On failure returns -1 with
 * SILO_ERROR_MISALIGNED, NULL or SHAPE. The error text continues the array's name: "has strides[1]
 * = 4; ...". */
int silo_map_of_array(const struct silo_map_form *form, uint64_t address, int32_t ndim,
                      const int64_t *sizes, const int64_t *strides, struct silo_descriptor *out,
                      silo_error *error);

/* Encodes the map of a descriptor, which has the form's rank, into SILO_MAP_BYTES bytes aligned to
 * SILO_MAP_ALIGN, for a CUDA device. On failure returns -1 with SILO_ERROR_UNSUPPORTED, or
 * SILO_ERROR_SHAPE with the driver's code; the error text then continues the argument's name:
 * "cannot be used: the driver refuses ...". If the device's context cannot be made current, returns
 * -1 with the error of that step. */
int silo_tensor_map_encode(struct silo_gpu_device *device, const struct silo_map_form *form,
                           const struct silo_descriptor *descriptor, void *map, silo_error *error);

#endif
