/* Row-major arrays that Silo allocates, their attributes and their export by DLPack: the common
 * part of buffers in host memory and in a device's memory. */
#ifndef SILO_TENSOR_H
#define SILO_TENSOR_H

#include "python.h"

#include "dlpack.h"
#include "dtypes.h"
#include "shape.h"

struct silo_tensor {
    void *memory; /* owned by the object that has this tensor; NULL only without elements */
    struct dl_device device;
    struct silo_dtype type;
    int32_t ndim;
    int64_t bytes;
    int64_t shape[SILO_MAX_AXES];
    int64_t strides[SILO_MAX_AXES]; /* in elements */
};

/* The start of every object with a tensor; functions below take it as `object`. */
struct silo_tensor_object {
    PyObject_HEAD struct silo_tensor tensor;
};

/* Set type, extents, strides and bytes; -1 with an ArgumentError set. */
int silo_tensor_describe(struct silo_tensor *tensor, PyObject *shape, const char *dtype);

/* The arguments of `__dlpack__`, borrowed; None if not given. */
struct silo_dlpack_request {
    PyObject *stream, *max_version, *copy;
    bool has_device;
    struct dl_device device;
};

/* -1 with an exception set. The object decides which requests it accepts. */
int silo_dlpack_read(PyObject *args, PyObject *keywords, struct silo_dlpack_request *request);

/* A capsule that keeps the object alive: of the versioned kind if `max_version` (a tuple or
 * None) is 1.0 or later. */
PyObject *silo_tensor_capsule(PyObject *object, PyObject *max_version);

/* The method `__dlpack_device__`. */
PyObject *silo_tensor_device(PyObject *object, PyObject *unused);

/* Getters. */
PyObject *silo_tensor_shape(PyObject *object, void *closure);
PyObject *silo_tensor_strides(PyObject *object, void *closure);
PyObject *silo_tensor_dtype(PyObject *object, void *closure);
PyObject *silo_tensor_nbytes(PyObject *object, void *closure);

/* Give a type of these objects DLPack's exchange API and put it into the module. */
int silo_tensor_add_type(PyObject *module, const char *name, PyTypeObject *type);

struct silo_adapter;

/* Whether an adapter reads Silo's own arrays: the extent of such an array is its memory's. */
bool silo_tensor_owns(const struct silo_adapter *adapter);

/* A tuple of the first `count` values. */
PyObject *silo_tensor_integers(const int64_t *values, int32_t count);

#endif
