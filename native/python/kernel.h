/* Kernels in memory. A LoadedKernel is an artifact handed to a driver; a Binding is a LoadedKernel
 * joined to the parameters of one launcher. Both are immutable once made, except for a binding's
 * memory of its last calls. */
#ifndef SILO_KERNEL_H
#define SILO_KERNEL_H

#include "binary.h"
#include "driver.h"
#include "given_grid.h"
#include "locks.h"
#include "packing.h"
#include "python.h"

struct silo_flight_kind;

struct silo_loaded {
    PyObject_HEAD const struct silo_driver *driver;
    struct silo_function function;
    PyObject *module;           /* owned: a CpuModule, a GpuModule or a LibraryCode */
    struct silo_binary *binary; /* borrowed of the module; NULL: a LibraryCode */
    PyObject *entry;            /* owned str */
    PyObject *name;             /* owned str: the kernel's name, for messages */
};

struct silo_binding {
    PyObject_HEAD struct silo_loaded *loaded; /* owned */
    PyObject *config; /* owned dict: a callable grid's values besides the arguments */
    PyObject *tag;    /* owned: whatever Python wants to find again */
    struct silo_packing packing;
    struct silo_grid_programs grid;
    struct silo_flight_kind *flight; /* of the flight recorder; never freed. NULL: none yet */
    PyObject *effects;               /* owned dict, NULL: unknown. passed to hooks; never written */
    PyObject *maps; /* owned: encoded maps of arrays (kept_map.h); NULL: none yet */
    silo_lock maps_lock;
};

#endif
