/* GpuBuffer: an array in a device's memory, for programs without an array library. */
#include "gpu_memory.h"

#include "errors.h"
#include "gpu_device.h"
#include "tensor.h"

#include <stdio.h>

struct gpu_buffer {
    struct silo_tensor_object base; /* owns its memory, which the driver allocated */
    struct silo_gpu_device *device;
};

static PyTypeObject *buffer_type;

static uint64_t address_of(const struct gpu_buffer *self) {
    return (uint64_t)(uintptr_t)self->base.tensor.memory;
}

/* ---- making ---- */

/* Gets the device's own stream, made at first use. The null stream is not used: it would wait for
 * other streams, and it breaks the capture of a stream that waits for it. */
static int own_stream(struct silo_gpu_device *device, void **stream) {
    *stream = __atomic_load_n(&device->stream, __ATOMIC_ACQUIRE);
    if (*stream != NULL)
        return 0;
    const int code = device->gpu->stream_create(stream, SILO_GPU_NON_BLOCKING);
    void *none = NULL;
    if (code == 0 && !__atomic_compare_exchange_n(&device->stream, &none, *stream, false,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        device->gpu->stream_destroy(*stream); /* another thread made the device's stream first */
        *stream = none;
    }
    return code;
}

static int allocate(struct silo_gpu_device *device, size_t bytes, uint64_t *address) {
    struct silo_gpu_scope scope;
    void *stream;
    int code = silo_gpu_enter(device, &scope);
    if (code != 0)
        return code;
    code = own_stream(device, &stream);
    if (code == 0)
        code = device->gpu->memory_alloc(address, bytes);
    if (code == 0) {
        code = device->gpu->fill(*address, 0, bytes, stream);
        if (code == 0)
            code = device->gpu->stream_synchronize(stream);
        if (code != 0)
            device->gpu->memory_free(*address);
    }
    silo_gpu_leave(&scope);
    return code;
}

static void allocation_error(const struct silo_gpu_device *device, int64_t bytes, int code) {
    char text[256];
    snprintf(text, sizeof text,
             "cannot allocate %lld bytes (%.3f GiB) on %s:%d, %s with %.1f GiB of memory",
             (long long)bytes, (double)bytes / (1 << 30), device->gpu->name, (int)device->index,
             device->name, (double)device->total_memory / (1 << 30));
    silo_gpu_error(device->gpu, text, code);
}

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"shape", "dtype", "kind", "index", NULL};
    PyObject *shape;
    const char *dtype, *kind;
    int index, code = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Ossi", names, &shape, &dtype, &kind, &index))
        return NULL;
    struct silo_gpu_device *device = silo_gpu_get_device(kind, index);
    if (device == NULL)
        return NULL;
    struct silo_gpu *gpu = device->gpu;
    struct gpu_buffer *self = (struct gpu_buffer *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->device = device;
    self->base.tensor.device = (struct dl_device){gpu->memory_type, index};
    if (silo_tensor_describe(&self->base.tensor, shape, dtype) != 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (self->base.tensor.bytes > 0) {
        uint64_t address = 0;
        Py_BEGIN_ALLOW_THREADS code = allocate(device, (size_t)self->base.tensor.bytes, &address);
        Py_END_ALLOW_THREADS if (code != 0) {
            allocation_error(device, self->base.tensor.bytes, code);
            Py_DECREF((PyObject *)self);
            return NULL;
        }
        self->base.tensor.memory = (void *)(uintptr_t)address;
    }
    return (PyObject *)self;
}

static void buffer_dealloc(PyObject *object) {
    struct gpu_buffer *self = (struct gpu_buffer *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->base.tensor.memory != NULL && !silo_gpu_ending()) {
        struct silo_gpu_scope scope;
        /* The driver waits for all work before it frees the memory. If the driver or the context is
         * gone, so is the memory. */
        Py_BEGIN_ALLOW_THREADS if (silo_gpu_enter(self->device, &scope) == 0) {
            self->device->gpu->memory_free(address_of(self));
            silo_gpu_leave(&scope);
        }
        Py_END_ALLOW_THREADS
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* ---- copies ---- */

/* Queues a copy and waits for it; called without the GIL. */
static int copy_and_wait(struct silo_gpu_device *device, uint64_t to, uint64_t from, size_t bytes,
                         void *stream) {
    struct silo_gpu_scope scope;
    int code = silo_gpu_enter(device, &scope);
    if (code != 0)
        return code;
    code = device->gpu->copy(to, from, bytes, stream);
    if (code == 0)
        code = device->gpu->stream_synchronize(stream);
    silo_gpu_leave(&scope);
    return code;
}

#define WHOLE (-1)

/* Returns whether the `bytes` bytes from byte `offset` on lie in the buffer; with `offset` = WHOLE,
 * whether `bytes` is the size of the buffer. Sets an exception if not. */
static bool is_part(const struct gpu_buffer *self, long long offset, long long bytes) {
    const long long all = self->base.tensor.bytes;
    if (offset == WHOLE) {
        if (bytes == all)
            return true;
        PyErr_Format(silo_argument_error,
                     "a Buffer of %lld bytes is copied from and to as many, "
                     "not %lld",
                     all, bytes);
        return false;
    }
    if (offset >= 0 && offset <= all && bytes <= all - offset)
        return true;
    PyErr_Format(silo_argument_error,
                 "a Buffer of %lld bytes has no part of %lld bytes at byte %lld", all, bytes,
                 offset);
    return false;
}

/* Copies between the buffer and `other`, which is a GpuBuffer or has the buffer protocol: to
 * `other` if `to_host`, else from it. The bytes of `other` correspond to the bytes of the buffer
 * from byte `offset` on, or to the whole buffer if `offset` is WHOLE. */
static PyObject *transfer(struct gpu_buffer *self, PyObject *other, void *stream, long long offset,
                          bool to_host) {
    Py_buffer view = {.obj = NULL};
    uint64_t address;
    long long bytes;
    if (PyObject_TypeCheck(other, buffer_type)) {
        const struct gpu_buffer *buffer = (const struct gpu_buffer *)other;
        address = address_of(buffer);
        bytes = buffer->base.tensor.bytes;
    } else {
        if (PyObject_GetBuffer(other, &view, to_host ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0)
            return NULL;
        address = (uint64_t)(uintptr_t)view.buf;
        bytes = view.len;
    }
    PyObject *result = NULL;
    int code = 0;
    if (is_part(self, offset, bytes)) {
        const uint64_t buffer_address = address_of(self) + (uint64_t)(offset == WHOLE ? 0 : offset);
        if (bytes > 0) {
            Py_BEGIN_ALLOW_THREADS code =
                copy_and_wait(self->device, to_host ? address : buffer_address,
                              to_host ? buffer_address : address, (size_t)bytes, stream);
            Py_END_ALLOW_THREADS
        }
        if (code != 0)
            silo_gpu_error(self->device->gpu, "cannot copy a Buffer", code);
        else
            result = Py_NewRef(Py_None);
    }
    if (view.obj != NULL)
        PyBuffer_Release(&view);
    return result;
}

static PyObject *transfer_call(PyObject *object, PyObject *args, PyObject *keywords, char **names,
                               bool to_host) {
    PyObject *other;
    unsigned long long stream = 0;
    long long offset = WHOLE;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|KL", names, &other, &stream, &offset))
        return NULL;
    return transfer((struct gpu_buffer *)object, other, (void *)(uintptr_t)stream, offset, to_host);
}

static PyObject *buffer_copy_from(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "stream", "at", NULL};
    return transfer_call(object, args, keywords, names, false);
}

static PyObject *buffer_copy_to(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"out", "stream", "at", NULL};
    return transfer_call(object, args, keywords, names, true);
}

static PyObject *buffer_fill(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"byte", "stream", NULL};
    struct gpu_buffer *self = (struct gpu_buffer *)object;
    unsigned char byte;
    unsigned long long stream = 0;
    struct silo_gpu_scope scope;
    int code = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "b|K", names, &byte, &stream))
        return NULL;
    if (self->base.tensor.bytes > 0) {
        Py_BEGIN_ALLOW_THREADS code = silo_gpu_enter(self->device, &scope);
        if (code == 0) {
            code = self->device->gpu->fill(address_of(self), byte, (size_t)self->base.tensor.bytes,
                                           (void *)(uintptr_t)stream);
            silo_gpu_leave(&scope);
        }
        Py_END_ALLOW_THREADS
    }
    if (code != 0)
        return silo_gpu_error(self->device->gpu, "cannot fill a Buffer", code), NULL;
    Py_RETURN_NONE;
}

