/* The flight recorder: keeps the last launches of this process in native memory for a report of a
 * crash (written by flight_file.h). While it is off it costs nothing, because launches test
 * `silo_hooks_on` in any case. */
#ifndef SILO_FLIGHT_H
#define SILO_FLIGHT_H

#include "flight_ring.h"
#include "launcher.h"

struct silo_frame;

/* Returns the flight kind of a binding: everything that is the same for all its launches. It is
 * made at the binding's first launch, which runs Python code. NULL with an exception set. */
struct silo_flight_kind *silo_flight_kind_of(const struct silo_launcher *self,
                                             struct silo_binding *binding,
                                             const struct silo_frame *frame);

/* Records a launch that is about to be made. Returns the launch's slot, and stores the launch's
 * number in `*number`. */
struct silo_flight_slot *silo_flight_record(const struct silo_plan *plan,
                                            const struct silo_inputs *inputs,
                                            const struct silo_flight_kind *kind,
                                            const struct silo_frame *frame, const int64_t dims[3],
                                            void *stream, uint64_t *number);

/* Records that the launch returned, or that it failed. */
SILO_INLINE void silo_flight_done(struct silo_flight_slot *slot, uint64_t number, bool failed) {
    if (slot->number == number)
        __atomic_store_n(&slot->state, failed ? SILO_FLIGHT_FAILED : SILO_FLIGHT_RETURNED,
                         __ATOMIC_RELAXED);
}

extern PyMethodDef silo_flight_methods[];

#endif
