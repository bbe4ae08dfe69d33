/* Functions that read a whole bundle. */
#ifndef SILO_BUNDLE_CHECK_H
#define SILO_BUNDLE_CHECK_H

#include "python.h"

extern const char silo_py_bundle_check_doc[];
extern const char silo_py_bundle_digests_doc[];

PyObject *silo_py_bundle_check(PyObject *module, PyObject *args);
PyObject *silo_py_bundle_digests(PyObject *module, PyObject *args);

#endif
