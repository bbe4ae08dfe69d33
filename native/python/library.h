/* Code that a library runs instead of a driver (a compiled function of jax, a shader of torch.mps):
 * a Python callable that receives the caller's own objects, the grid and the stream. */
#ifndef SILO_LIBRARY_H
#define SILO_LIBRARY_H

#include "kernel.h"
#include "launcher.h"

/* The module of a LoadedKernel whose code a library runs; it takes the place of a driver's module.
 */
struct silo_library {
    PyObject_HEAD PyObject *call; /* owned; NULL if the garbage collector cleared it */
    PyObject *kind; /* owned str: the name of the device, which `driver.name` points into */
    /* A driver table that only lists the device types whose memory the code accepts; nothing is
     * launched through it. */
    struct silo_driver driver;
    int32_t memory_type, device_index; /* the function's device; the type is the first one whose
                                          memory the code accepts */
};

extern PyTypeObject *silo_library_type;

/* Sets `*driver`, and fills in `function`, for a kernel loaded from `module`. The function's handle
 * becomes NULL. */
void silo_library_function(PyObject *module, const struct silo_driver **driver,
                           struct silo_function *function);

/* Calls the code of a binding whose function has no handle: call(arguments, grid, stream), with the
 * GIL held. Returns 0 if the call returned None. Returns 1 if it returned another object, which is
 * stored in `*error_text` (a new reference) and becomes the value of the launch. Returns -1 if it
 * raised; a note that names the kernel is then added to the exception. */
int silo_library_run(const struct silo_launcher *self, const struct silo_inputs *inputs,
                     const struct silo_binding *binding, const int64_t dims[3],
                     PyObject **error_text);

int silo_library_init(PyObject *module);

#endif