/* ---- other libraries ---- */

/* Waits for the null stream, by which Silo orders its work by default, before a consumer reads the
 * buffer on `stream`. DLPack's values None, 0 and 1 mean the null stream itself and -1 means
 * unordered: these need no wait. */
static int wait_for_consumer(struct gpu_buffer *self, PyObject *stream) {
    struct silo_gpu_scope scope;
    int code;
    if (stream == Py_None)
        return 0;
    const long long handle = PyLong_AsLongLong(stream);
    if (handle == -1 && PyErr_Occurred())
        return -1;
    if (handle >= -1 && handle <= 1)
        return 0;
    Py_BEGIN_ALLOW_THREADS code = silo_gpu_enter(self->device, &scope);
    if (code == 0) {
        code = self->device->gpu->stream_synchronize(NULL);
        silo_gpu_leave(&scope);
    }
    Py_END_ALLOW_THREADS return code != 0
        ? silo_gpu_error(self->device->gpu, "cannot export a Buffer", code)
        : 0;
}

static PyObject *buffer_dlpack(PyObject *object, PyObject *args, PyObject *keywords) {
    struct gpu_buffer *self = (struct gpu_buffer *)object;
    const struct dl_device *device = &self->base.tensor.device;
    struct silo_dlpack_request request;
    if (silo_dlpack_read(args, keywords, &request) != 0)
        return NULL;
    if (request.has_device &&
        (request.device.type != device->type || request.device.id != device->id))
        return PyErr_Format(PyExc_BufferError,
                            "a Buffer on %s:%d stays there; copy_to copies it to the host",
                            self->device->gpu->name, (int)self->device->index);
    if (request.copy == Py_True)
        return PyErr_Format(PyExc_BufferError, "a Buffer is exported without a copy");
    if (wait_for_consumer(self, request.stream) != 0)
        return NULL;
    return silo_tensor_capsule(object, request.max_version);
}

