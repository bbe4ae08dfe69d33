/* Functions of the module silo._native that call code of native/core which does not use Python:
 * expressions, buckets, generated arrays and dtypes. */
#ifndef SILO_FUNCTIONS_H
#define SILO_FUNCTIONS_H

#include "python.h"

extern const char silo_py_evaluate_doc[];
extern const char silo_py_tabulate_doc[];
extern const char silo_py_generate_doc[];

PyObject *silo_py_evaluate(PyObject *module, PyObject *args);
PyObject *silo_py_tabulate(PyObject *module, PyObject *args);
PyObject *silo_py_bucket(PyObject *module, PyObject *value);
PyObject *silo_py_generate(PyObject *module, PyObject *args);
PyObject *silo_py_narrow(PyObject *module, PyObject *args);
PyObject *silo_py_dtype_named(PyObject *module, PyObject *name);

#endif
