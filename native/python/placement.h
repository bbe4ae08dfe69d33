/* The device of a call: the device of its arrays, or of its addresses. */
#ifndef SILO_PLACEMENT_H
#define SILO_PLACEMENT_H

#include "frame.h"

/* `view` is not on the device of the arrays before it: the first one, or shared memory, or an
 * error. */
int silo_merge_device(const struct silo_plan *plan, int32_t index, const struct silo_view *view,
                      const struct silo_adapter *adapter, struct silo_frame *frame);
/* Give a call without arrays a device: the device of its first address, else the current one of
 * this thread or the first, else the CPU. Every query about a call comes here, and the drivers are
 * opened if they are not yet: the answer depends neither on the caller nor on earlier calls. */
void silo_place_call(const struct silo_plan *plan, struct silo_frame *frame);
/* A callable that opens the driver of a kind ("cuda", "hip") when it is first needed; borrowed. */
void silo_set_driver_opener(PyObject *opener);
/* Try to open the drivers that may have made the memory of this call; true where one is open. */
bool silo_open_drivers(void);

/* Part of every key: after a new generation every launcher calls Python again. 16 bits, and old
 * entries are found again only after 65,536 of them. */
extern uint32_t silo_generation;

#endif
