/* Launches of Triton programs, from the calls run(...) and kernel[grid](...) to the guard. */
#ifndef SILO_TRITON_KERNEL_H
#define SILO_TRITON_KERNEL_H

#include "triton_fallback.h"

/* Implements triton_methods(kind, first_use): returns (run, __getitem__) for a class of Triton's
 * functions. */
PyObject *silo_py_triton_methods(PyObject *module, PyObject *args);

/* Implements triton_compiled(kind, getitem, first_launch): returns __getitem__ for Triton's class
 * of compiled kernels; `getitem` is Triton's own. */
PyObject *silo_py_triton_compiled(PyObject *module, PyObject *args);

/* Returns whether Silo handles a function's launches, because its `run` is Silo's. */
bool silo_triton_is_served(PyObject *function);

/* Launches a served function: run(*arguments, **named), where `names` is a tuple. */
PyObject *silo_triton_launch_function(PyObject *function, PyObject *const *arguments,
                                      Py_ssize_t positional, PyObject *names);

int silo_triton_kernel_init(PyObject *module); /* adds the type TritonKernel */

#endif
