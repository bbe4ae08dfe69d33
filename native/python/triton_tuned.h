/* Calls of Triton's tuners and heuristics. If Triton has chosen a config, the call is made without
 * Triton's Python code: the config is found by Triton's exact key in Triton's own cache. Other
 * calls go to Triton. */
#ifndef SILO_TRITON_TUNED_H
#define SILO_TRITON_TUNED_H

#include "python.h"

/* Implements triton_tuners(autotuner, run, heuristics, run, members, decided): returns the pair
 * (run, __getitem__) for the class of tuners, followed by such a pair for the class of heuristics.
 * The arguments `run` are Triton's own; `members` names a config's values besides its keywords, in
 * Triton's order; `decided` is the dictionary class that, besides dict, a tuner's cache may have.
 */
PyObject *silo_py_triton_tuners(PyObject *module, PyObject *args);

int silo_triton_tuned_init(void);

#endif
