/* Tensor maps of descriptors and arrays: 128 bytes that the driver encodes.
 *
 * Encoded maps are objects that never change, kept in a short list on the descriptor (attribute
 * `_silo_tensor_map`), an array's on the binding, because arrays need not accept attributes. A call
 * takes a reference to the map it passes, so a thread that replaces the list takes nothing from
 * another's launch. */
#ifndef SILO_KEPT_MAP_H
#define SILO_KEPT_MAP_H

#include "frame.h"
#include "kernel.h"

/* The encoded map, alive as long as `frame` holds it; NULL with an exception set. */
void *silo_descriptor_map(const struct silo_plan *plan, int32_t index,
                          const struct silo_map_form *form, struct silo_frame *frame);

/* The same of the array that is argument `index` of the call. */
void *silo_array_map(const struct silo_plan *plan, struct silo_binding *binding, int32_t index,
                     const struct silo_map_form *form, PyObject *const *arguments,
                     struct silo_frame *frame);

int silo_tensor_map_init(PyObject *module);

#endif
