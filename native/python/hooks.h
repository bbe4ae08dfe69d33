/* Callbacks around launches. Off, they cost one test of a flag. */
#ifndef SILO_HOOKS_H
#define SILO_HOOKS_H

#include "launcher.h"

extern bool silo_hooks_on;

/* Call the function that `set_hooks` was given: enter(kernel, arguments, config, grid, stream,
 * device, effects, tag of the binding) -> token. A new reference, or NULL with its exception set:
 * nothing is launched then. */
PyObject *silo_hooks_enter(const struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_binding *binding, const int64_t dims[3], void *stream);

/* exit(token) after the launch, also a failed one. Takes the reference. -1 with an exception set;
 * one that was set before stays. */
int silo_hooks_exit(PyObject *token);

/* Two callables, or None and None: off. */
int silo_hooks_set(PyObject *enter, PyObject *leave);

#endif
