/* A call's tuple and dict as the vectorcall protocol has them: values in a row, then the names of
 * the last ones. PyVectorcall_Call does the same and is not part of the stable ABI before 3.12. */
#ifndef SILO_FLAT_H
#define SILO_FLAT_H

#include "python.h"

struct silo_flat {
    PyObject **values; /* owned, with references: a call may change the dict it came from */
    Py_ssize_t positional, count;
    PyObject *names; /* owned tuple; NULL: none */
};

/* -1 with an exception set; silo_flat_free is due in any case. `keywords` may be NULL. */
int silo_flat_make(struct silo_flat *flat, PyObject *args, PyObject *keywords);
void silo_flat_free(struct silo_flat *flat);
/* For tp_call of a type whose objects have the given vectorcall function. */
PyObject *silo_flat_call(PyObject *self, PyObject *args, PyObject *keywords, vectorcallfunc call);

/* callable(argument); new reference. */
SILO_INLINE PyObject *silo_call_one(PyObject *callable, PyObject *argument) {
    return PyObject_CallFunctionObjArgs(callable, argument, NULL);
}

#endif
