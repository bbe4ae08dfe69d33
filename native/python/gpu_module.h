/* Code loaded on a GPU, and the types of Python about GPUs. */
#ifndef SILO_GPU_MODULE_H
#define SILO_GPU_MODULE_H

#include "device.h"
#include "python.h"

struct silo_gpu_module {
    PyObject_HEAD struct silo_gpu_device *device;
    void *image;  /* owned: the code, where the driver may read it later; else NULL */
    void *module; /* owned: unloaded when the last LoadedKernel and every launch of it are gone */
    /* Set (relaxed, never cleared) once a launch of it was captured into a graph, which does not
     * keep it alive: such a module stays loaded to the end of the process. */
    int captured;
    PyObject *weakrefs; /* Python's list of them */
};

extern PyTypeObject *silo_gpu_module_type;

/* Fill `function` (whose launch parameters the caller has set: block, cluster, shared_bytes,
 * cooperative, pdl) with handle, device, grid_limit and attributes. Checks shared memory (static
 * and dynamic), blocks and clusters against the device and the function. -1 with a DeviceError
 * set. */
int silo_gpu_function(struct silo_gpu_module *module, PyObject *kernel, const char *entry,
                      struct silo_function *function);

/* Offset and size of each parameter that the driver reads of a launch, as a tuple of pairs; None
 * where it does not tell. NULL with an error set. */
PyObject *silo_gpu_parameters(struct silo_gpu_module *module, const struct silo_function *function);

int silo_gpu_module_init(PyObject *module);
int silo_gpu_memory_init(PyObject *module); /* GpuBuffer */
int silo_gpu_pinned_init(PyObject *module); /* PinnedMemory */
int silo_gpu_timing_init(PyObject *module); /* GpuStream, GpuEvent */
extern PyMethodDef silo_gpu_methods[];      /* gpu_open, gpu_attributes, ... (gpu_functions.c) */

#endif
