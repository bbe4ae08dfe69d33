/* Code that a library runs and no driver (a compiled function of jax, a shader of torch.mps): a
 * callable of Python that gets the caller's own objects, the grid and the stream. */
#ifndef SILO_LIBRARY_H
#define SILO_LIBRARY_H

#include "kernel.h"
#include "launcher.h"

/* The parts of a LoadedKernel then, in place of a module of a driver. */
struct silo_library {
    PyObject_HEAD PyObject *call; /* owned; NULL: the collector took it */
    PyObject *kind;            /* owned str, the name of the device: `driver.name` points into it */
    struct silo_driver driver; /* names the memory it takes; launches nothing itself */
    int32_t memory_type, device_index; /* of the function: the first type of memory it takes */
};

extern PyTypeObject *silo_library_type;

/* Fill the driver and the function of a kernel loaded from `module`, without a handle. */
void silo_library_function(PyObject *module, const struct silo_driver **driver,
                           struct silo_function *function);

/* Call the code of a binding whose function lacks a handle: call(arguments, grid, stream). 0 if it
 * returns None; 1 with its result in `*made` (a new reference), which the launch returns. Its
 * exception is raised with a note that names the kernel; -1 then. With the GIL. */
int silo_library_run(const struct silo_launcher *self, const struct silo_inputs *inputs,
                     const struct silo_binding *binding, const int64_t dims[3], PyObject **made);

int silo_library_init(PyObject *module);

#endif
