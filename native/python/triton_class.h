/* A class of Triton's while launches of its objects are served: which run it has then. */
#ifndef SILO_TRITON_CLASS_H
#define SILO_TRITON_CLASS_H

#include "python.h"

struct silo_triton_class {
    PyTypeObject *type; /* owned; NULL: none is served */
    PyObject *members;  /* owned: its own dictionary; NULL: not known */
    PyObject *run;      /* owned: its `run` while launches are served */
};

extern PyObject *silo_triton_s_run; /* "run", interned */

void silo_triton_class_set(struct silo_triton_class *served, PyTypeObject *type, PyObject *run);

/* The same for an object of any class, read by its attributes. */
bool silo_triton_class_finds(const struct silo_triton_class *served, PyObject *object);

/* Whether an object still launches through us: a program may have put its own run there. A class's
 * own dictionary goes before all that it inherits. */
SILO_INLINE bool silo_triton_class_runs(const struct silo_triton_class *served, PyObject *object) {
    if (SILO_LIKELY(Py_TYPE(object) == served->type && served->members != NULL) &&
        SILO_LIKELY(PyDict_GetItemWithError(served->members, silo_triton_s_run) == served->run))
        return true;
    return silo_triton_class_finds(served, object);
}

int silo_triton_class_init(void);

#endif
