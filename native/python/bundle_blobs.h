/* Methods of OpenBundle that return the blobs of an open bundle; bundle_type.c describes them. */
#ifndef SILO_BUNDLE_BLOBS_H
#define SILO_BUNDLE_BLOBS_H

#include "python.h"

PyObject *silo_py_bundle_blobs(PyObject *self, PyObject *unused);
PyObject *silo_py_bundle_blob(PyObject *self, PyObject *number);
PyObject *silo_py_bundle_find_blob(PyObject *self, PyObject *args);
PyObject *silo_py_bundle_read(PyObject *self, PyObject *number);

#endif
