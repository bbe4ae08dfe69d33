#include "tensor.h"

#include "errors.h"

#include <stdlib.h>

static int read_shape(struct silo_tensor *tensor, PyObject *shape) {
    const Py_ssize_t ndim = PySequence_Size(shape);
    if (ndim < 0)
        return -1;
    if (ndim > SILO_MAX_AXES) {
        PyErr_SetString(silo_argument_error, "a Buffer has at most 32 dimensions");
        return -1;
    }
    tensor->ndim = (int32_t)ndim;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        PyObject *item = PySequence_GetItem(shape, i);
        tensor->shape[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (tensor->shape[i] < 0) {
            if (!PyErr_Occurred())
                PyErr_Format(silo_argument_error, "a Buffer's shape has no negative extents: %R",
                             shape);
            return -1;
        }
    }
    return 0;
}

int silo_tensor_describe(struct silo_tensor *tensor, PyObject *shape, const char *dtype) {
    tensor->type = silo_dtype_named(dtype, strlen(dtype));
    if (tensor->type.bits == 0) {
        PyErr_Format(silo_argument_error, "a Buffer of dtype '%s': no kernel knows that dtype",
                     dtype);
        return -1;
    }
    if (read_shape(tensor, shape) != 0)
        return -1;
    int64_t elements = 1;
    bool overflow = false;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        tensor->strides[i] = elements;
        overflow |= __builtin_mul_overflow(elements, tensor->shape[i], &elements) ||
                    elements > INT64_MAX / 64;
    }
    if (overflow) {
        PyErr_Format(silo_argument_error, "a Buffer of shape %R does not fit any memory", shape);
        return -1;
    }
    tensor->bytes = elements * tensor->type.bits / 8;
    return 0;
}

void silo_tensor_view(struct silo_tensor *tensor, struct dl_tensor *view) {
    *view = (struct dl_tensor){
        .data = tensor->memory,
        .device = tensor->device,
        .ndim = tensor->ndim,
        .dtype = {tensor->type.code, tensor->type.bits, 1},
        .shape = tensor->shape,
        .strides = tensor->strides,
        .byte_offset = 0,
    };
}

/* Consumers may drop their tensor from any thread. */
static void release_owner(void *owner) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

static void delete_managed(struct dl_managed *managed) {
    release_owner(managed->context);
    free(managed);
}

static void delete_versioned(struct dl_managed_versioned *managed) {
    release_owner(managed->context);
    free(managed);
}

/* A capsule that nobody took still owns its tensor. */
static void drop_managed(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    }
}

static void drop_versioned(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        managed->deleter(managed);
    }
}

struct dl_managed_versioned *silo_tensor_managed(PyObject *owner, struct silo_tensor *tensor) {
    struct dl_managed_versioned *managed = malloc(sizeof *managed); /* owned by the caller */
    if (managed == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *managed = (struct dl_managed_versioned){1, 0, owner, delete_versioned, 0, {0}};
    silo_tensor_view(tensor, &managed->tensor);
    Py_INCREF(owner);
    return managed;
}

static PyObject *unversioned_capsule(PyObject *owner, struct silo_tensor *tensor) {
    struct dl_managed *managed =
        malloc(sizeof *managed); /* owned by the capsule, then by its consumer */
    if (managed == NULL)
        return PyErr_NoMemory();
    silo_tensor_view(tensor, &managed->tensor);
    managed->context = owner;
    managed->deleter = delete_managed;
    Py_INCREF(owner);
    PyObject *capsule = PyCapsule_New(managed, "dltensor", drop_managed);
    if (capsule == NULL)
        delete_managed(managed);
    return capsule;
}

PyObject *silo_tensor_capsule(PyObject *owner, struct silo_tensor *tensor, PyObject *max_version) {
    int major = 0, minor = 0;
    if (max_version != Py_None &&
        (!PyTuple_Check(max_version) || !PyArg_ParseTuple(max_version, "ii", &major, &minor))) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "max_version is a tuple of two ints, not %R",
                         max_version);
        return NULL;
    }
    if (major < 1)
        return unversioned_capsule(owner, tensor);
    struct dl_managed_versioned *managed = silo_tensor_managed(owner, tensor);
    if (managed == NULL)
        return NULL;
    PyObject *capsule = PyCapsule_New(managed, "dltensor_versioned", drop_versioned);
    if (capsule == NULL)
        delete_versioned(managed);
    return capsule;
}

PyObject *silo_tensor_integers(const int64_t *values, int32_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; i < count && tuple != NULL; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (value == NULL || PyTuple_SetItem(tuple, i, value) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}
