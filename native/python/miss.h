/* Calls whose guard key the launcher does not know yet: Python returns a binding for the key, which
 * is checked and kept. */
#ifndef SILO_MISS_H
#define SILO_MISS_H

#include "frame.h"
#include "launcher.h"

/* Calls on_miss, and checks and keeps the binding that it returns. Returns a new reference, or NULL
 * with an exception set. */
struct silo_binding *silo_miss(struct silo_launcher *self, const struct silo_inputs *inputs,
                               const struct silo_grid_source *grid, struct silo_frame *frame,
                               uint64_t hash);

/* Stores `answer`, the object that Python returned for this call, for all calls with the same key,
 * and returns it, a new reference. If `answer` is a binding that does not suit the call of a Triton
 * program, stores and returns the reason as a str instead. Returns NULL with an exception set. */
PyObject *silo_miss_keep(struct silo_launcher *self, const struct silo_inputs *inputs,
                         const struct silo_frame *frame, PyObject *answer, uint64_t hash);

/* Returns a new tuple about a call: (facts, arguments, options, (device type, device index), grid).
 * The grid of the call or the launcher is a callable, a tuple, an int, or None. The facts
 * have one (kind, code, bits, flags, ndim, extents) for each parameter, with ndim -1 for an
 * argument that is not an array. */
PyObject *silo_call_facts(struct silo_launcher *self, const struct silo_inputs *inputs,
                          const struct silo_grid_source *grid, const struct silo_frame *frame);

/* Called if an argument could not be read, with the exception set. Calls the launcher's
 * on_unread(arguments, options, grid), which may serve the call for a library that traces it: then
 * returns None, a new reference. Returns NULL with the first exception set if the call is not
 * served, or with another exception if on_unread raised it. */
PyObject *silo_unread(struct silo_launcher *self, const struct silo_inputs *inputs,
                      const struct silo_grid_source *grid);

/* Returns a new dict for a callable grid: the values of the config, then the arguments and the
 * options by name. */
PyObject *silo_call_mapping(struct silo_launcher *self, const struct silo_inputs *inputs,
                            const struct silo_binding *binding);

/* Checks that the arrays of a call are in memory that the binding's driver accepts; -1 with an
 * exception set. */
int silo_binding_check_device(const struct silo_launcher *self, const struct silo_binding *binding,
                              const struct silo_frame *frame);

/* Checks that the declared types of all parameters suit a binding, so that no call needs a guard;
 * -1 with an exception set. */
int silo_binding_check_plan(const struct silo_launcher *self, const struct silo_binding *binding);

#endif
