#include "buffer.h"

#include "errors.h"
#include "tensor.h"

#include <stdlib.h>

struct host_buffer {
    /* The array's memory is 64-byte aligned. This object owns the memory unless `owner` is set. */
    struct silo_tensor_object base;
    PyObject *owner; /* owned: the HostBuffer whose memory this buffer views */
    Py_ssize_t byte_strides[SILO_MAX_AXES]; /* the strides for the buffer protocol */
};

static PyTypeObject *buffer_type;

/* ---- making ---- */

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"shape", "dtype", NULL};
    PyObject *shape;
    const char *dtype;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Os", names, &shape, &dtype))
        return NULL;
    struct host_buffer *self = (struct host_buffer *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    struct silo_tensor *tensor = &self->base.tensor;
    tensor->device = (struct dl_device){SILO_DEVICE_CPU, 0};
    if (silo_tensor_describe(tensor, shape, dtype) == 0 && tensor->bytes > 0 &&
        posix_memalign(&tensor->memory, 64, (size_t)tensor->bytes) != 0)
        PyErr_NoMemory();
    if (PyErr_Occurred()) {
        tensor->memory = NULL;
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    for (int32_t i = 0; i < tensor->ndim; i++)
        self->byte_strides[i] = tensor->strides[i] * tensor->type.bits / 8;
    if (tensor->bytes > 0)
        memset(tensor->memory, 0, (size_t)tensor->bytes);
    return (PyObject *)self;
}

static void buffer_dealloc(PyObject *object) {
    struct host_buffer *self = (struct host_buffer *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->owner == NULL)
        free(self->base.tensor.memory);
    Py_XDECREF(self->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* ---- the buffer protocol ---- */

static char empty; /* the address of a buffer without elements */

static int buffer_get(PyObject *object, Py_buffer *view, int flags) {
    struct host_buffer *self = (struct host_buffer *)object;
    const char *format = silo_dtype_format(self->base.tensor.type);
    if (format == NULL && (flags & PyBUF_FORMAT)) {
        PyErr_Format(PyExc_BufferError,
                     "the buffer protocol has no format for %s; use .raw for the bytes",
                     silo_dtype_name(self->base.tensor.type));
        view->obj = NULL;
        return -1;
    }
    Py_INCREF(object);
    view->obj = object;
    view->buf = self->base.tensor.memory ? self->base.tensor.memory : &empty;
    view->len = self->base.tensor.bytes;
    view->readonly = 0;
    view->itemsize = self->base.tensor.type.bits / 8;
    view->format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL;
    view->ndim = self->base.tensor.ndim;
    _Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "extents are shared with DLPack");
    view->shape = (flags & PyBUF_ND) == PyBUF_ND ? (Py_ssize_t *)self->base.tensor.shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->byte_strides : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

/* ---- DLPack ---- */

static PyObject *buffer_dlpack(PyObject *object, PyObject *args, PyObject *keywords) {
    struct silo_dlpack_request request;
    if (silo_dlpack_read(args, keywords, &request) != 0)
        return NULL;
    if (request.has_device && request.device.type != SILO_DEVICE_CPU)
        return PyErr_Format(PyExc_BufferError, "a Buffer is in host memory and stays there");
    if (request.copy == Py_True)
        return PyErr_Format(PyExc_BufferError, "a Buffer is exported without a copy");
    return silo_tensor_capsule(object, request.max_version);
}

/* ---- attributes ---- */

static PyObject *buffer_data_ptr(PyObject *object, PyObject *unused) {
    (void)unused;
    return PyLong_FromVoidPtr(((struct host_buffer *)object)->base.tensor.memory);
}

/* Returns the memory as a flat array of bytes: a second HostBuffer, which keeps this one alive. */
static PyObject *buffer_raw(PyObject *object, void *closure) {
    (void)closure;
    struct host_buffer *self = (struct host_buffer *)object;
    struct host_buffer *bytes = (struct host_buffer *)PyType_GenericAlloc(buffer_type, 0);
    if (bytes == NULL)
        return NULL;
    Py_INCREF(object);
    bytes->owner = object;
    bytes->base.tensor.device = self->base.tensor.device;
    bytes->base.tensor.memory = self->base.tensor.memory;
    bytes->base.tensor.bytes = self->base.tensor.bytes;
    bytes->base.tensor.type = (struct silo_dtype){SILO_UINT, 8};
    bytes->base.tensor.ndim = 1;
    bytes->base.tensor.shape[0] = self->base.tensor.bytes;
    bytes->base.tensor.strides[0] = bytes->byte_strides[0] = 1;
    PyObject *result = PyMemoryView_FromObject((PyObject *)bytes);
    Py_DECREF((PyObject *)bytes);
    return result;
}

int silo_buffer_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"__dlpack__", (PyCFunction)(void (*)(void))buffer_dlpack, METH_VARARGS | METH_KEYWORDS,
         "A DLPack capsule of this memory, not copied."},
        {"__dlpack_device__", silo_tensor_device, METH_NOARGS, "(1, 0): the CPU."},
        {"data_ptr", buffer_data_ptr, METH_NOARGS, "The address; 0 without elements."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef getters[] = {
        {"shape", silo_tensor_shape, NULL, "Extents.", NULL},
        {"strides", silo_tensor_strides, NULL, "Strides in elements; row-major.", NULL},
        {"dtype", silo_tensor_dtype, NULL, "The element type's name.", NULL},
        {"nbytes", silo_tensor_nbytes, NULL, "Size in bytes.", NULL},
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
    return buffer_type ? silo_tensor_add_type(module, "HostBuffer", buffer_type) : -1;
}
