/* The first call of a kind: Python is called once, and its answer is checked.
 */
#ifndef SILO_MISS_H
#define SILO_MISS_H

#include "frame.h"
#include "launcher.h"

/* Ask on_miss, check and keep the answer; a new reference, or NULL with an exception set. */
struct silo_binding *silo_miss(struct silo_launcher *self, const struct silo_inputs *inputs,
                               const struct silo_grid_source *grid, struct silo_frame *frame,
                               uint64_t hash);

/* Store the object that serves calls like this one: the answer, or, if a Triton program's call does
 * not suit it, the reason as text; a new reference, NULL with an exception set. */
PyObject *silo_miss_keep(struct silo_launcher *self, const struct silo_inputs *inputs,
                         const struct silo_frame *frame, PyObject *answer, uint64_t hash);

/* (facts, arguments, options, (device type, device index), grid) of a call; a new reference. The
 * grid is the call's or the launcher's: a callable, a tuple, an int, or None. Facts are one (kind,
 * code, bits, flags, ndim) a parameter, ndim -1 for an argument that is not an array. */
PyObject *silo_call_facts(struct silo_launcher *self, const struct silo_inputs *inputs,
                          const struct silo_grid_source *grid, const struct silo_frame *frame);

/* An argument could not be read, and an exception says so: call the launcher's on_unread(arguments,
 * options, grid), which may serve the call for a library that traces it. None, a new reference;
 * NULL with an exception set, the first exception if it does not serve the call. */
PyObject *silo_unread(struct silo_launcher *self, const struct silo_inputs *inputs,
                      const struct silo_grid_source *grid);

/* The namespace of a callable grid: config values, then arguments, then options by name; a new
 * dict. */
PyObject *silo_call_mapping(struct silo_launcher *self, const struct silo_inputs *inputs,
                            const struct silo_binding *binding);

/* Whether the arrays of a call are in memory that the binding's driver takes. */
int silo_binding_check_device(const struct silo_launcher *self, const struct silo_binding *binding,
                              const struct silo_frame *frame);

/* Whether a binding suits the declared types of every parameter it takes, so that no call needs a
 * guard. */
int silo_binding_check_plan(const struct silo_launcher *self, const struct silo_binding *binding);

#endif
