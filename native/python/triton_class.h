/* One of Triton's classes, while Silo serves launches of its objects by replacing its method `run`.
 */
#ifndef SILO_TRITON_CLASS_H
#define SILO_TRITON_CLASS_H

#include "python.h"

struct silo_triton_class {
    PyTypeObject *type; /* owned; NULL if no class is served */
    PyObject *members;  /* owned: the class's own dictionary; NULL if unknown */
    PyObject *run;      /* owned: Silo's `run`, while launches are served */
};

extern PyObject *silo_triton_s_run; /* "run", interned */

void silo_triton_class_set(struct silo_triton_class *served, PyTypeObject *type, PyObject *run);

/* Does what silo_triton_class_runs does for an object of any class, by reading its attributes. */
bool silo_triton_class_finds(const struct silo_triton_class *served, PyObject *object);

/* Returns whether an object's `run` is Silo's: the program may have replaced it. The
 * dictionary of the object's class is searched first, because a member in it takes precedence over
 * inherited ones. */
SILO_INLINE bool silo_triton_class_runs(const struct silo_triton_class *served, PyObject *object) {
    if (SILO_LIKELY(Py_TYPE(object) == served->type && served->members != NULL) &&
        SILO_LIKELY(PyDict_GetItemWithError(served->members, silo_triton_s_run) == served->run))
        return true;
    return silo_triton_class_finds(served, object);
}

int silo_triton_class_init(void);

#endif
