/* Bindings of a bundle's variants, joined to their kernel as calls from C join them (served.h,
 * layout.h). */
#ifndef SILO_BUNDLE_BINDING_H
#define SILO_BUNDLE_BINDING_H

#include "python.h"

extern const char silo_py_bind_variant_doc[];

PyObject *silo_py_bind_variant(PyObject *module, PyObject *args);

#endif
