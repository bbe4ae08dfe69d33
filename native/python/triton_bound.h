/* The objects `owner[grid]` of a Triton function, a tuner or heuristics, and `function.run`: each
 * holds its owner, and calling it launches. */
#ifndef SILO_TRITON_BOUND_H
#define SILO_TRITON_BOUND_H

#include "python.h"

/* Implements run(owner, *arguments, **named) with arguments as for METH_FASTCALL; `names` is a
 * tuple or NULL. */
typedef PyObject *(*silo_triton_run_function)(PyObject *owner, PyObject *const *arguments,
                                              Py_ssize_t positional, PyObject *names);

struct silo_triton_bound {
    PyObject_HEAD vectorcallfunc call; /* NULL if `run` is called instead */
    silo_triton_run_function run;      /* NULL if `call` is called instead */
    PyObject *owner;                   /* owned */
    PyObject *grid;                    /* owned; NULL for `owner.run` */
    int64_t dims[3];                   /* the grid's extents, if `plain` is set */
    bool plain;                        /* the grid is a tuple of one to three integers */
    bool tracked; /* the garbage collector tracks the object, because another object refers to it */
};

/* Returns `owner[grid]`, a new reference. `call` receives this object as its first argument, and
 * must begin by calling silo_triton_bound_used. */
PyObject *silo_triton_bind(PyObject *owner, PyObject *grid, vectorcallfunc call);

/* Returns `owner.run`, a new reference. */
PyObject *silo_triton_bind_run(PyObject *owner, silo_triton_run_function run);

SILO_INLINE void silo_triton_bound_used(struct silo_triton_bound *bound) {
    if (SILO_UNLIKELY(!bound->tracked && Py_REFCNT((PyObject *)bound) > 1)) {
        bound->tracked = true;
        PyObject_GC_Track((PyObject *)bound);
    }
}

int silo_triton_bound_init(PyObject *module); /* adds the type TritonBound */

#endif
