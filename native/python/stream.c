#include "stream.h"

#include "errors.h"
#include "flat.h"
#include "names.h"

static PyObject *s_cuda_stream, *s_protocol, *s_ptr, *s_handle, *s_value;

int silo_stream_init(void) {
    static const struct silo_name names[] = {
        {&s_cuda_stream, "cuda_stream"},
        {&s_protocol, "__cuda_stream__"},
        {&s_ptr, "ptr"},
        {&s_handle, "handle"},
        {&s_value, "value"},
    };
    return silo_intern(names, sizeof names / sizeof *names);
}

/* Returns an attribute (new reference), or NULL without an exception. */
static PyObject *attribute(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        silo_forget_error();
    return value;
}

/* Reads a stream by CUDA's protocol: `__cuda_stream__` is a method, or an attribute in older
 * libraries, with the value (version, handle). */
static PyObject *by_protocol(PyObject *object) {
    PyObject *method = attribute(object, s_protocol);
    if (method != NULL && PyCallable_Check(method)) {
        PyObject *pair = PyObject_CallNoArgs(method);
        Py_DECREF(method);
        method = pair;
    }
    PyObject *handle = method ? PySequence_GetItem(method, 1) : NULL;
    Py_XDECREF(method);
    silo_forget_error();
    return handle;
}

int silo_stream_read(PyObject *kernel, PyObject *name, PyObject *object, void **stream) {
    PyObject *number = object; /* owned */
    Py_INCREF(number);
    if (!PyLong_Check(object)) {
        Py_DECREF(number);
        number = attribute(object, s_cuda_stream);
        if (number == NULL)
            number = by_protocol(object);
        if (number == NULL)
            number = attribute(object, s_ptr);
        if (number == NULL)
            number = attribute(object, s_handle);
        if (number != NULL &&
            !PyLong_Check(number)) { /* a ctypes.c_void_p, whose value may be None */
            PyObject *value = attribute(number, s_value);
            Py_DECREF(number);
            number = value == Py_None ? PyLong_FromLong(0) : value;
            if (value == Py_None)
                Py_DECREF(value);
        }
    }
    *stream = number != NULL && PyLong_Check(number) ? PyLong_AsVoidPtr(number) : NULL;
    const bool failed = number == NULL || !PyLong_Check(number) || PyErr_Occurred();
    Py_XDECREF(number);
    if (!failed)
        return 0;
    silo_forget_error(); /* the message of silo_bad_argument is clearer */
    return silo_bad_argument(kernel, name,
                             "a stream: an integer handle, a stream object of torch, cupy, numba, "
                             "cuda.core or Silo, or None",
                             object);
}

int silo_stream_slow(const struct silo_adapter *adapter, int32_t device_type, int32_t device_id,
                     void **stream) {
    *stream = NULL;
    if (adapter->exchange != NULL && adapter->exchange->current_stream != NULL) {
        if (adapter->exchange->current_stream(device_type, device_id, stream) == 0)
            return 0;
        if (!PyErr_Occurred())
            PyErr_Format(silo_device_error,
                         "the array library does not say its current stream on "
                         "device %d",
                         (int)device_id);
        return -1;
    }
    if (adapter->stream == NULL)
        return 0;
    PyObject *index = PyLong_FromLong(device_id);
    PyObject *handle = index ? silo_call_one(adapter->stream, index) : NULL;
    Py_XDECREF(index);
    if (handle == NULL)
        return -1;
    *stream = PyLong_AsVoidPtr(handle);
    Py_DECREF(handle);
    return PyErr_Occurred() ? -1 : 0;
}
