/* Row-major arrays that Silo allocates, with their attributes and their export by DLPack: the
 * common part of HostBuffer and GpuBuffer. */
#ifndef SILO_TENSOR_H
#define SILO_TENSOR_H

#include "python.h"

#include "dlpack.h"
#include "dtypes.h"
#include "shape.h"

struct silo_tensor {
    void *memory; /* owned by the object that this tensor is part of; NULL only without
                     elements */
    struct dl_device device;
    struct silo_dtype type;
    int32_t ndim;
    int64_t bytes;
    int64_t shape[SILO_MAX_AXES];
    int64_t strides[SILO_MAX_AXES]; /* in elements */
};

/* The first members of every object with a tensor; the functions below take such an object. */
struct silo_tensor_object {
    PyObject_HEAD struct silo_tensor tensor;
};

/* Sets the type, extents, strides and bytes; -1 with an ArgumentError set. */
int silo_tensor_describe(struct silo_tensor *tensor, PyObject *shape, const char *dtype);

/* The arguments of `__dlpack__`, borrowed; None for those not given. */
struct silo_dlpack_request {
    PyObject *stream, *max_version, *copy;
    bool has_device;
    struct dl_device device;
};

/* Reads the arguments of `__dlpack__`; -1 with an exception set. The caller refuses requests that
 * its object cannot serve, such as a copy. */
int silo_dlpack_read(PyObject *args, PyObject *keywords, struct silo_dlpack_request *request);

/* Returns a capsule that keeps the object alive. It is a versioned one if `max_version` (a tuple or
 * None) is 1.0 or later. */
PyObject *silo_tensor_capsule(PyObject *object, PyObject *max_version);

/* Implements the method `__dlpack_device__`. */
PyObject *silo_tensor_device(PyObject *object, PyObject *unused);

/* Getters of the attributes shape, strides, dtype and nbytes. */
PyObject *silo_tensor_shape(PyObject *object, void *closure);
PyObject *silo_tensor_strides(PyObject *object, void *closure);
PyObject *silo_tensor_dtype(PyObject *object, void *closure);
PyObject *silo_tensor_nbytes(PyObject *object, void *closure);

/* Gives a type of these objects DLPack's exchange API, and adds it to the module. */
int silo_tensor_add_type(PyObject *module, const char *name, PyTypeObject *type);

struct silo_adapter;

/* Returns whether an adapter reads Silo's own arrays, whose extents cover all of their memory. */
bool silo_tensor_owns(const struct silo_adapter *adapter);

/* Returns a tuple of the first `count` values. */
PyObject *silo_tensor_integers(const int64_t *values, int32_t count);

#endif
