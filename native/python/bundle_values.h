/* Methods of OpenBundle that return kernels, variants and table rows of an open bundle as Python
 * values; bundle_type.c describes them. */
#ifndef SILO_BUNDLE_VALUES_H
#define SILO_BUNDLE_VALUES_H

#include "python.h"

PyObject *silo_py_bundle_member(PyObject *self, PyObject *name);
PyObject *silo_py_bundle_kernels(PyObject *self, PyObject *unused);
PyObject *silo_py_bundle_find_kernel(PyObject *self, PyObject *name);
PyObject *silo_py_bundle_count(PyObject *self, PyObject *kernel);
PyObject *silo_py_bundle_kernel(PyObject *self, PyObject *kernel);
PyObject *silo_py_bundle_check_all(PyObject *self, PyObject *args);
PyObject *silo_py_bundle_variant(PyObject *self, PyObject *args);
PyObject *silo_py_bundle_groups(PyObject *self, PyObject *kernel);
PyObject *silo_py_bundle_sources(PyObject *self, PyObject *kernel);
PyObject *silo_py_bundle_exact(PyObject *self, PyObject *args);
PyObject *silo_py_bundle_host_digest(PyObject *self, PyObject *args);
PyObject *silo_py_bundle_config_text(PyObject *self, PyObject *args);
PyObject *silo_py_bundle_row(PyObject *self, PyObject *args);
PyObject *silo_py_bundle_names(PyObject *self, PyObject *args);

#endif
