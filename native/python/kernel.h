/* Kernels in memory. A LoadedKernel is an artifact handed to a driver; a Binding is a LoadedKernel
 * joined to the parameters of one launcher. Both are immutable once made. */
#ifndef SILO_KERNEL_H
#define SILO_KERNEL_H

#include "driver.h"
#include "given_grid.h"
#include "packing.h"
#include "python.h"

/* What must be alive while a function of it can run: a mapped object of the CPU driver, or nothing
 * but one function of this process, whose owner keeps it. */
struct silo_module {
    PyObject_HEAD void *object; /* owned; NULL: there is `function` */
    void *function;             /* whatever the name of the entry */
};

struct silo_loaded {
    PyObject_HEAD const struct silo_driver *driver;
    struct silo_function function;
    PyObject *module; /* owned: a CpuModule, a GpuModule or a LibraryCode */
    PyObject *entry;  /* owned str */
    PyObject *name;   /* owned str: the kernel's name, for messages */
};

struct silo_binding {
    PyObject_HEAD struct silo_loaded *loaded; /* owned */
    PyObject *config; /* owned dict: what a callable grid sees besides the arguments */
    PyObject *tag;    /* owned: whatever Python wants to find again */
    struct silo_packing packing;
    struct silo_grid_programs grid;
    PyObject *effects; /* owned dict, NULL: nobody said. Hooks are told; never written */
};

extern PyTypeObject *silo_module_type;
extern PyTypeObject *silo_loaded_type;
extern PyTypeObject *silo_binding_type;

int silo_loaded_init(PyObject *module);  /* CpuModule, LoadedKernel (loaded.c) */
int silo_binding_init(PyObject *module); /* Binding (binding.c) */

#endif
