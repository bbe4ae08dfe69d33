/* Bound: a launcher with the grid of `launcher[grid]`, to be called. */
#ifndef SILO_BOUND_H
#define SILO_BOUND_H

#include "launcher.h"

struct silo_bound {
    PyObject_HEAD vectorcallfunc call;
    struct silo_launcher *launcher; /* owned */
    PyObject *grid_object;          /* owned */
    struct silo_grid_source grid;
    bool tracked; /* by the collector; see bound.c */
};

/* `launcher[grid]`: a new reference; NULL with an exception set. */
PyObject *silo_bound_new(struct silo_launcher *launcher, PyObject *grid);

/* Free the memory a launcher keeps for its next Bound. */
void silo_bound_drop_spare(struct silo_launcher *launcher);

int silo_bound_init(PyObject *module);

#endif
