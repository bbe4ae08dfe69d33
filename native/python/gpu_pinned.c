/* PinnedMemory: host memory that the driver has locked, so that a device copies at the speed of its
 * bus. Other host memory is copied through a small locked buffer of the driver. */
#include "gpu_pinned.h"

#include "errors.h"
#include "gpu_device.h"

#include <stdio.h>

struct pinned_memory {
    PyObject_HEAD struct silo_gpu_device *device;
    void *memory; /* owned: allocated by the driver and freed with the object; NULL for memory of 0
                     bytes */
    Py_ssize_t bytes;
};

static int allocate(struct silo_gpu_device *device, size_t bytes, void **memory) {
    struct silo_gpu_scope scope;
    int code = silo_gpu_enter(device, &scope);
    if (code != 0)
        return code;
    code = device->gpu->host_alloc(memory, bytes);
    silo_gpu_leave(&scope);
    if (code == 0)
        memset(*memory, 0, bytes);
    return code;
}

static PyObject *pinned_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"nbytes", "kind", "index", NULL};
    const char *kind;
    Py_ssize_t bytes;
    int index, code = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "nsi", names, &bytes, &kind, &index))
        return NULL;
    if (bytes < 0)
        return PyErr_Format(silo_argument_error, "pinned memory of %zd bytes: it has 0 or more",
                            bytes);
    struct silo_gpu_device *device = silo_gpu_get_device(kind, index);
    if (device == NULL)
        return NULL;
    struct silo_gpu *gpu = device->gpu;
    struct pinned_memory *self = (struct pinned_memory *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->device = device;
    self->bytes = bytes;
    if (bytes > 0) {
        void *memory = NULL;
        Py_BEGIN_ALLOW_THREADS code = allocate(device, (size_t)bytes, &memory);
        Py_END_ALLOW_THREADS if (code != 0) {
            char text[128];
            snprintf(text, sizeof text, "cannot lock %lld bytes of host memory for %s:%d",
                     (long long)bytes, gpu->name, index);
            silo_gpu_error(gpu, text, code);
            Py_DECREF((PyObject *)self);
            return NULL;
        }
        self->memory = memory;
    }
    return (PyObject *)self;
}

static void pinned_dealloc(PyObject *object) {
    struct pinned_memory *self = (struct pinned_memory *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->memory != NULL && !silo_gpu_ending()) {
        struct silo_gpu_scope scope;
        /* A GpuBuffer's copy has ended when its call returns, so no copy uses this memory now. If
         * the driver or the context is gone, so is the memory. */
        Py_BEGIN_ALLOW_THREADS if (silo_gpu_enter(self->device, &scope) == 0) {
            self->device->gpu->host_free(self->memory);
            silo_gpu_leave(&scope);
        }
        Py_END_ALLOW_THREADS
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

static int pinned_get(PyObject *object, Py_buffer *view, int flags) {
    static char empty;
    const struct pinned_memory *self = (const struct pinned_memory *)object;
    return PyBuffer_FillInfo(view, object, self->memory != NULL ? self->memory : &empty,
                             self->bytes, 0, flags); /* the view keeps the object alive */
}

static PyObject *pinned_nbytes(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromSsize_t(((struct pinned_memory *)object)->bytes);
}

int silo_gpu_pinned_init(PyObject *module) {
    static PyGetSetDef getters[] = {
        {"nbytes", pinned_nbytes, NULL, "Size in bytes.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)pinned_new},
        {Py_tp_dealloc, (void *)pinned_dealloc},
        {Py_tp_getset, getters},
        {Py_bf_getbuffer, (void *)pinned_get},
        {Py_tp_doc, "PinnedMemory(nbytes, kind, index)\n--\n\nZeroed host memory that the driver "
                    "has locked, with the buffer protocol; freed with the object."},
        {0, NULL},
    };
    static PyType_Spec spec = {"silo._native.PinnedMemory", sizeof(struct pinned_memory), 0,
                               Py_TPFLAGS_DEFAULT, slots};
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL)
        return -1;
    const int result = PyModule_AddObjectRef(module, "PinnedMemory", type);
    Py_DECREF(type); /* the module keeps the type alive */
    return result;
}
