/* Bindings of a bundle's variants. Packing and grid follow from the manifest in the same way as for
 * calls from C (served.h, layout.h). */
#ifndef SILO_BUNDLE_BINDING_H
#define SILO_BUNDLE_BINDING_H

#include "python.h"

extern const char silo_py_bind_variant_doc[];

PyObject *silo_py_bind_variant(PyObject *module, PyObject *args);

#endif
