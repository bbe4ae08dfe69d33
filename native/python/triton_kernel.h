/* Launches of Triton programs, from Triton's own calls to the guard: run(...) and
 * kernel[grid](...).
 */
#ifndef SILO_TRITON_KERNEL_H
#define SILO_TRITON_KERNEL_H

#include "triton_way.h"

/* triton_methods(kind, first_use): (run, __getitem__) to be put on a class of Triton's functions.
 */
PyObject *silo_py_triton_methods(PyObject *module, PyObject *args);

int silo_triton_kernel_init(PyObject *module); /* TritonKernel, TritonBound */

#endif
