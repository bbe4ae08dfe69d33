/* Finds the config that Triton has chosen for a call of a tuner, by Triton's exact key in Triton's
 * own cache. */
#ifndef SILO_TRITON_DECISION_H
#define SILO_TRITON_DECISION_H

#include "python.h"

/* The most values of a call, with those that configs and heuristics add. */
#define SILO_TUNED_VALUES 384

/* Returns the config, borrowed from the tuner's cache. Returns NULL, perhaps with an exception set,
 * if Triton must choose. `names` are interned. */
PyObject *silo_triton_decision(PyObject *arg_names, PyObject *keys, PyObject *cache,
                               PyObject *const *arguments, Py_ssize_t positional,
                               PyObject *const *names, Py_ssize_t named);

int silo_triton_decision_init(void);

#endif