static PyObject *buffer_interface(PyObject *object, void *closure) {
    (void)closure;
    static const char letters[] = {[SILO_INT] = 'i',
                                   [SILO_UINT] = 'u',
                                   [SILO_FLOAT] = 'f',
                                   [SILO_COMPLEX] = 'c',
                                   [SILO_BOOL] = 'b'};
    const struct gpu_buffer *self = (const struct gpu_buffer *)object;
    const struct silo_tensor *tensor = &self->base.tensor;
    const char letter = tensor->type.code < sizeof letters ? letters[tensor->type.code] : '\0';
    if (!self->device->gpu->array_interface || letter == '\0')
        return PyErr_Format(PyExc_AttributeError,
                            "a Buffer of %s on %s has no __cuda_array_interface__; use DLPack",
                            silo_dtype_name(tensor->type), self->device->gpu->name);
    char type[8];
    snprintf(type, sizeof type, "%c%c%d", tensor->type.bits == 8 ? '|' : '<', letter,
             tensor->type.bits / 8);
    PyObject *shape = silo_tensor_integers(tensor->shape, tensor->ndim);
    if (shape == NULL)
        return NULL;
    return Py_BuildValue("{sNsss(KO)sOsi}", "shape", shape, "typestr", type, "data",
                         (unsigned long long)address_of(self), Py_False, "strides", Py_None,
                         "version", 3);
}

/* ---- attributes ---- */

static PyObject *buffer_address(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(address_of((struct gpu_buffer *)object));
}

static PyObject *buffer_device(PyObject *object, void *closure) {
    (void)closure;
    const struct silo_gpu_device *device = ((struct gpu_buffer *)object)->device;
    return Py_BuildValue("(si)", device->gpu->name, (int)device->index);
}

int silo_gpu_memory_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"copy_from", (PyCFunction)(void (*)(void))buffer_copy_from, METH_VARARGS | METH_KEYWORDS,
         "copy_from(data, stream=0, at=-1)\n\nFill from as many bytes of a GpuBuffer or of host "
         "memory; "
         "done when it returns."},
        {"copy_to", (PyCFunction)(void (*)(void))buffer_copy_to, METH_VARARGS | METH_KEYWORDS,
         "copy_to(out, stream=0, at=-1)\n\nCopy to as many bytes of a GpuBuffer or of host memory, "
         "after "
         "the work queued on the stream; done when it returns."},
        {"fill", (PyCFunction)(void (*)(void))buffer_fill, METH_VARARGS | METH_KEYWORDS,
         "fill(byte, stream=0)\n\nSet every byte; queued on the stream."},
        {"__dlpack__", (PyCFunction)(void (*)(void))buffer_dlpack, METH_VARARGS | METH_KEYWORDS,
         "A DLPack capsule of this memory, not copied."},
        {"__dlpack_device__", silo_tensor_device, METH_NOARGS, "(DLPack device type, index)."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef getters[] = {
        {"shape", silo_tensor_shape, NULL, "Extents.", NULL},
        {"strides", silo_tensor_strides, NULL, "Strides in elements; row-major.", NULL},
        {"dtype", silo_tensor_dtype, NULL, "The element type's name.", NULL},
        {"nbytes", silo_tensor_nbytes, NULL, "Size in bytes.", NULL},
        {"address", buffer_address, NULL, "The address; 0 without elements.", NULL},
        {"device", buffer_device, NULL, "('cuda' or 'hip', index).", NULL},
        {"__cuda_array_interface__", buffer_interface, NULL, "Version 3; on CUDA.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)buffer_new},
        {Py_tp_dealloc, (void *)buffer_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, getters},
        {Py_tp_doc,
         "GpuBuffer(shape, dtype, kind, index)\n--\n\nZeroed memory of a device, aligned "
         "to 256 bytes, row-major; freed with the object, after all work on it."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "silo._native.GpuBuffer",
        .basicsize = sizeof(struct gpu_buffer),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
        .slots = slots,
    };
    buffer_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return buffer_type ? silo_tensor_add_type(module, "GpuBuffer", buffer_type) : -1;
}
