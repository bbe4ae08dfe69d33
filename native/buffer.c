#include "buffer.h"

#include "dlpack.h"
#include "dtypes.h"
#include "errors.h"

#include <stdlib.h>

#define MAX_AXES 32

struct host_buffer {
    PyObject_HEAD void
        *memory;     /* owned unless `owner` is set; 64-byte aligned; NULL only without elements */
    PyObject *owner; /* owned: the HostBuffer whose memory this one views */
    int64_t bytes;
    struct silo_dtype type;
    int32_t ndim;
    int64_t shape[MAX_AXES];
    int64_t strides[MAX_AXES];         /* in elements, for DLPack */
    Py_ssize_t byte_strides[MAX_AXES]; /* in bytes, for the buffer protocol */
};

static PyTypeObject *buffer_type;
static struct dl_exchange exchange;

/* ---- making ---- */

static int parse_shape(struct host_buffer *self, PyObject *shape) {
    Py_ssize_t ndim = PySequence_Size(shape);
    if (ndim < 0)
        return -1;
    if (ndim > MAX_AXES) {
        PyErr_SetString(silo_argument_error, "a Buffer has at most 32 dimensions");
        return -1;
    }
    self->ndim = (int32_t)ndim;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        PyObject *item = PySequence_GetItem(shape, i);
        self->shape[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (self->shape[i] < 0) {
            if (!PyErr_Occurred())
                PyErr_Format(silo_argument_error, "a Buffer's shape has no negative extents: %R",
                             shape);
            return -1;
        }
    }
    int64_t elements = 1;
    bool overflow = false;
    for (int32_t i = self->ndim - 1; i >= 0; i--) {
        self->strides[i] = elements;
        self->byte_strides[i] = elements * self->type.bits / 8;
        overflow |= __builtin_mul_overflow(elements, self->shape[i], &elements) ||
                    elements > INT64_MAX / 64;
    }
    if (overflow) {
        PyErr_Format(silo_argument_error, "a Buffer of shape %R does not fit any memory", shape);
        return -1;
    }
    self->bytes = elements * self->type.bits / 8;
    return 0;
}

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"shape", "dtype", NULL};
    PyObject *shape;
    const char *dtype;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Os", names, &shape, &dtype))
        return NULL;
    struct host_buffer *self = (struct host_buffer *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->type = silo_dtype_named(dtype, strlen(dtype));
    if (self->type.bits == 0)
        PyErr_Format(silo_argument_error, "a Buffer of dtype '%s': no kernel knows that dtype",
                     dtype);
    else if (parse_shape(self, shape) == 0 && self->bytes > 0 &&
             posix_memalign(&self->memory, 64, (size_t)self->bytes) != 0)
        PyErr_NoMemory();
    if (PyErr_Occurred()) {
        self->memory = NULL;
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (self->bytes > 0)
        memset(self->memory, 0, (size_t)self->bytes);
    return (PyObject *)self;
}

static void buffer_dealloc(PyObject *object) {
    struct host_buffer *self = (struct host_buffer *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->owner == NULL)
        free(self->memory);
    Py_XDECREF(self->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* ---- the buffer protocol ---- */

static char empty; /* what a buffer without elements points at */

static int buffer_get(PyObject *object, Py_buffer *view, int flags) {
    struct host_buffer *self = (struct host_buffer *)object;
    const char *format = silo_dtype_format(self->type);
    if (format == NULL && (flags & PyBUF_FORMAT)) {
        PyErr_Format(PyExc_BufferError,
                     "the buffer protocol has no format for %s; use .raw for the bytes",
                     silo_dtype_name(self->type));
        view->obj = NULL;
        return -1;
    }
    Py_INCREF(object);
    view->obj = object;
    view->buf = self->memory ? self->memory : &empty;
    view->len = self->bytes;
    view->readonly = 0;
    view->itemsize = self->type.bits / 8;
    view->format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL;
    view->ndim = self->ndim;
    _Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "extents are shared with DLPack");
    view->shape = (flags & PyBUF_ND) == PyBUF_ND ? (Py_ssize_t *)self->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->byte_strides : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

/* ---- DLPack ---- */

static void fill_tensor(struct host_buffer *self, struct dl_tensor *tensor) {
    *tensor = (struct dl_tensor){
        .data = self->memory,
        .device = {SILO_DEVICE_CPU, 0},
        .ndim = self->ndim,
        .dtype = {self->type.code, self->type.bits, 1},
        .shape = self->shape,
        .strides = self->strides,
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

static PyObject *export_managed(struct host_buffer *self) {
    struct dl_managed *managed =
        malloc(sizeof *managed); /* owned by the capsule, then by its consumer */
    if (managed == NULL)
        return PyErr_NoMemory();
    fill_tensor(self, &managed->tensor);
    managed->context = self;
    managed->deleter = delete_managed;
    Py_INCREF((PyObject *)self);
    PyObject *capsule = PyCapsule_New(managed, "dltensor", drop_managed);
    if (capsule == NULL)
        delete_managed(managed);
    return capsule;
}

static struct dl_managed_versioned *versioned(struct host_buffer *self) {
    struct dl_managed_versioned *managed = malloc(sizeof *managed);
    if (managed == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *managed = (struct dl_managed_versioned){1, 0, self, delete_versioned, 0, {0}};
    fill_tensor(self, &managed->tensor);
    Py_INCREF((PyObject *)self);
    return managed;
}

static PyObject *buffer_dlpack(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO", names, &stream, &version, &device,
                                     &copy))
        return NULL;
    struct host_buffer *self = (struct host_buffer *)object;
    if (device != Py_None) {
        int type, id;
        if (!PyTuple_Check(device) || !PyArg_ParseTuple(device, "ii", &type, &id))
            return NULL;
        if (type != SILO_DEVICE_CPU)
            return PyErr_Format(PyExc_BufferError, "a Buffer is in host memory and stays there");
    }
    if (copy == Py_True)
        return PyErr_Format(PyExc_BufferError, "a Buffer is exported without a copy");
    int major = 0, minor = 0;
    if (version != Py_None &&
        (!PyTuple_Check(version) || !PyArg_ParseTuple(version, "ii", &major, &minor)))
        return NULL;
    if (major < 1)
        return export_managed(self);
    struct dl_managed_versioned *managed =
        versioned(self); /* owned by the capsule, then by its consumer */
    if (managed == NULL)
        return NULL;
    PyObject *capsule = PyCapsule_New(managed, "dltensor_versioned", drop_versioned);
    if (capsule == NULL)
        delete_versioned(managed);
    return capsule;
}

static PyObject *buffer_dlpack_device(PyObject *object, PyObject *unused) {
    (void)object, (void)unused;
    return Py_BuildValue("(ii)", SILO_DEVICE_CPU, 0);
}

static int exchange_tensor(void *object, struct dl_tensor *out) {
    fill_tensor(object, out);
    return 0;
}

static int exchange_managed(void *object, struct dl_managed_versioned **out) {
    *out = versioned(object);
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

/* ---- attributes ---- */

static PyObject *integers(const int64_t *values, int32_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; i < count && tuple != NULL; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (value == NULL || PyTuple_SetItem(tuple, i, value) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *buffer_shape(PyObject *object, void *closure) {
    (void)closure;
    struct host_buffer *self = (struct host_buffer *)object;
    return integers(self->shape, self->ndim);
}

static PyObject *buffer_strides(PyObject *object, void *closure) {
    (void)closure;
    struct host_buffer *self = (struct host_buffer *)object;
    return integers(self->strides, self->ndim);
}

static PyObject *buffer_dtype(PyObject *object, void *closure) {
    (void)closure;
    return PyUnicode_FromString(silo_dtype_name(((struct host_buffer *)object)->type));
}

static PyObject *buffer_nbytes(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromLongLong(((struct host_buffer *)object)->bytes);
}

static PyObject *buffer_data_ptr(PyObject *object, PyObject *unused) {
    (void)unused;
    return PyLong_FromVoidPtr(((struct host_buffer *)object)->memory);
}

/* A flat view of bytes whatever the dtype, over a second object that keeps this one alive. */
static PyObject *buffer_raw(PyObject *object, void *closure) {
    (void)closure;
    struct host_buffer *self = (struct host_buffer *)object;
    struct host_buffer *bytes = (struct host_buffer *)PyType_GenericAlloc(buffer_type, 0);
    if (bytes == NULL)
        return NULL;
    Py_INCREF(object);
    bytes->owner = object;
    bytes->memory = self->memory;
    bytes->bytes = self->bytes;
    bytes->type = (struct silo_dtype){SILO_UINT, 8};
    bytes->ndim = 1;
    bytes->shape[0] = self->bytes;
    bytes->strides[0] = bytes->byte_strides[0] = 1;
    PyObject *result = PyMemoryView_FromObject((PyObject *)bytes);
    Py_DECREF((PyObject *)bytes);
    return result;
}

int silo_buffer_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"__dlpack__", (PyCFunction)(void (*)(void))buffer_dlpack, METH_VARARGS | METH_KEYWORDS,
         "A DLPack capsule of this memory, not copied."},
        {"__dlpack_device__", buffer_dlpack_device, METH_NOARGS, "(1, 0): the CPU."},
        {"data_ptr", buffer_data_ptr, METH_NOARGS, "The address; 0 without elements."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef getters[] = {
        {"shape", buffer_shape, NULL, "Extents.", NULL},
        {"strides", buffer_strides, NULL, "Strides in elements; row-major.", NULL},
        {"dtype", buffer_dtype, NULL, "The element type's name.", NULL},
        {"nbytes", buffer_nbytes, NULL, "Size in bytes.", NULL},
        {"raw", buffer_raw, NULL, "The bytes, as a writable memoryview.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)buffer_new},
        {Py_tp_dealloc, (void *)buffer_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, getters},
        {Py_bf_getbuffer, (void *)buffer_get},
        {Py_tp_doc,
         "HostBuffer(shape, dtype)\n--\n\nZeroed host memory, aligned to 64 bytes, row-major."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "silo._native.HostBuffer",
        .basicsize = sizeof(struct host_buffer),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
        .slots = slots,
    };
    buffer_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (buffer_type == NULL)
        return -1;
    PyObject *capsule = PyCapsule_New(&exchange, "dlpack_exchange_api", NULL);
    int result = capsule ? PyObject_SetAttrString((PyObject *)buffer_type,
                                                  "__dlpack_c_exchange_api__", capsule)
                         : -1;
    Py_XDECREF(capsule);
    return result == 0 ? PyModule_AddObjectRef(module, "HostBuffer", (PyObject *)buffer_type) : -1;
}
