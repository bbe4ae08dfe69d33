/* Row-major arrays that Silo allocates, and their export by DLPack: what the buffers in host memory
 * and in a device's memory have in common. */
#ifndef SILO_TENSOR_H
#define SILO_TENSOR_H

#include "python.h"

#include "dlpack.h"
#include "dtypes.h"

#define SILO_MAX_AXES 32

struct silo_tensor {
    void *memory; /* owned by the object that has this tensor; NULL only without elements */
    struct dl_device device;
    struct silo_dtype type;
    int32_t ndim;
    int64_t bytes;
    int64_t shape[SILO_MAX_AXES];
    int64_t strides[SILO_MAX_AXES]; /* in elements */
};

/* Set type, extents, strides and bytes; -1 with an ArgumentError set. */
int silo_tensor_describe(struct silo_tensor *tensor, PyObject *shape, const char *dtype);

/* The view of DLPack; borrowed. */
void silo_tensor_view(struct silo_tensor *tensor, struct dl_tensor *view);

/* Export the tensor of `owner`, which the export keeps alive; NULL with an exception set. */
struct dl_managed_versioned *silo_tensor_managed(PyObject *owner, struct silo_tensor *tensor);

/* The same as a capsule: of the versioned kind where `max_version` (a tuple or None) is 1.0 or
 * later. */
PyObject *silo_tensor_capsule(PyObject *owner, struct silo_tensor *tensor, PyObject *max_version);

/* A tuple of the first `count` values. */
PyObject *silo_tensor_integers(const int64_t *values, int32_t count);

#endif
