/* A launcher with its owner bound: `owner[grid]` of a Triton function, a tuner or heuristics, and
 * `function.run`. */
#ifndef SILO_TRITON_BOUND_H
#define SILO_TRITON_BOUND_H

#include "python.h"

/* run(owner, *arguments, **named): values in a row, `names` a tuple or NULL, as METH_FASTCALL. */
typedef PyObject *(*silo_triton_run_function)(PyObject *owner, PyObject *const *arguments,
                                              Py_ssize_t positional, PyObject *names);

struct silo_triton_bound {
    PyObject_HEAD vectorcallfunc call; /* NULL: `run` is called */
    silo_triton_run_function run;      /* NULL: `call` is */
    PyObject *owner;                   /* owned */
    PyObject *grid;                    /* owned; NULL: this is `owner.run` */
    int64_t dims[3];                   /* where `plain` */
    bool plain;                        /* a tuple of one to three integers */
    bool tracked;                      /* by the collector: another object refers to it */
};

/* A new reference; `call` gets it as its first argument, and begins with silo_triton_bound_used. */
PyObject *silo_triton_bind(PyObject *owner, PyObject *grid, vectorcallfunc call);

/* The same for `owner.run`. */
PyObject *silo_triton_bind_run(PyObject *owner, silo_triton_run_function run);

SILO_INLINE void silo_triton_bound_used(struct silo_triton_bound *bound) {
    if (SILO_UNLIKELY(!bound->tracked && Py_REFCNT((PyObject *)bound) > 1)) {
        bound->tracked = true;
        PyObject_GC_Track((PyObject *)bound);
    }
}

int silo_triton_bound_init(PyObject *module); /* TritonBound */

#endif
