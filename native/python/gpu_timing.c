/* GpuStream, a stream that Silo makes, and GpuEvent, an event by which the device measures times.
 */
#include "gpu_timing.h"

#include "errors.h"
#include "gpu_device.h"

struct gpu_handle {
    PyObject_HEAD struct silo_gpu_device *device;
    void *handle;  /* owned: a stream or an event */
    bool recorded; /* the event was recorded */
};

static PyTypeObject *stream_type, *event_type;

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *keywords, bool stream) {
    static char *names[] = {"kind", "index", NULL};
    const char *kind;
    int index, code;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "si", names, &kind, &index))
        return NULL;
    struct silo_gpu_device *device = silo_gpu_get_device(kind, index);
    if (device == NULL)
        return NULL;
    struct silo_gpu *gpu = device->gpu;
    struct gpu_handle *self = (struct gpu_handle *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    struct silo_gpu_scope scope;
    self->device = device;
    Py_BEGIN_ALLOW_THREADS code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        code = stream ? gpu->stream_create(&self->handle, SILO_GPU_NON_BLOCKING)
                      : gpu->event_create(&self->handle, 0);
        silo_gpu_leave(&scope);
    }
    Py_END_ALLOW_THREADS if (code != 0) {
        self->handle = NULL;
        silo_gpu_error(gpu, stream ? "cannot make a stream" : "cannot make an event", code);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    return make(type, args, keywords, true);
}

static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    return make(type, args, keywords, false);
}

static void handle_dealloc(PyObject *object) {
    struct gpu_handle *self = (struct gpu_handle *)object;
    PyTypeObject *type = Py_TYPE(object);
    struct silo_gpu_scope scope;
    /* The handle may be destroyed at once: the driver keeps the stream or event alive as long as
     * queued work uses it. */
    if (self->handle != NULL && !silo_gpu_ending() && silo_gpu_enter(self->device, &scope) == 0) {
        if (type == stream_type)
            self->device->gpu->stream_destroy(self->handle);
        else
            self->device->gpu->event_destroy(self->handle);
        silo_gpu_leave(&scope);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* Waits until the stream or event is done; the GIL is released meanwhile. */
static PyObject *synchronize(struct gpu_handle *self, int (*wait)(void *), const char *action) {
    struct silo_gpu_scope scope;
    int code;
    Py_BEGIN_ALLOW_THREADS code = silo_gpu_enter(self->device, &scope);
    if (code == 0) {
        code = wait(self->handle);
        silo_gpu_leave(&scope);
    }
    Py_END_ALLOW_THREADS if (code != 0) return silo_gpu_error(self->device->gpu, action, code),
        NULL;
    Py_RETURN_NONE;
}

/* ---- streams ---- */

static PyObject *stream_handle(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromVoidPtr(((struct gpu_handle *)object)->handle);
}

static PyObject *stream_synchronize(PyObject *object, PyObject *unused) {
    (void)unused;
    struct gpu_handle *self = (struct gpu_handle *)object;
    return synchronize(self, self->device->gpu->stream_synchronize, "cannot wait for a stream");
}

/* ---- events ---- */

static PyObject *event_record(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"stream", NULL};
    struct gpu_handle *self = (struct gpu_handle *)object;
    unsigned long long stream = 0;
    struct silo_gpu_scope scope;
    int code;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|K", names, &stream))
        return NULL;
    Py_BEGIN_ALLOW_THREADS code = silo_gpu_enter(self->device, &scope);
    if (code == 0) {
        code = self->device->gpu->event_record(self->handle, (void *)(uintptr_t)stream);
        silo_gpu_leave(&scope);
    }
    Py_END_ALLOW_THREADS if (code != 0) return silo_gpu_error(self->device->gpu,
                                                              "cannot record an event", code),
        NULL;
    self->recorded = true;
    Py_RETURN_NONE;
}

static PyObject *event_query(PyObject *object, PyObject *unused) {
    (void)unused;
    struct gpu_handle *self = (struct gpu_handle *)object;
    const int code = self->device->gpu->event_query(self->handle);
    if (code != 0 && code != SILO_GPU_NOT_READY)
        return silo_gpu_error(self->device->gpu, "cannot ask an event", code), NULL;
    return PyBool_FromLong(code == 0);
}

static PyObject *event_synchronize(PyObject *object, PyObject *unused) {
    (void)unused;
    struct gpu_handle *self = (struct gpu_handle *)object;
    return synchronize(self, self->device->gpu->event_synchronize, "cannot wait for an event");
}

static PyObject *event_elapsed(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"begin", NULL};
    struct gpu_handle *self = (struct gpu_handle *)object, *begin;
    float milliseconds = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!", names, event_type, &begin))
        return NULL;
    if (begin->device != self->device)
        return PyErr_Format(silo_device_error, "no time passes between events of two devices");
    if (!begin->recorded || !self->recorded)
        return PyErr_Format(silo_device_error, "an event that was never recorded has no time");
    const int code = self->device->gpu->event_elapsed(&milliseconds, begin->handle, self->handle);
    if (code == SILO_GPU_NOT_READY)
        return PyErr_Format(silo_device_error,
                            "the work between two events is not done yet: synchronize() the later "
                            "one first");
    if (code != 0)
        return silo_gpu_error(self->device->gpu, "cannot read a time", code), NULL;
    const double nanoseconds = (double)milliseconds * 1e6;
    return PyLong_FromDouble(nanoseconds < 0 ? nanoseconds - 0.5 : nanoseconds + 0.5);
}

