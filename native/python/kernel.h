/* Kernels in memory. A LoadedKernel is an artifact that a driver has loaded; a Binding joins a
 * LoadedKernel to the parameters of one launcher. Neither changes once made, except for the tensor
 * maps and the flight recorder's facts that a binding keeps from its launches. */
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
    struct silo_binary *binary; /* borrowed from the module; NULL for a LibraryCode */
    PyObject *entry;            /* owned str */
    PyObject *name;             /* owned str: the name of the kernel in messages */
};

struct silo_binding {
    PyObject_HEAD struct silo_loaded *loaded; /* owned */
    PyObject *config; /* owned dict: values that a callable grid receives besides the arguments */
    PyObject *tag;    /* owned: any object; Python passes it to Binding() and can read it later */
    struct silo_packing packing;
    struct silo_grid_programs grid;
    /* the facts about launches of this binding that the flight recorder keeps; never freed; NULL
     * before the first recorded launch */
    struct silo_flight_kind *flight;
    PyObject *effects; /* owned dict that hooks receive, never changed; NULL if unknown */
    PyObject *maps;    /* owned: encoded maps of arrays (map_cache.h), or NULL */
    silo_lock maps_lock;
};

#endif
