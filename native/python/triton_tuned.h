/* Calls of Triton's own tuners and heuristics, once they are decided: by Triton's exact key and
 * from Triton's own cache, without its Python code. All that is not decided goes Triton's own way.
 */
#ifndef SILO_TRITON_TUNED_H
#define SILO_TRITON_TUNED_H

#include "python.h"

/* triton_tuners(autotuner, run, heuristics, run, members, decided): (run, __getitem__) of the first
 * class and of the second, to be put on them. The runs are Triton's; `members` names a config's
 * values besides its keywords, in Triton's order. */
PyObject *silo_py_triton_tuners(PyObject *module, PyObject *args);

int silo_triton_tuned_init(void);

#endif
