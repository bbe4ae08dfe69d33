/* The method `run` that Silo puts on Triton's classes while it serves launches. It is cheap to
 * bind. For a call `run(..., **keywords)` it uses the dictionary that CPython makes, without
 * unpacking it into an array first. */
#ifndef SILO_TRITON_RUN_H
#define SILO_TRITON_RUN_H

#include "triton_bound.h"

/* Returns the method for the objects of a class, a new reference. */
PyObject *silo_triton_run_new(PyTypeObject *kind, silo_triton_run_function run);

int silo_triton_run_init(PyObject *module); /* adds the type TritonRun */

#endif