int silo_gpu_timing_init(PyObject *module) {
    static PyMethodDef stream_methods[] = {
        {"synchronize", stream_synchronize, METH_NOARGS, "Wait for the work queued so far."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef stream_getters[] = {
        {"handle", stream_handle, NULL, "The driver's handle.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot stream_slots[] = {
        {Py_tp_new, (void *)stream_new},
        {Py_tp_dealloc, (void *)handle_dealloc},
        {Py_tp_methods, stream_methods},
        {Py_tp_getset, stream_getters},
        {Py_tp_doc, "GpuStream(kind, index)\n--\n\nA stream that does not wait for the null "
                    "stream."},
        {0, NULL},
    };
    static PyType_Spec stream_spec = {"silo._native.GpuStream", sizeof(struct gpu_handle), 0,
                                      Py_TPFLAGS_DEFAULT, stream_slots};
    static PyMethodDef event_methods[] = {
        {"record", (PyCFunction)(void (*)(void))event_record, METH_VARARGS | METH_KEYWORDS,
         "record(stream=0)\n\nTake the time when the work queued so far is done."},
        {"query", event_query, METH_NOARGS, "Whether that work is done."},
        {"synchronize", event_synchronize, METH_NOARGS, "Wait for that work."},
        {"elapsed_ns", (PyCFunction)(void (*)(void))event_elapsed, METH_VARARGS | METH_KEYWORDS,
         "elapsed_ns(begin) -> int\n\nNanoseconds since another event, to about 500."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot event_slots[] = {
        {Py_tp_new, (void *)event_new},
        {Py_tp_dealloc, (void *)handle_dealloc},
        {Py_tp_methods, event_methods},
        {Py_tp_doc, "GpuEvent(kind, index)\n--\n\nA point in a stream's work, with its time."},
        {0, NULL},
    };
    static PyType_Spec event_spec = {"silo._native.GpuEvent", sizeof(struct gpu_handle), 0,
                                     Py_TPFLAGS_DEFAULT, event_slots};
    stream_type = (PyTypeObject *)PyType_FromSpec(&stream_spec);
    event_type = (PyTypeObject *)PyType_FromSpec(&event_spec);
    if (stream_type == NULL || event_type == NULL ||
        PyModule_AddObjectRef(module, "GpuStream", (PyObject *)stream_type) != 0)
        return -1;
    return PyModule_AddObjectRef(module, "GpuEvent", (PyObject *)event_type);
}
