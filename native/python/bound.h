/* Bound: the object that `launcher[grid]` returns; calling it launches the kernel. */
#ifndef SILO_BOUND_H
#define SILO_BOUND_H

#include "launcher.h"

struct silo_bound {
    PyObject_HEAD vectorcallfunc call;
    struct silo_launcher *launcher; /* owned */
    PyObject *grid_object;          /* owned */
    struct silo_grid_source grid;
    bool tracked; /* whether the garbage collector tracks the object (see silo_bound_new) */
};

/* Returns `launcher[grid]`, a new reference, or NULL with an exception set. */
PyObject *silo_bound_new(struct silo_launcher *launcher, PyObject *grid);

/* Frees the memory that a launcher keeps for its next Bound. */
void silo_bound_drop_spare(struct silo_launcher *launcher);

int silo_bound_init(PyObject *module);

#endif
