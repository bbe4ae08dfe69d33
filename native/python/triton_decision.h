/* Triton's decision for a call of a tuner: by Triton's exact key, from Triton's own cache. */
#ifndef SILO_TRITON_DECISION_H
#define SILO_TRITON_DECISION_H

#include "python.h"

#define SILO_TUNED_VALUES 384 /* of one call, with the additions of configs and heuristics */

/* The config, borrowed from the tuner's cache; NULL, perhaps with an exception: Triton decides.
 * `names` are canonical. */
PyObject *silo_triton_decision(PyObject *arg_names, PyObject *keys, PyObject *cache,
                               PyObject *const *arguments, Py_ssize_t positional,
                               PyObject *const *names, Py_ssize_t named);

int silo_triton_decision_init(void);

#endif
