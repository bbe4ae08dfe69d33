/* Tensor maps of descriptors and arrays: 128 bytes that the driver encodes.
 *
 * Encoded maps are objects that never change, in a short list that is kept on the descriptor
 * (attribute `_silo_tensor_map`). The list of an array is kept on the binding, because arrays need
 * not accept attributes. A call takes a reference to the list of its map, so a thread that replaces
 * a list does not free the map of another thread's launch. */
#ifndef SILO_MAP_CACHE_H
#define SILO_MAP_CACHE_H

#include "frame.h"
#include "kernel.h"

/* Returns the encoded map of a descriptor, alive as long as `frame` holds it; NULL with an
 * exception set. */
void *silo_descriptor_map(const struct silo_plan *plan, int32_t index,
                          const struct silo_map_form *form, struct silo_frame *frame);

/* Returns the encoded map of the array that is argument `index` of the call; NULL with an exception
 * set. */
void *silo_array_map(const struct silo_plan *plan, struct silo_binding *binding, int32_t index,
                     const struct silo_map_form *form, PyObject *const *arguments,
                     struct silo_frame *frame);

int silo_tensor_map_init(PyObject *module);

#endif
