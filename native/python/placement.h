/* The device of a call, which follows from its arrays or addresses. */
#ifndef SILO_PLACEMENT_H
#define SILO_PLACEMENT_H

#include "frame.h"

/* Called for an array `view` that is not on the device of the arrays before it. Makes this array's
 * device the device of the call, or accepts the array because both devices can use its memory.
 * Otherwise returns -1 with an ArgumentError set. */
int silo_merge_device(const struct silo_plan *plan, int32_t index, const struct silo_view *view,
                      const struct silo_adapter *adapter, struct silo_frame *frame);
/* Chooses the device of a call without arrays: the device of its first address, else the current
 * device of this thread or the first device, else the CPU. The function opens the drivers if they
 * are not open yet, so the choice depends neither on the caller nor on earlier calls. All queries
 * about a call use this function. */
void silo_place_call(const struct silo_plan *plan, struct silo_frame *frame);
/* Sets the callable that opens the GPU drivers when they are first needed. Takes a reference of its
 * own. */
void silo_set_driver_opener(PyObject *opener);
/* Tries to open the GPU drivers, because the memory of the call may belong to one of them. Returns
 * whether one is open. */
bool silo_open_drivers(void);

/* A counter whose low 16 bits are part of every key: after it changes, no key of an earlier call
 * matches, so every launcher asks Python again. An old key would match again only after 65,536
 * changes. */
extern uint32_t silo_generation;

#endif
