/* Tensor maps of descriptors: 128 bytes that the driver encodes.
 *
 * Encoded maps are objects that never change, kept in a short list on the descriptor (attribute
 * `_silo_tensor_map`). A call takes a reference to the map it passes, so a thread that replaces the
 * list takes nothing from another's launch. */
#ifndef SILO_KEPT_MAP_H
#define SILO_KEPT_MAP_H

#include "frame.h"

/* The encoded map, alive as long as `frame` holds it; NULL with an exception set. */
void *silo_descriptor_map(const struct silo_plan *plan, int32_t index,
                          const struct silo_map_form *form, struct silo_frame *frame);

int silo_tensor_map_init(PyObject *module);

#endif
