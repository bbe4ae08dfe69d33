/* Launches of Triton programs, from Triton's own calls to the guard: run(...) and
 * kernel[grid](...).
 */
#ifndef SILO_TRITON_KERNEL_H
#define SILO_TRITON_KERNEL_H

#include "triton_way.h"

/* triton_methods(kind, first_use): (run, __getitem__) to be put on a class of Triton's functions.
 */
PyObject *silo_py_triton_methods(PyObject *module, PyObject *args);

/* triton_compiled(kind, getitem, first_launch): __getitem__ to be put on Triton's class of compiled
 * kernels, `getitem` Triton's own. */
PyObject *silo_py_triton_compiled(PyObject *module, PyObject *args);

/* Whether launches of a function come here. */
bool silo_triton_is_served(PyObject *function);

/* Launch a function of this kind: run(*arguments, **named), `names` a tuple. */
PyObject *silo_triton_launch_function(PyObject *function, PyObject *const *arguments,
                                      Py_ssize_t positional, PyObject *names);

int silo_triton_kernel_init(PyObject *module); /* TritonKernel */

#endif
