/* Tensor maps of descriptors: 128 bytes that the CUDA driver encodes. */
#ifndef SILO_TENSOR_MAP_H
#define SILO_TENSOR_MAP_H

#include "descriptor.h"
#include "gpu.h"

#define SILO_MAP_BYTES 128
#define SILO_MAP_ALIGN 64

/* How the map of one kernel parameter is encoded, besides what the descriptor says. Without holes,
 * so that forms may be compared as bytes. */
struct silo_map_form {
    int32_t element_type; /* CUtensorMapDataType */
    uint32_t element_bytes;
    int32_t swizzle; /* CUtensorMapSwizzle */
    uint32_t rank;
    uint32_t box[SILO_MAX_RANK]; /* elements, outermost first; 0 past the rank */
    uint32_t fp4_padded;         /* 0 or 1 */
};

_Static_assert(sizeof(struct silo_map_form) == 40, "compared as bytes");

/* Whether a driver may take such maps, whatever the descriptor; else -1 with
 * SILO_ERROR_UNSUPPORTED and a text without a name: "its box is 64 bytes wide, ...". */
int silo_map_form_check(const struct silo_map_form *form, silo_error *error);

/* Encode the map of a descriptor of the form's rank into SILO_MAP_BYTES aligned to SILO_MAP_ALIGN,
 * for a device of CUDA. -1 with SILO_ERROR_UNSUPPORTED, or SILO_ERROR_SHAPE with the driver's
 * code; their texts begin after the descriptor's name: "cannot be used: the driver refuses ...". Or
 * with the driver's error of making its context current. */
int silo_tensor_map_encode(struct silo_gpu_device *device, const struct silo_map_form *form,
                           const struct silo_descriptor *descriptor, void *map, silo_error *error);

#endif
