#include "tensor.h"

#include "adapter.h"
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

static void view_of(struct silo_tensor *tensor, struct dl_tensor *view) {
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

/* Consumers may release their tensor from any thread, so the GIL is taken. */
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

/* A capsule that no consumer took still owns its tensor. */
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

static struct silo_tensor *tensor_of(PyObject *object) {
    return &((struct silo_tensor_object *)object)->tensor;
}

/* ---- DLPack ---- */

/* Returns a DLPack tensor that keeps the object alive; NULL with an exception set. */
static struct dl_managed_versioned *managed_of(PyObject *object) {
    struct dl_managed_versioned *managed = malloc(sizeof *managed); /* owned by the caller */
    if (managed == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *managed = (struct dl_managed_versioned){1, 0, object, delete_versioned, 0, {0}};
    view_of(tensor_of(object), &managed->tensor);
    Py_INCREF(object);
    return managed;
}

static PyObject *unversioned_capsule(PyObject *object) {
    struct dl_managed *managed =
        malloc(sizeof *managed); /* owned by the capsule, and later by its consumer */
    if (managed == NULL)
        return PyErr_NoMemory();
    view_of(tensor_of(object), &managed->tensor);
    managed->context = object;
    managed->deleter = delete_managed;
    Py_INCREF(object);
    PyObject *capsule = PyCapsule_New(managed, "dltensor", drop_managed);
    if (capsule == NULL)
        delete_managed(managed);
    return capsule;
}

PyObject *silo_tensor_capsule(PyObject *object, PyObject *max_version) {
    int major = 0, minor = 0;
    if (max_version != Py_None &&
        (!PyTuple_Check(max_version) || !PyArg_ParseTuple(max_version, "ii", &major, &minor))) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "max_version is a tuple of two ints, not %R",
                         max_version);
        return NULL;
    }
    if (major < 1)
        return unversioned_capsule(object);
    struct dl_managed_versioned *managed = managed_of(object);
    if (managed == NULL)
        return NULL;
    PyObject *capsule = PyCapsule_New(managed, "dltensor_versioned", drop_versioned);
    if (capsule == NULL)
        delete_versioned(managed);
    return capsule;
}

int silo_dlpack_read(PyObject *args, PyObject *keywords, struct silo_dlpack_request *request) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *device = Py_None;
    *request = (struct silo_dlpack_request){Py_None, Py_None, Py_None, false, {0, 0}};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO", names, &request->stream,
                                     &request->max_version, &device, &request->copy))
        return -1;
    if (device == Py_None)
        return 0;
    if (!PyTuple_Check(device)) {
        PyErr_Format(PyExc_TypeError, "dl_device is a tuple of two ints, not %R", device);
        return -1;
    }
    request->has_device = true;
    return PyArg_ParseTuple(device, "ii", &request->device.type, &request->device.id) ? 0 : -1;
}

PyObject *silo_tensor_device(PyObject *object, PyObject *unused) {
    (void)unused;
    const struct dl_device *device = &tensor_of(object)->device;
    return Py_BuildValue("(ii)", (int)device->type, (int)device->id);
}

static int exchange_tensor(void *object, struct dl_tensor *out) {
    view_of(tensor_of(object), out);
    return 0;
}

static int exchange_managed(void *object, struct dl_managed_versioned **out) {
    *out = managed_of(object);
    return *out ? 0 : -1;
}

static int exchange_stream(int32_t type, int32_t id, void **out) {
    (void)type, (void)id;
    *out = NULL;
    return 0;
}

static struct dl_exchange exchange = {
    .major = 1,
    .minor = 3,
    .managed_from_object = exchange_managed,
    .tensor_from_object = exchange_tensor,
    .current_stream = exchange_stream,
};

bool silo_tensor_owns(const struct silo_adapter *adapter) {
    return adapter->exchange == &exchange;
}

int silo_tensor_add_type(PyObject *module, const char *name, PyTypeObject *type) {
    PyObject *capsule = PyCapsule_New(&exchange, "dlpack_exchange_api", NULL);
    const int result =
        capsule ? PyObject_SetAttrString((PyObject *)type, "__dlpack_c_exchange_api__", capsule)
                : -1;
    Py_XDECREF(capsule);
    return result == 0 ? PyModule_AddObjectRef(module, name, (PyObject *)type) : -1;
}

/* ---- attributes ---- */

PyObject *silo_tensor_shape(PyObject *object, void *closure) {
    (void)closure;
    return silo_tensor_integers(tensor_of(object)->shape, tensor_of(object)->ndim);
}

PyObject *silo_tensor_strides(PyObject *object, void *closure) {
    (void)closure;
    return silo_tensor_integers(tensor_of(object)->strides, tensor_of(object)->ndim);
}

PyObject *silo_tensor_dtype(PyObject *object, void *closure) {
    (void)closure;
    return PyUnicode_FromString(silo_dtype_name(tensor_of(object)->type));
}

PyObject *silo_tensor_nbytes(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromLongLong(tensor_of(object)->bytes);
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
