/* Converts the tuple and dict of a call to the form of the vectorcall protocol: an array of values,
 * and a tuple of names for the last of these values. PyVectorcall_Call does the same, but is not
 * part of the stable ABI before Python 3.12. */
#ifndef SILO_FLAT_H
#define SILO_FLAT_H

#include "python.h"

struct silo_flat {
    PyObject **values; /* owned references, because the call may change the dict that they are in */
    Py_ssize_t positional, count;
    PyObject *names; /* owned tuple, or NULL */
};

/* Fills in `flat`; -1 with an exception set. `keywords` may be NULL. silo_flat_free is to be called
 * in either case. */
int silo_flat_make(struct silo_flat *flat, PyObject *args, PyObject *keywords);
void silo_flat_free(struct silo_flat *flat);
/* Implements tp_call for a type by the vectorcall function `call` of its objects. */
PyObject *silo_flat_call(PyObject *self, PyObject *args, PyObject *keywords, vectorcallfunc call);

/* Returns callable(argument), a new reference. */
SILO_INLINE PyObject *silo_call_one(PyObject *callable, PyObject *argument) {
    return PyObject_CallFunctionObjArgs(callable, argument, NULL);
}

#endif
