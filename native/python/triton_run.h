/* `run` as a class of Triton's has it while launches are served: a method that costs little to bind
 * and gets the dictionary of `run(..., **keywords)` itself. */
#ifndef SILO_TRITON_RUN_H
#define SILO_TRITON_RUN_H

#include "triton_bound.h"

/* The method of the objects of a class; a new reference. */
PyObject *silo_triton_run_new(PyTypeObject *kind, silo_triton_run_function run);

int silo_triton_run_init(PyObject *module); /* TritonRun */

#endif
