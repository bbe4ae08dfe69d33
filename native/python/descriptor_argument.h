/* Reads tensor descriptors that are arguments of a call. */
#ifndef SILO_DESCRIPTOR_ARGUMENT_H
#define SILO_DESCRIPTOR_ARGUMENT_H

#include "frame.h"

/* Reads a descriptor as argument `index`, whose slot gets the descriptor's index in the frame.
 * Returns -1 with an ArgumentError set. */
int silo_read_descriptor(const struct silo_plan *plan, int32_t index, PyObject *object,
                         const struct silo_adapter *adapter, struct silo_frame *frame);

#endif
